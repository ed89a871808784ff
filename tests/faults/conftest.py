"""What the tests that hurt the scheduler share."""

from collections.abc import Iterator

import pytest
from engine import Group, Scheduler

from almanac.broker import Broker


@pytest.fixture(scope="module")
def group(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    """Of the whole module: a start takes long."""
    with Group(broker.bootstrap_servers, tmp_path_factory.mktemp("faults"), page_length="4s") as made:
        yield made


@pytest.fixture
def scheduler(group: Group) -> Scheduler:
    """One that fires; started if the test before has ended it."""
    if not group.schedulers or group.schedulers[-1].process.poll() is not None:
        group.start()
    return group.schedulers[-1].up()
