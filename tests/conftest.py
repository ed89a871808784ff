"""What tests share: a real Kafka, started once, and topics on it that no other test uses."""

import itertools
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import certificates
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from hypothesis import settings

from almanac.broker import Broker, Config, Sasl, ports

MakeTopic = Callable[..., str]

# An example that takes long says something of the machine, which others may be using, and nothing of the code.
settings.register_profile("almanac", deadline=None)
settings.load_profile("almanac")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--screenshots", metavar="FOLDER", help="where the tests of the admin page put pictures of it")


def small_config(folder: Path, sasl: Sasl | None = None) -> Config:
    """Of a broker for one test or one session: free ports, little memory."""
    return Config(folder=folder, port=ports.free(), controller_port=ports.free(), heap_mb=384, sasl=sasl)


@pytest.fixture(autouse=True)
def _no_handler_left() -> Iterator[None]:
    """The command line sets logging up on a stream that pytest closes after the test."""
    yield
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if type(handler) is logging.StreamHandler]:
        root.removeHandler(handler)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """An embedded Kafka for the whole session. Who stops or hurts it starts one of their own: `broker_config`."""
    with Broker(small_config(tmp_path_factory.mktemp("broker") / "kafka")) as started:
        started.start()
        yield started


@pytest.fixture(scope="session")
def sasl_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The same with SASL_SSL and SCRAM-SHA-512."""
    folder = tmp_path_factory.mktemp("sasl")
    made = certificates.make(folder)
    sasl = Sasl(user="almanac", password='p"ss\\w=rd', keystore=made.keystore, authority=made.authority)
    with Broker(small_config(folder / "kafka", sasl)) as started:
        started.start()
        yield started


@pytest.fixture
def broker_config(tmp_path: Path) -> Config:
    """Of a broker that the test starts, and may hurt, itself."""
    return small_config(tmp_path / "kafka")


@pytest.fixture(scope="session")
def admin(broker: Broker) -> AdminClient:
    return AdminClient(broker.client_settings())


_numbers = itertools.count(1)


@pytest.fixture
def make_topic(admin: AdminClient) -> MakeTopic:
    """`make_topic("schedules", 2, {"cleanup.policy": "compact"})`: a new topic; its name begins as told."""

    def make(name: str = "topic", partitions: int = 4, config: dict[str, str] | None = None) -> str:
        unique = f"{name}-{os.getpid()}-{next(_numbers)}"
        admin.create_topics([NewTopic(unique, partitions, 1, config=config or {})])[unique].result(30)
        return unique

    return make
