"""The shard topic on a real broker: what a driver knows of its predecessor."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine import Group

from almanac import kafka, shard, topics
from almanac.broker import Broker
from almanac.clock import Clock


@pytest.fixture
def group(broker: Broker, tmp_path: Path) -> Iterator[Group]:
    with Group(broker.bootstrap_servers, tmp_path, shards="1") as made:
        topics.ensure(kafka.admin_client(made.settings), made.settings)
        yield made


@pytest.mark.parametrize(("state", "alive"), [("firing", True), ("stopped", False)])
def test_a_predecessor_is_heard_however_long_the_first_answer_takes(
    state: str, alive: bool, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = shard.Ownership(group.settings, 1)
    (owner,) = first.claim(1).values()
    journal = shard.Journal(group.settings)
    journal.tell(0, "status", {"owner": owner, "state": state}, Clock())
    journal.close()
    poll, calls = shard.Reader.poll, []

    def slow(self: shard.Reader, seconds: float = 0.0) -> list[Any]:
        calls.append(seconds)
        return [] if len(calls) < 5 else poll(self, seconds)

    monkeypatch.setattr(shard.Reader, "poll", slow)
    second = shard.Ownership(group.settings, 1)
    second.claim(1)
    assert second.predecessor_alive() is alive
    first.close()
    second.close()
