"""The shard topic on a real broker: what a driver knows of its predecessor."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine import Group
from waiting import until

from almanac import controls, kafka, ports, shard, topics
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
    first.look(1)
    (owner,) = first.claim().values()
    journal = shard.Journal(group.settings)
    journal.write(0, "status", {"owner": owner, "state": state})
    journal.close()
    monkeypatch.setattr(shard, "ALIVE", 60_000)  # how old the report is does not matter here, on a busy machine either
    poll, calls = shard.Reader.poll, []

    def slow(self: shard.Reader, seconds: float = 0.0) -> list[Any]:
        calls.append(seconds)
        return [] if len(calls) < 5 else poll(self, seconds)

    monkeypatch.setattr(shard.Reader, "poll", slow)
    second = shard.Ownership(group.settings, 1)
    second.look(1)
    assert second.predecessor_alive() is alive, "and it is known before anything is claimed"
    first.close()
    second.close()


def test_a_stop_is_for_those_who_had_started_and_strange_records_are_skipped(group: Group) -> None:
    driver = shard.Ownership(group.settings, 1)
    driver.look(1)
    (owner,) = driver.claim().values()
    driver.announce({"number": 1})
    driver.stop()
    for odd in (b"[]", b"\xff"):
        group.write(b"status", odd, [], topic=group.settings.shard_topic, partition=0)
    group.flush()
    claims = shard.KafkaClaims(group.settings, 0, owner, Clock())
    assert claims.start() == {"number": 1}
    assert claims.news() == []
    driver.stop()
    until(lambda: claims.news() == [ports.Stop()], 10, "the stop is heard")
    driver.listen(0.5)
    assert driver.replaced_by is None
    claims.close()
    driver.close()


def test_a_new_owner_repeats_what_people_told_and_asks_are_heard(group: Group) -> None:
    told = controls.Controls(paused=True, target_per_second={"t": 5}, by="Ada", at=7)
    controls.write(group.settings, controls.Controls(paused_targets=("earlier",)))
    controls.write(group.settings, told)
    driver = shard.Ownership(group.settings, 1)
    driver.look(1)
    (owner,) = driver.claim().values()
    driver.announce({"number": 1})
    assert driver.told.controls == told
    claims = shard.KafkaClaims(group.settings, 0, owner, Clock())
    claims.start()
    assert claims.news() == [told]
    assert controls.read(group.settings) == told
    later = controls.Controls(by="Bob")
    controls.write(group.settings, later)
    ask = {"ask": "a", "topic": "t", "partition": 3, "offset": 9}
    journal = shard.Journal(group.settings)
    journal.write(0, controls.AGAIN, {**told.fields(), "version": 0})  # a repeat of an older one changes nothing
    journal.write(0, "ask", {"ask": "no offset"})
    journal.write(0, "ask", ask)
    heard: list[ports.News] = []

    def both() -> bool:
        heard.extend(claims.news())
        driver.listen(0.1)
        return len(heard) >= 2 and driver.told.controls == later

    until(both, 10, "wheel and driver hear it all")
    assert heard == [later, ports.Ask(id="a", topic="t", partition=3, offset=9)]
    assert controls.read(group.settings) == later
    claims.close()
    driver.close()
