"""`almanac migrate` on a real Kafka: what waits is copied, and what is said later follows."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewPartitions, NewTopic
from conftest import MakeTopic
from moving import (
    CANCELS,
    LATER,
    SCHEDULES,
    SOON_MS,
    Crash,
    Place,
    at_partition,
    content,
    dying,
    etf1,
    karafka,
    plain,
    sky_json,
)
from waiting import until

from almanac import client, formats, migrate, mover, scan, topics, words
from almanac.broker import Broker
from almanac.client import Message
from almanac.formats import karafka as wire
from almanac.record import Headers


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
    # The same in runs of their own: the cancel is about the other partition's id.
    write(at_partition(client.etf1.cancel("moved", place.peer), 1))
    place.migrate("etf1")
    assert place.waiting()[b"moved"].value == b"video 2"
    write(at_partition(client.etf1.cancel("moved", place.peer), 0))
    assert place.migrate("etf1")["cancelled"] == 1
    assert place.waiting() == {}


@contextmanager
def open_transaction(broker: Broker, topic: str, partition: int = 0) -> Iterator[Producer]:
    """Somebody's, in that partition."""
    other = Producer({**broker.client_settings(), "transactional.id": f"other-{topic}"})
    other.init_transactions(30)
    other.begin_transaction()
    other.produce(topic, b"not said yet", b"somebody", partition)
    other.flush(30)
    try:
        yield other
    finally:
        other.abort_transaction(30)


def test_what_an_open_transaction_hides_in_the_native_topic_is_waited_for(
    broker: Broker, place: Place, write: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "lines.jsonl"
    line = {"id": "a", "due": LATER.isoformat(), "target_topic": "videos", "value": "v", "timestamp_ms": 1_000_000}
    file.write_text(json.dumps(line))
    write(sky_json("a", 1, place.peer))
    monkeypatch.setattr(mover, "SETTLE", 0.2)
    with open_transaction(broker, place.native):
        write(at_partition(etf1("a", 50, place.native), 0))  # newer than both
        for command in (
            ["migrate", "--from-topic", place.peer, "--format", "sky-json", "--yes"],
            ["import", str(file)],
        ):
            assert f"open on {place.native}/0" in place.run(*command, code=1)
    assert place.migrate("sky-json")["newer"] == 1
    assert json.loads(place.run("import", str(file), "--json"))["newer"] == 1
    assert place.waiting()[b"a"].value == b"video 50"


def test_what_an_open_transaction_hides_in_the_peers_topic_is_told(
    broker: Broker, place: Place, write: Callable[..., None]
) -> None:
    write(at_partition(etf1("before", 1, place.peer), 0))
    with open_transaction(broker, place.peer):
        write(at_partition(etf1("behind", 2, place.peer), 0))
        done = place.migrate("etf1")
        assert (done["copied"], done["hidden"]) == (1, 2)
        assert "open transaction" in place.run("migrate", "--from-topic", place.peer, "--format", "etf1", "--dry-run")
    done = place.migrate("etf1")
    assert (done["copied"], done["hidden"]) == (1, 0)
    assert set(place.waiting()) == {b"before", b"behind"}


def test_another_format_than_the_topics_is_refused(place: Place, write: Callable[..., None]) -> None:
    write(sky_json("a", 1, place.peer), client.sky.cancel("b", place.peer))
    for arguments in (["--dry-run"], ["--yes"]):
        said = place.run("migrate", "--from-topic", place.peer, "--format", "sky-avro", *arguments, code=2)
        assert "none of the 1 records" in said
    assert f"{place.native}-moves" not in topics.descriptions(place.admin, [f"{place.native}-moves"])
    assert place.migrate("sky-json")["copied"] == 1
    write(sky_json("a", 2, place.peer))
    said = place.run("migrate", "--from-topic", place.peer, "--format", "sky-avro", "--yes", code=2)
    assert "earlier runs have read" in said
    assert place.migrate("sky-json")["copied"] == 1
    assert place.waiting()[b"a"].value == b"video 2"


def test_what_is_as_large_as_the_peers_topic_takes_is_copied(place: Place, write: Callable[..., None]) -> None:
    value = b"v" * (topics.MESSAGE_BYTES - 2_000)
    write(client.etf1.schedule(replace(plain(1), value=value), "large", LATER, place.peer))
    assert place.migrate("etf1")["copied"] == 1
    assert place.waiting()[b"large"].value == value


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


def test_timers_of_a_topic_that_was_made_anew_replace_none(place: Place, write: Callable[..., None]) -> None:
    write(at_partition(client.timers.schedule(plain(1), LATER, place.peer), 0))
    place.migrate("timers")
    place.admin.delete_topics([place.peer])[place.peer].result(30)
    until(lambda: place.peer not in topics.topic_ids(place.admin, [place.peer]), 30, "the topic is gone")
    place.admin.create_topics([NewTopic(place.peer, 2)])[place.peer].result(30)
    until(lambda: place.peer in topics.topic_ids(place.admin, [place.peer]), 30, "the topic is there again")
    write(at_partition(client.timers.schedule(plain(2), LATER, place.peer), 0))
    for _ in range(2):
        place.migrate("timers")
    anew = topics.topic_ids(place.admin, [place.peer])[place.peer]
    assert {key: each.value for key, each in place.waiting().items()} == {
        f"{place.peer}/0/0".encode(): b"video 1", f"{place.peer}/{anew}/0/0".encode(): b"video 2",
    }  # fmt: skip


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
