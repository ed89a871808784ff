"""`almanac migrate`, `export` and `import` on a real Kafka: every schedule once, whatever happens on the way."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from conftest import MakeTopic
from typer.testing import CliRunner
from waiting import until

from almanac import client, errors, formats, imports, migrate, mover, scan, tail, topics, words
from almanac.broker import Broker
from almanac.cli import app
from almanac.client import Message
from almanac.formats import karafka as wire
from almanac.record import Headers, Record
from almanac.settings import Settings

LATER = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
SOON_MS = int(LATER.timestamp() * 1000)


@dataclass
class Place:
    """A group with a native topic, and a peer's topic beside it."""

    environ: dict[str, str]
    native: str
    peer: str
    admin: AdminClient

    def run(self, *arguments: str, code: int = 0, **more: Any) -> str:
        result = CliRunner().invoke(app, [*arguments], env=self.environ, **more)
        assert result.exit_code == code, result.output
        return result.stdout if code == 0 else result.output

    def migrate(self, form: str, *arguments: str) -> dict[str, Any]:
        command = ["migrate", "--from-topic", self.peer, "--format", form, "--to-topic", self.native, "--json"]
        shown: dict[str, Any] = json.loads(self.run(*command, *(arguments or ("--yes",))))
        return shown

    @property
    def settings(self) -> Settings:
        return Settings.load({}, self.environ)

    def read(self, topic: str | None = None) -> list[Record]:
        """The committed records of a topic, the native one unless told."""
        sources = scan.partitions(self.admin, [topic or self.native])
        return list(scan.read(self.settings, {}, scan.ends(self.admin, sources), lambda _: True))

    def waiting(self) -> dict[bytes, formats.Schedule]:
        """What the native topic has pending, folded by the letter."""
        kills: dict[tuple[int, bytes], int] = {}
        found: dict[tuple[int, bytes], words.Word] = {}
        topic_id = self.topic_id()
        for record in self.read():
            said, key = words.read(record, formats.named("auto"), topic_id), (record.partition, record.key or b"")
            if isinstance(said, words.Kill):
                kills[key] = max(said.version, kills.get(key, -1))
            else:
                assert isinstance(said, words.Word)
                found[key] = said
        pending = [(key, word.schedule) for key, word in found.items() if word.version > kills.get(key, -1)]
        assert len({key for (_, key), _ in pending}) == len(pending), "an id waits twice"
        return {key: schedule for (_, key), schedule in pending}

    def topic_id(self) -> str:
        return topics.topic_ids(self.admin, [self.native])[self.native]

    def ends(self, topic: str) -> dict[Any, int]:
        return tail.ends(self.admin, scan.partitions(self.admin, [topic]), IsolationLevel.READ_UNCOMMITTED)


@pytest.fixture
def place(broker: Broker, make_topic: MakeTopic, admin: AdminClient) -> Place:
    name = f"m{uuid.uuid4().hex[:8]}"
    native = make_topic("native", 3, {"cleanup.policy": "compact"})
    peer = make_topic("peer", 2, {"cleanup.policy": "compact"})
    environ = {"BOOTSTRAP_SERVERS": broker.bootstrap_servers, "GROUP_ID": name, "SCHEDULES_TOPICS": native}
    return Place(environ, native, peer, admin)


@pytest.fixture
def write(broker: Broker) -> Iterator[Callable[..., None]]:
    """Writes messages, and returns when Kafka has them."""
    producer = Producer({**broker.client_settings(), "partitioner": "murmur2_random", "linger.ms": 5})

    def written(*messages: Message, **more: Any) -> None:
        for message in messages:
            producer.produce(**message.arguments(), **more)
            producer.poll(0)
        assert producer.flush(30) == 0

    yield written
    producer.flush(5)


def content(number: int = 1) -> Message:
    return Message("videos", b"key%d" % number, b"video %d" % number, [("mine", b"%d" % number)])


def plain(number: int) -> Message:
    return replace(content(number), headers=[])


def at_partition(message: Message, partition: int) -> Message:
    return replace(message, partition=partition)


def sky_avro(name: str, number: int, topic: str) -> Message:
    return client.sky.schedule(content(number), name, LATER, topic, "avro")


def sky_json(name: str, number: int, topic: str) -> Message:
    return client.sky.schedule(content(number), name, LATER, topic, "json")


def karafka(name: str, number: int, topic: str) -> Message:
    return client.karafka.schedule(content(number), LATER, topic, id=name)


def etf1(name: str, number: int, topic: str) -> Message:
    return client.etf1.schedule(content(number), name, LATER, topic)


CANCELS: dict[str, Callable[[str, str], Message]] = {
    "etf1": client.etf1.cancel,
    "sky-avro": client.sky.cancel,
    "sky-json": client.sky.cancel,
    "karafka": client.karafka.cancel,
}
SCHEDULES = {"etf1": etf1, "sky-avro": sky_avro, "sky-json": sky_json, "karafka": karafka}


@pytest.mark.parametrize("form", SCHEDULES)
def test_what_waits_is_copied_and_nothing_else(form: str, place: Place, write: Callable[..., None]) -> None:
    make, cancel = SCHEDULES[form], CANCELS[form]
    write(*(make(f"id{n}", n, place.peer) for n in range(6)))
    write(make("id1", 11, place.peer), cancel("id2", place.peer), cancel("nobody", place.peer))
    write(Message(place.peer, b"id3", b"\xff garbage", [(wire.TYPE, b"?")]))
    before = place.ends(place.peer)

    dry = place.migrate(form, "--dry-run")
    assert (dry["applied"], dry["waiting"], dry["copied"], len(dry["unreadable"])) == (False, 5, 5, 1)
    assert place.read() == []
    assert f"{place.native}-moves" not in topics.descriptions(place.admin, [f"{place.native}-moves"])

    done = place.migrate(form)
    assert (done["applied"], done["copied"], done["refused"]) == (True, 5, [])
    waiting = place.waiting()
    assert {key: schedule.value for key, schedule in waiting.items()} == {
        b"id0": b"video 0", b"id1": b"video 11", b"id3": b"video 3", b"id4": b"video 4", b"id5": b"video 5",
    }  # fmt: skip
    first = waiting[b"id4"]
    assert (first.due, first.target, first.key) == (SOON_MS, "videos", b"key4")
    assert ("mine", b"4") in first.headers
    assert place.ends(place.peer) == before, "the peer's topic is never written"
    assert place.migrate(form)["copied"] == 0
    assert len(place.read()) == 5


def test_a_later_run_brings_what_was_said_since(place: Place, write: Callable[..., None]) -> None:
    write(*(sky_json(f"id{n}", n, place.peer) for n in range(4)))
    place.migrate("sky-json")
    fired = Message(place.peer, b"id1", None, [("schedule:expired", b"true")])  # the peer was not stopped in time
    write(sky_json("id0", 10, place.peer), fired, client.sky.cancel("id2", place.peer), sky_json("id9", 9, place.peer))
    done = place.migrate("sky-json")
    assert (done["copied"], done["cancelled"]) == (2, 2)
    assert {key: each.value for key, each in place.waiting().items()} == {
        b"id0": b"video 10", b"id3": b"video 3", b"id9": b"video 9",
    }  # fmt: skip
    assert len(place.read()) == 8


def test_a_later_run_goes_by_the_order_of_the_peers_log(place: Place, write: Callable[..., None]) -> None:
    write(*(sky_json(f"id{n}", n, place.peer) for n in range(3)))
    place.migrate("sky-json")
    at_once = client.sky.schedule(content(10), "id0", datetime(1970, 1, 1, tzinfo=UTC), place.peer, "json")
    early = int(time.time() * 1000) - 100_000  # by another producer's clock
    write(at_once)
    write(client.sky.cancel("id1", place.peer), sky_json("id2", 12, place.peer), timestamp=early)
    done = place.migrate("sky-json")
    assert (done["copied"], done["cancelled"], done["newer"]) == (2, 1, 0)
    waiting = place.waiting()
    assert {key: (each.due, each.value) for key, each in waiting.items()} == {
        b"id0": (0, b"video 10"),
        b"id2": (SOON_MS, b"video 12"),
    }
    # Somebody else has the last word of id2 in the native topic: time stamps tell, whatever we brought before.
    write(etf1("id2", 50, place.native))
    write(sky_json("id2", 13, place.peer), timestamp=early)
    assert place.migrate("sky-json")["newer"] == 1
    write(client.sky.cancel("id2", place.peer), timestamp=early)
    assert place.migrate("sky-json")["cancelled"] == 0
    write(client.sky.cancel("id2", place.peer))
    assert place.migrate("sky-json")["cancelled"] == 1
    assert list(place.waiting()) == [b"id0"]


def test_updates_and_cancels_go_where_the_copy_waits(place: Place, write: Callable[..., None], tmp_path: Path) -> None:
    ids = [f"id{n}" for n in range(12)]
    write(*(sky_json(name, 1, place.peer) for name in ids))
    place.migrate("sky-json")
    before = {record.key: record.partition for record in place.read()}
    place.admin.create_partitions([NewPartitions(place.native, 6)])[place.native].result(30)
    until(lambda: len(scan.partitions(place.admin, [place.native])) == 6, 30, "the topic has grown")
    # Offsets of partitions that are new are low: what users say there must be heard all the same.
    write(at_partition(client.etf1.cancel("id0", place.native), 5))
    write(*(client.sky.cancel(name, place.peer) for name in ids[1:6]), *(sky_json(n, 2, place.peer) for n in ids[6:]))
    write(sky_json("id0", 2, place.peer), timestamp=int(time.time() * 1000) - 100_000)
    done = place.migrate("sky-json")
    assert (done["copied"], done["cancelled"], done["newer"]) == (6, 5, 1)
    assert all(before[record.key] == record.partition for record in place.read() if record.partition != 5)
    assert {key: each.value for key, each in place.waiting().items()} == {
        b"id0": b"video 1", **{name.encode(): b"video 2" for name in ids[6:]},
    }  # fmt: skip
    file = tmp_path / "lines.jsonl"
    line = {"due": LATER.isoformat(), "target_topic": "videos", "value": "imported"}
    file.write_text("".join(json.dumps({"id": name, **line}) + "\n" for name in ids[6:]))
    for arguments in ([], ["--again"]):
        assert json.loads(place.run("import", str(file), "--json", *arguments))["imported"] == 6
    assert all(before[record.key] == record.partition for record in place.read() if record.value == b"imported")


def test_a_record_that_is_ahead_of_time_stops_nothing(
    place: Place, write: Callable[..., None], make_topic: MakeTopic, tmp_path: Path
) -> None:
    ahead = int(time.time() * 1000) + 5 * 3_600_000
    place.peer = make_topic("ahead", 1, {"message.timestamp.after.max.ms": str(10**12)})
    write(etf1("id1", 1, place.peer), timestamp=ahead)
    assert place.migrate("etf1")["copied"] == 1
    file = tmp_path / "lines.jsonl"
    line = {"id": "id2", "due": LATER.isoformat(), "target_topic": "videos", "value": "v", "timestamp_ms": ahead}
    file.write_text(json.dumps(line))
    assert json.loads(place.run("import", str(file), "--json"))["imported"] == 1
    assert set(place.waiting()) == {b"id1", b"id2"}
    assert all(record.timestamp < ahead for record in place.read())


def test_a_newer_word_in_the_native_topic_stays(place: Place, write: Callable[..., None]) -> None:
    write(*(sky_json(f"id{n}", n, place.peer) for n in range(3)), timestamp=1_000_000)
    write(etf1("id0", 50, place.native), client.etf1.cancel("id1", place.native))
    done = place.migrate("sky-json")
    assert (done["copied"], done["newer"]) == (1, 2)
    assert {key: each.value for key, each in place.waiting().items()} == {b"id0": b"video 50", b"id2": b"video 2"}


def test_what_cannot_be_said_natively_is_shown_and_left_out(place: Place, write: Callable[..., None]) -> None:
    nothing = client.karafka.schedule(replace(content(), value=None), LATER, place.peer, id="null")
    exact = client.karafka.schedule(replace(content(), partition=1), LATER, place.peer, id="exact").placed(2)
    write(nothing, exact, karafka("good", 1, place.peer))
    shown = place.run("migrate", "--from-topic", place.peer, "--format", "karafka", "--dry-run")
    assert "null value" in shown
    assert "partition 1" in shown
    done = place.migrate("karafka")
    assert (done["copied"], sorted(each["id"] for each in done["refused"])) == (1, ["exact", "null"])
    assert list(place.waiting()) == [b"good"]


def test_ids_that_a_peer_has_in_two_partitions_are_told(place: Place, write: Callable[..., None]) -> None:
    write(at_partition(etf1("twice", 1, place.peer), 0), timestamp=SOON_MS - 200_000_000)
    write(at_partition(etf1("twice", 2, place.peer), 1), timestamp=SOON_MS - 100_000_000)
    done = place.migrate("etf1")
    assert (done["copied"], [each["record"] for each in done["refused"]]) == (1, [f"{place.peer}/0/0"])
    assert place.waiting()[b"twice"].value == b"video 2"


def test_an_id_that_moved_to_another_partition_keeps_its_copy(place: Place, write: Callable[..., None]) -> None:
    write(at_partition(etf1("moved", 1, place.peer), 1))
    place.migrate("etf1")
    write(at_partition(etf1("moved", 2, place.peer), 0))
    write(at_partition(client.etf1.cancel("moved", place.peer), 1))
    place.migrate("etf1")
    assert place.waiting()[b"moved"].value == b"video 2"


def test_overdue_ones_are_counted_and_can_be_left_out(place: Place, write: Callable[..., None]) -> None:
    week = datetime.now(UTC) - timedelta(days=7)
    missed = client.etf1.schedule(content(), "old", week, place.peer, now=week)
    write(missed, timestamp=int(week.timestamp() * 1000) - 1000)
    assert place.migrate("etf1", "--dry-run")["overdue"] == 1
    left = place.migrate("etf1", "--dry-run", "--since-delta", "-1")
    assert (left["copied"], "SINCE_DELTA" in left["refused"][0]["reason"]) == (0, True)
    assert place.migrate("etf1")["copied"] == 1
    said = words.read(place.read()[0], formats.named("auto"), place.topic_id())
    assert isinstance(said, words.Word)
    assert said.schedule.due > said.record.timestamp, "it is not outdated: it fires at once"


def test_timers_get_ids_of_their_own(place: Place, write: Callable[..., None]) -> None:
    asked = [client.timers.schedule(plain(n), LATER, place.peer) for n in range(3)]
    mine = client.timers.schedule(plain(7), LATER, place.peer, id="mine")
    over = client.timers.schedule(plain(8), datetime.now(UTC) - timedelta(hours=1), place.peer)
    write(*(at_partition(each, 0) for each in (*asked, mine, over)))
    done = place.migrate("timers")
    assert (done["copied"], done["passed"]) == (4, 1)
    waiting = place.waiting()
    own = {f"{place.peer}/0/{n}".encode() for n in range(3)}
    assert set(waiting) == {*own, b"mine"}
    assert (waiting[b"mine"].due, waiting[b"mine"].key, waiting[b"mine"].value) == (SOON_MS, b"key7", b"video 7")


@pytest.mark.parametrize("empty", [False, True])
def test_timers_that_fall_due_between_two_runs_are_copied(
    empty: bool, place: Place, write: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run is killed in partition 0, or partition 1 has nothing yet; the next begins ten minutes later."""
    began = int(time.time() * 1000)
    due = datetime.fromtimestamp(began / 1000 + 300, UTC)

    def run(now: int) -> migrate.Report:
        return migrate.Migration(place.settings, place.peer, "timers", place.native, now).copy(
            lambda *_: lambda _: None
        )

    write(*(at_partition(client.timers.schedule(plain(n), due, place.peer), 0) for n in range(25)))
    others = [at_partition(client.timers.schedule(plain(n), due, place.peer), 1) for n in range(3)]
    if empty:
        assert run(began).copied == 25
    else:
        write(*others)
        with pytest.raises(Crash), dying(monkeypatch, "before"):
            run(began)
    write(*(others if empty else []))
    report = run(began + 600_000)
    assert (report.passed, len(place.waiting())) == (0, 28)
    assert report.overdue == report.copied > 0
    assert run(began + 700_000).copied == 0


def test_a_first_run_with_nothing_to_copy_is_the_first_all_the_same(place: Place, write: Callable[..., None]) -> None:
    place.migrate("timers")
    write(client.timers.schedule(plain(1), datetime.now(UTC) + timedelta(seconds=1), place.peer))
    now = int(time.time() * 1000) + 600_000
    work = migrate.Migration(place.settings, place.peer, "timers", place.native, now)
    assert (work.look(lambda *_: lambda _: None).passed, work.copy(lambda *_: lambda _: None).copied) == (0, 1)


def test_a_record_of_the_future_stops_it(place: Place, write: Callable[..., None]) -> None:
    built = karafka("id", 1, place.peer)
    newer: Headers = [(n, b"2.0.0" if n == wire.VERSION else v) for n, v in built.headers]
    write(replace(built, headers=newer))
    said = place.run("migrate", "--from-topic", place.peer, "--format", "karafka", "--yes", code=1)
    assert "newer version of Almanac" in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--from-topic", "no-such-topic", "--format", "etf1"], "does not exist"),
        (["--from-topic", "PEER", "--format", "morse"], "known are"),
        (["--from-topic", "NATIVE", "--format", "etf1"], "in SCHEDULES_TOPICS"),
        (["--from-topic", "PEER", "--format", "etf1", "--to-topic", "x"], "native schedules topic"),
    ],
)
def test_migrate_refuses(arguments: list[str], says: str, place: Place) -> None:
    named = [place.peer if each == "PEER" else place.native if each == "NATIVE" else each for each in arguments]
    assert says in place.run("migrate", *named, "--yes", code=2)


# Exactly once


class Crash(BaseException):
    """As if the process had been killed."""


class Dying(Producer):
    """A producer whose process is killed at its third commit."""

    commits = 0
    dies = "before"

    def commit_transaction(self, *arguments: Any) -> None:
        Dying.commits += 1
        if Dying.commits == 3 and Dying.dies == "before":
            self.flush()  # the records are in the log, the transaction is open
            raise Crash
        super().commit_transaction(*arguments)
        if Dying.commits == 3 and Dying.dies == "after":
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the answer was lost"))


@contextmanager
def dying(monkeypatch: pytest.MonkeyPatch, dies: str) -> Iterator[None]:
    """Writes ten a transaction, and does not survive the third."""
    monkeypatch.setattr(mover, "BATCH", 10)
    with monkeypatch.context() as patch:
        patch.setattr(mover, "Producer", Dying)
        patch.setattr(Dying, "commits", 0)
        patch.setattr(Dying, "dies", dies)
        yield
        assert Dying.commits == 3


def killed(place: Place, monkeypatch: pytest.MonkeyPatch, dies: str, *command: str) -> None:
    """Runs a command in that way."""
    with dying(monkeypatch, dies), suppress(Crash):
        assert CliRunner().invoke(app, command, env=place.environ).exit_code == 7


def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """All copies have fired and the cleaner has taken them: the markers alone tell what was done."""
    monkeypatch.setattr(mover.Mover, "spoken", lambda *_: {})


@pytest.mark.parametrize("dies", ["before", "after"])
def test_killed_at_a_commit_and_run_again(
    dies: str, place: Place, write: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(*(sky_json(f"id{n}", n, place.peer) for n in range(100)))
    killed(place, monkeypatch, dies, "migrate", "--from-topic", place.peer, "--format", "sky-json", "--yes")
    forgotten(monkeypatch)
    # Said after the kill, before the next run: an update of what was copied, and of what was not.
    write(sky_json("id0", 1000, place.peer), sky_json("id99", 1099, place.peer))
    place.migrate("sky-json")
    place.migrate("sky-json")
    counts = Counter(record.key for record in place.read())
    twice = {b"id0", b"id99"}
    assert {key for key, number in counts.items() if number != 1} <= twice, "copied twice"
    waiting = place.waiting()
    assert len(waiting) == 100
    assert (waiting[b"id0"].value, waiting[b"id99"].value) == (b"video 1000", b"video 1099")


@pytest.mark.long
def test_a_process_that_is_killed_and_run_again(place: Place, write: Callable[..., None], tmp_path: Path) -> None:
    number = 30_000
    write(*(sky_json(f"id{n}", n, place.peer) for n in range(number)))
    command = [sys.executable, "-m", "almanac", "migrate", "--from-topic", place.peer, "--format", "sky-json", "--yes"]
    environ = {**os.environ, **place.environ}
    process = subprocess.Popen(command, env=environ, cwd=tmp_path, stdout=subprocess.DEVNULL)
    until(lambda: sum(place.ends(place.native).values()) > 0, 60, "it writes")
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    assert 0 < sum(place.ends(place.native).values()) < number, "it was killed in the middle"
    place.migrate("sky-json")
    counts = Counter(record.key for record in place.read())
    assert (len(counts), set(counts.values())) == (number, {1})


def test_an_earlier_run_that_lives_on_is_shut_out(place: Place, write: Callable[..., None]) -> None:
    write(*(sky_json(f"id{n}", n, place.peer) for n in range(3)))
    first = mover.Mover(place.settings, place.native)
    first.fence()
    place.migrate("sky-json")
    with pytest.raises(Exception, match="taken over"):
        first.write([], "migrate x/0", {})
    assert len(place.read()) == 3


class Doubtful(Producer):
    """A producer that hears of a lost connection during its first commit, and gets its answer all the same."""

    made = 0
    fails = False

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        Doubtful.made += 1
        self._config = config

    def commit_transaction(self, *arguments: Any) -> None:
        super().commit_transaction(*arguments)
        if Doubtful.fails and Doubtful.made == 1:
            self._config["error_cb"](KafkaError(KafkaError._TRANSPORT, "the connection was lost"))


@pytest.mark.parametrize("why", ["slow", "transport"])
def test_a_producer_in_doubt_is_replaced(
    why: str, place: Place, write: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(*(at_partition(sky_json(f"id{n}", n, place.peer), 0) for n in range(25)))
    monkeypatch.setattr(mover, "BATCH", 10)
    monkeypatch.setattr(mover, "Producer", Doubtful)
    monkeypatch.setattr(Doubtful, "made", 0)
    monkeypatch.setattr(Doubtful, "fails", why == "transport")
    monkeypatch.setattr(mover, "SLOW", -1.0 if why == "slow" else 1e9)
    assert place.migrate("sky-json")["copied"] == 25
    # Three transactions, and one producer before and after all of them.
    assert Doubtful.made == (4 if why == "slow" else 3)
    assert Counter(record.key for record in place.read()) == Counter(f"id{n}".encode() for n in range(25))


def test_who_was_in_doubt_does_not_shut_out_who_came_later(
    place: Place, write: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(*(sky_json(f"id{n}", n, place.peer) for n in range(3)))
    first = mover.Mover(place.settings, place.native)
    first.fence()
    first.markers()
    with monkeypatch.context() as patch:
        patch.setattr(mover, "SLOW", -1.0)
        first.write([], "migrate x/0", {})
    place.migrate("sky-json")
    with pytest.raises(errors.AlmanacError, match="taken over"):
        first.write([], "migrate x/0", {})
    first.close()
    assert place.migrate("sky-json")["copied"] == 0


# Export and import


def test_an_export_of_no_topic_leaves_the_file(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "schedules.jsonl"
    file.write_text("before")
    place.environ["SCHEDULES_TOPICS"] = f"{place.native},no-such-topic"
    assert "the topic no-such-topic does not exist" in place.run("export", "--output", str(file), code=2)
    assert file.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == [file.name]


def test_a_file_whose_times_have_come_can_be_run_again(place: Place, tmp_path: Path) -> None:
    began = datetime.now(UTC) - timedelta(hours=2)
    line = {"due": (began + timedelta(hours=1)).isoformat(), "target_topic": "videos", "value": "v"}
    file = tmp_path / "lines.jsonl"
    file.write_text("".join(json.dumps({"id": f"id{n}", **line}) + "\n" for n in range(3)))
    with file.open("rb") as opened:
        work = imports.Import(place.settings, opened, place.native, int(began.timestamp() * 1000))
        work.write(work.check(False, lambda *_: lambda _: None), False, lambda *_: lambda _: None)
    done = json.loads(place.run("import", str(file), "--json"))
    assert (done["before"], done["imported"], done["refused"]) == (3, 0, [])
    said = place.run("import", str(file), "--again", code=2)
    assert "line 1: due" in said
    assert "This run has imported nothing" in said
    assert len(place.read()) == 3


def test_what_was_exported_can_be_imported_once(
    place: Place, write: Callable[..., None], make_topic: MakeTopic, tmp_path: Path
) -> None:
    odd = Message("videos", b"\xff", b"\x00\xff", [("a", None), ("a", b"\xfe"), ("b", b"")])
    write(*(etf1(f"id{n}", n, place.native) for n in range(5)), client.etf1.schedule(odd, b"\xfe", LATER, place.native))
    write(etf1("id1", 11, place.native), client.etf1.cancel("id2", place.native))
    file = tmp_path / "schedules.jsonl"
    told = json.loads(place.run("export", "--output", str(file), "--json"))
    assert told["schedules"] == 5
    assert place.run("export").splitlines() == file.read_text().splitlines()
    before = place.waiting()

    elsewhere = Place(place.environ, make_topic("other", 2, {"cleanup.policy": "compact"}), place.peer, place.admin)
    elsewhere.environ = {**place.environ, "SCHEDULES_TOPICS": elsewhere.native}
    for imported, earlier in ((5, 0), (0, 5)):
        done = json.loads(elsewhere.run("import", str(file), "--json"))
        assert (done["lines"], done["imported"], done["before"], done["refused"]) == (5, imported, earlier, [])
    assert len(elsewhere.read()) == 5
    after = elsewhere.waiting()
    assert set(after) == set(before)
    for key, schedule in before.items():
        copy = after[key]
        assert (copy.due, copy.target, copy.key, copy.value) == schedule[:3] + schedule[4:5]
        own = [header for header in schedule.headers if not header[0].startswith("scheduler-")]
        assert [header for header in copy.headers if not header[0].startswith("scheduler-")] == own
    # The same schedules in another file: the topic has heard of them.
    file.write_text("\n".join(reversed(file.read_text().splitlines())))
    assert json.loads(elsewhere.run("import", str(file), "--json"))["newer"] == 5
    write(client.etf1.cancel("id0", elsewhere.native))
    assert b"id0" not in elsewhere.waiting()
    assert json.loads(elsewhere.run("import", str(file), "--again", "--json"))["imported"] == 5
    assert b"id0" in elsewhere.waiting()


def test_bad_lines_are_named_and_stop_it_or_not(place: Place, tmp_path: Path) -> None:
    good = {"due": LATER.isoformat(), "target_topic": "videos", "value": "v"}
    file = tmp_path / "lines.jsonl"
    ids = [json.dumps({"id": name, **good}) for name in ("a", "", "b")]
    null = json.dumps({**good, "id": "c", "value": None})
    file.write_text("\n".join([ids[0], "", "nonsense", *ids[1:], null]))
    said = place.run("import", str(file), code=2)
    assert "line 3: no JSON" in said
    assert "3 of 5 lines are bad" in said
    assert place.read() == []
    assert json.loads(place.run("import", str(file), "--dry-run", "--json"))["applied"] is False
    done = json.loads(place.run("import", str(file), "--on-bad-line", "skip", "--json"))
    assert (done["imported"], [each["line"] for each in done["refused"]]) == (2, [3, 4, 6])
    assert set(place.waiting()) == {b"a", b"b"}


def test_stdin_is_imported_once_too(place: Place) -> None:
    line = json.dumps({"id": "a", "due": LATER.isoformat(), "target_topic": "videos", "value": "v"})
    assert "1 imported" in place.run("import", "-", input=f"{line}\n")
    assert "0 imported" in place.run("import", "-", input=f"{line}\n")
    assert len(place.read()) == 1


def test_an_import_that_is_killed_goes_on(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = {"due": LATER.isoformat(), "target_topic": "videos", "value": "v", "timestamp_ms": int(time.time() * 1000)}
    file = tmp_path / "lines.jsonl"
    file.write_text("".join(json.dumps({"id": f"id{n}", **good}) + "\n" for n in range(55)))
    killed(place, monkeypatch, "before", "import", str(file))
    forgotten(monkeypatch)
    done = json.loads(place.run("import", str(file), "--json"))
    assert (done["before"], done["imported"]) == (20, 35)
    assert Counter(record.key for record in place.read()) == Counter(f"id{n}".encode() for n in range(55))


def test_a_killed_import_brings_the_rest_though_its_times_have_come(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines without a time stamp; the last one is an update of the first."""
    due = (datetime.now(UTC) + timedelta(minutes=5)).isoformat()
    lines = [{"id": f"id{n % 24}", "due": due, "target_topic": "videos", "value": f"video {n}"} for n in range(25)]
    file = tmp_path / "lines.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    killed(place, monkeypatch, "before", "import", str(file))
    with file.open("rb") as opened:
        work = imports.Import(place.settings, opened, place.native, int(time.time() * 1000) + 600_000)
        report = work.check(False, lambda *_: lambda _: None)
        work.write(report, False, lambda *_: lambda _: None)
    assert (report.refused, report.before, report.imported, report.newer) == ([], 20, 5, 0)
    waiting = place.waiting()
    assert (len(waiting), waiting[b"id0"].value) == (24, b"video 24")
