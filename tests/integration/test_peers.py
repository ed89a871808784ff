"""A scheduler on topics of every format: what the peers' users rely on, end to end."""

import json
import os
import zlib
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import peers
import pytest
from engine import Group, Scheduler, now
from typer.testing import CliRunner
from waiting import until

from almanac import client, topics
from almanac.broker import Broker
from almanac.cli import app
from almanac.record import Headers

pytestmark = pytest.mark.long  # what each format delivers: test_behaviour

NOON = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
HALTS = 2  # the partition that a record of the future goes to
assert zlib.crc32(b"together") % 4 != HALTS


class Peers(Group):
    """A group with a topic of each format."""

    def __init__(self, servers: str, folder: Path) -> None:
        super().__init__(servers, folder, page_length="5s")
        self.avro, self.json = f"{self.name}-avro", f"{self.name}-json"
        self.tell(schedules_topics=f"{self.topic}=karafka, {self.avro}=sky-avro, {self.json}=sky-json")
        topics.ensure(self.admin, self.settings)
        self._reading = self.read(self.settings.states_topics[self.topic])
        self._states: dict[int, dict[str, Any]] = {}

    def rails(self, built: client.Message) -> None:
        """A record of karafka's client."""
        self.write(built.key, built.value, built.headers, self.topic, partition=built.placed(4).partition or 0)

    def states(self) -> dict[int, dict[str, Any]]:
        """The newest state of each partition of the karafka topic."""
        for record in self._reading.more():
            said = json.loads(zlib.decompress(record.value or b""))
            assert (record.key, record.headers) == (f"{said['state']}_state".encode(), [("zlib", b"true")])
            self._states[record.partition] = said
        return self._states

    def daily(self) -> Counter[str]:
        return sum((Counter(state["daily"]) for state in self.states().values()), Counter())

    def doctor(self) -> list[dict[str, str]]:
        """What it says of the partitions."""
        checks = json.loads(CliRunner().invoke(app, ["doctor", "--json"], env=self._environment).stdout)
        return [check for check in checks if check["name"] == "partitions"]


@pytest.fixture(scope="module")
def group(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peers]:
    with Peers(broker.bootstrap_servers, tmp_path_factory.mktemp("peers")) as made:
        yield made


@pytest.fixture(scope="module")
def scheduler(group: Peers) -> Scheduler:
    return group.start().up()


def schedule(group: Peers, name: str, at: datetime, **more: Any) -> None:
    content = client.Message(group.target, name.encode(), **{"value": name.encode(), **more})
    group.rails(client.karafka.schedule(content, at, group.topic, name, partition_key=b"together"))


def test_every_format_is_delivered(group: Peers, scheduler: Scheduler) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=2)
    due = now() + 3_000
    group.write(b"a", peers.sky_avro(due, group.target, b"avro", None, {"h": b"1"}), [], group.avro)
    group.write(b"j", peers.sky_json(due - 86_400_000, group.target, b"json", b"v", None), [], group.json)
    schedule(group, "null", soon, value=None)
    schedule(group, "placed", soon, partition_key=b"user-1")
    group.flush()
    found = {record.key: record for record in group.read().count(4)}
    assert (found[b"avro"].value, found[b"avro"].headers) == (None, [("h", b"1")])
    assert (found[b"json"].value, found[b"json"].headers) == (b"v", [])
    assert found[b"null"].value is None
    assert found[b"placed"].partition == zlib.crc32(b"user-1") % 4
    assert found[b"avro"].at >= due


def test_the_states_count_exactly_what_is_due_on_each_day(group: Peers, scheduler: Scheduler) -> None:
    days = [NOON + timedelta(days=n) for n in range(4)]
    for n in range(30):
        schedule(group, f"s{n}", days[1 + n % 3])
    group.flush()
    group.booked()
    for n in range(10):
        group.rails(client.karafka.cancel(f"s{n}", group.topic, b"together"))
    schedule(group, "s10", days[3])  # was due on the second day: an update
    group.flush()
    wanted = {day.date().isoformat(): n for day, n in zip(days[1:], (6, 6, 8), strict=True)}
    until(lambda: group.daily() == wanted, 60, f"the states say {wanted}")
    assert {state["state"] for state in group.states().values()} == {"loaded"}
    ends = group.ends([group.topic])
    assert all(state["offsets"]["high"] < ends[group.topic, p] for p, state in group.states().items())
    group.booked()
    until(lambda: group.daily() == wanted, 60, f"the states say {wanted} when the book knows it too")


def test_a_partition_that_halts_is_shown_and_stops_no_other(group: Peers, scheduler: Scheduler) -> None:
    assert [check["status"] for check in group.doctor()] == ["ok"]
    headers = peers.karafka(now() // 1000, group.target, b"future", None, None, [])
    newer: Headers = [(name, b"2.0.0" if value == b"1.0.0" else value) for name, value in headers]
    group.write(b"future", b"", newer, group.topic, partition=HALTS)
    group.write(b"behind", b"", headers, group.topic, partition=HALTS)
    group.flush()
    until(lambda: group.states()[HALTS]["state"] == "incompatible", 60, "the states say so")
    assert {state["state"] for p, state in group.states().items() if p != HALTS} == {"loaded"}
    (check,) = group.doctor()
    assert check["status"] == "fail"
    assert f"{group.topic}/{HALTS} is incompatible" in check["found"]
    assert "newer Almanac" in check["advice"]
    until(lambda: "INCOMPATIBLE, upgrade Almanac" in scheduler.output, 30, "the status line says so")
    schedule(group, "still", datetime.now(UTC), partition=2)
    group.flush()
    got = group.read().until(lambda got: any(record.key == b"still" for record in got), 30, "other partitions fire")
    assert b"future" not in {record.key for record in got}
    assert scheduler.stop() == 0
    until(lambda: {state["state"] for state in group.states().values()} == {"stopped"}, 10, "all are stopped")


def test_it_goes_on_by_itself_after_an_upgrade(group: Peers, tmp_path: Path) -> None:
    """The newer Almanac is this one that believes to understand more; Spark's workers believe it too."""
    newer = "from almanac.formats import karafka\nkarafka.KNOWN = (2, 0, 0)\n"
    (tmp_path / "sitecustomize.py").write_text(newer, encoding="utf-8")
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    group.start(pythonpath=path).up()
    got = group.read().until(lambda got: len([each for each in got if each.key == b"future"]) == 2, 30, "what waited")
    sources = [each.header("schedule_source_key") for each in got if each.key == b"future"]
    assert sources == [b"future", b"behind"], "by due time, then by offset"
    assert [check["status"] for check in group.doctor()] == ["ok"]
    until(lambda: {state["state"] for state in group.states().values()} == {"loaded"}, 60, "all partitions are loaded")
