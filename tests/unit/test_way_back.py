"""The way back: whoever goes back to a peer finds it reading our topic rightly, compacted or not.

The peers' rules, in a few lines each, as their programs have them: what waits after a topic was read to its end. They
know nothing of our headers. Where a peer itself is wrong (an update between a fire and its tombstone, garbage that
cancels), the log that we leave must say the right thing all the same: it ends in the truth (rule 4).
"""

import base64
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory import TOPIC, Rig, Turning

from almanac import client
from almanac.client import Message
from almanac.formats import sky_avro
from almanac.record import Headers, Record, first


class Said(NamedTuple):
    """What a peer would deliver, and when."""

    due: int  # epoch ms
    target: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: bytes | None = None
    partition_key: bytes | None = None


Pending = dict[bytes, Said]
"""By id."""

KEYS = (b"a", b"b", b"c")


# The peers' rules


def theirs(record: Record) -> Headers:
    """All headers but ours: docs/moving.md tells which of ours a repeat bears."""
    return [header for header in record.headers if not header[0].startswith("almanac-")]


def etf1(log: list[Record]) -> Pending:
    """The Go program: a null value deletes, and anything else is a schedule: what is no number is the epoch 0 to it."""
    found: Pending = {}
    for record in log:
        headers, id_ = first(record.headers), record.key or b""
        text = headers.get("scheduler-epoch") or b""
        epoch = int(text) if re.fullmatch(rb"[+-]?[0-9]{1,18}", text) else 0
        if record.value is None or epoch < 0 or not id_.strip():
            found.pop(id_, None)
        else:
            target = (headers.get("scheduler-target-topic") or b"").decode()
            key = headers.get("scheduler-target-key")
            found[id_] = Said(epoch * 1000, target, key, record.value, theirs(record))
    return found


def sky(read: Callable[[bytes], Said]) -> Callable[[list[Record]], Pending]:
    """The Scala program: a null value deletes, and so does what it cannot decode."""

    def pending(log: list[Record]) -> Pending:
        found: Pending = {}
        for record in log:
            found.pop(record.key or b"", None)
            if record.value is not None:
                try:
                    found[record.key or b""] = read(record.value)
                except Exception:
                    continue
        return found

    return pending


def read_avro(value: bytes) -> Said:
    said = fastavro.schemaless_reader(io.BytesIO(value), json.loads(sky_avro.SCHEMA), None)
    assert isinstance(said, dict)
    return Said(said["time"], said["topic"], said["key"], said["value"], list(said["headers"].items()))


def read_json(value: bytes) -> Said:
    said = json.loads(value)
    content = None if said["value"] is None else base64.b64decode(said["value"])
    headers: Headers = [(name, base64.b64decode(text)) for name, text in said["headers"].items()]
    return Said(said["time"], said["topic"], base64.b64decode(said["key"]), content, headers)


GRACE = 3_600  # seconds: what is due longer before the latest tombstone's time, karafka's program takes for dispatched


def karafka(log: list[Record]) -> Pending:
    """The Ruby program: it stops at a record without a schema version; what is no schedule deletes."""
    found: Pending = {}
    latest = 0
    for record in log:
        headers, id_ = first(record.headers), record.key or b""
        assert headers["schedule_schema_version"] == b"1.0.0", "it would stop here"
        if headers["schedule_source_type"] == b"schedule":
            epoch = int(headers["schedule_target_epoch"] or b"")
            if epoch >= latest - GRACE:
                target = (headers["schedule_target_topic"] or b"").decode()
                asked = [headers.get(f"schedule_target_{name}") for name in ("key", "partition", "partition_key")]
                found[id_] = Said(epoch * 1000, target, asked[0], record.value, theirs(record), *asked[1:])
        else:
            found.pop(id_, None)
            if headers["schedule_source_type"] == b"tombstone":
                latest = max(latest, int(headers["schedule_target_epoch"] or b""))
                assert latest > 0
    return found


# What users write, and garbage of each format


def at(due: int) -> datetime:
    return datetime.fromtimestamp(due / 1000, UTC)


def content(form: str, number: int, target: str = "target") -> Message:
    """Whatever can be delivered: null and empty values, keys and headers, karafka's partitions; see `identity`."""
    values = [b"v%d" % number, b"", *([None] if form != "etf1" else [])]
    headers: list[Headers] = [[("n", b"%d" % number), ("empty", b""), ("naïve", b"\xff")], []]
    if form in ("etf1", "karafka"):  # in the others they are a map
        headers.append([("n", b"%d" % number), ("twice", b"1"), ("null", None), ("twice", b"2")])
    chosen = headers[number % len(headers)]
    key = b"k%d" % number if number % 2 or not chosen else (None, b"")[number % 4 // 2]
    made = Message(target, key, values[number // 3 % len(values)], chosen)
    if form == "karafka" and number % 4 == 1:
        return replace(made, partition=0)
    return replace(made, partition_key=b"p%d" % number) if form == "karafka" and number % 4 == 2 else made


def identity(key: bytes | None, headers: Headers) -> bytes | None:
    """Which content that is: its key or a header tells."""
    return first(headers).get("n") or (key or b"").removeprefix(b"k")


def etf1_schedule(said: Message, id_: bytes, due: int) -> Message:
    # the client library refuses an empty value, as the peer's does; the format does not
    return replace(client.etf1.schedule(replace(said, value=b"v"), id_, at(due), TOPIC, LONG_AGO), value=said.value)


Make = Callable[[Message, bytes, int], Message]
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
PEERS: dict[str, tuple[Callable[[list[Record]], Pending], Make, Callable[[bytes, str], Message], Message]] = {
    "etf1": (
        etf1,
        etf1_schedule,
        client.etf1.cancel,
        Message(TOPIC, b"", b"?", [("scheduler-epoch", b"soon")]),
    ),
    "sky-avro": (
        sky(read_avro),
        lambda said, id_, due: client.sky.schedule(said, id_, at(due), TOPIC),
        client.sky.cancel,
        Message(TOPIC, b"", b"?"),
    ),
    "sky-json": (
        sky(read_json),
        lambda said, id_, due: client.sky.schedule(said, id_, at(due), TOPIC, "json"),
        client.sky.cancel,
        Message(TOPIC, b"", b"?"),
    ),
    "karafka": (
        karafka,
        lambda said, id_, due: client.karafka.schedule(said, at(due), TOPIC, id=id_, now=LONG_AGO),
        client.karafka.cancel,
        Message(TOPIC, b"", b"?", [("schedule_schema_version", b"1.0.0"), ("schedule_source_type", b"cancel")]),
    ),
}


class Life:
    """A wheel on a topic of one format, and users who write to it, also at the worst moment."""

    def __init__(self, form: str) -> None:
        self._form = form
        self.reads, self._make, self._cancel, self._garbage = PEERS[form]
        self.rig = Rig(form=form)
        self.written = 0
        self.truth: Pending = {}  # the users' last words; what fired of them is taken out at the end
        self.wheel: Turning = self.rig.wheel().begin()

    def write(self, message: Message) -> None:
        self.rig.kafka.write(TOPIC, message.key, message.value, list(message.headers))

    def schedule(self, key: bytes, seconds: int, target: str = "target") -> None:
        due = (int(self.rig.clock.wall()) // 1000 + seconds) * 1000
        self.written += 1
        asked = content(self._form, self.written, target)
        made = self._make(asked, key, due)
        if self._form.startswith("sky"):  # which knows no null key
            self.truth[key] = Said(due, target, asked.key or b"", asked.value, list(asked.headers))
        else:
            named, value = first(made.headers), asked.value
            if self._form == "karafka":
                value = value or b""  # a null value would not outlive the cleaner: we repeat it as an empty one
            asked_for = (named.get("schedule_target_partition"), named.get("schedule_target_partition_key"))
            self.truth[key] = Said(due, target, asked.key, value, list(made.headers), *asked_for)
        self.write(made)

    def cancel(self, key: bytes) -> None:
        self.truth.pop(key, None)
        self.write(self._cancel(key, TOPIC))

    def garbage(self, key: bytes) -> None:
        self.write(replace(self._garbage, key=key))

    def expected(self) -> Pending:
        fired = {identity(record.key, record.headers) for record in self.rig.kafka.read("target")}
        return {id_: said for id_, said in self.truth.items() if identity(said.key, said.headers) not in fired}

    def agree(self) -> None:
        """What the peer would find now is the truth, and stays it when the cleaner has been here."""
        log, end = self.rig.kafka.log(TOPIC), -1
        while log.end != end:  # a wheel that is in the middle of something has not said its last word
            end = log.end
            self.wheel.run_for(300)
        assert self.reads(log.committed()) == self.expected()
        log.compact()
        assert self.reads(log.committed()) == self.expected()


@pytest.mark.parametrize("form", PEERS)
def test_fired_cancelled_updated_and_waiting(form: str) -> None:
    life = Life(form)
    for key, seconds in zip(KEYS, (1, 2, 50), strict=True):
        life.schedule(key, seconds)
    life.schedule(b"cancelled", 2)
    life.cancel(b"cancelled")
    life.schedule(b"later", 100)
    life.wheel.run_for(2_500)
    life.schedule(b"later", 200)
    life.agree()
    assert set(life.expected()) == {b"c", b"later"}
    assert len(life.rig.kafka.fired()) == 2


@pytest.mark.parametrize("form", PEERS)
def test_an_update_between_a_fire_and_its_tombstone(form: str) -> None:
    life = Life(form)
    life.schedule(b"a", 1)
    life.wheel.writer.before_ours.append(lambda: life.schedule(b"a", 100))
    life.wheel.run_for(2_500)
    life.agree()
    assert len(life.expected()) == 1


@pytest.mark.parametrize("form", PEERS)
def test_garbage_does_not_cancel_for_the_peer_either(form: str) -> None:
    life = Life(form)
    life.schedule(b"a", 100)
    life.garbage(b"a")
    life.agree()
    assert len(life.expected()) == 1


@pytest.mark.parametrize("form", PEERS)
def test_what_of_ours_a_peer_would_deliver_with_a_repeat(form: str) -> None:
    """The limits that docs/moving.md names: the sky formats have the message in the value, the others in the record."""
    life = Life(form)
    for number in range(9):
        life.schedule(b"id%d" % number, 100)
    written = life.rig.kafka.log(TOPIC).committed()
    life.wheel.run_for(100)
    for number in range(9):
        life.garbage(b"id%d" % number)
    life.agree()
    repeats = {record.key: record for record in life.rig.kafka.log(TOPIC).committed() if record.value is not None}
    for before in written:
        repeat = repeats[before.key]
        assert repeat.timestamp > before.timestamp, "etf1's program would deliver it as scheduler-timestamp"
        ours = {name for name, _ in repeat.headers} - {name for name, _ in before.headers}
        null = {"almanac-null"} if before.value is None else set()
        assert ours == {"almanac-version", "almanac-topic-id", "almanac-timestamp"} | null
        assert first(repeat.headers)["almanac-timestamp"] == b"%d" % before.timestamp


def test_karafkas_program_takes_what_is_an_hour_late_for_dispatched() -> None:
    """A limit that docs/moving.md names: not ours to mend, as it drops such schedules of its own, too."""
    life = Life("karafka")
    life.rig.kafka.offline.add("elsewhere")
    life.schedule(b"late", 1, "elsewhere")
    life.wheel.run_for(2_000)
    life.schedule(b"fires", 2 * GRACE)
    life.rig.clock.time += (2 * GRACE + 1) * 1000
    life.wheel.run_for(5_000)
    assert set(life.expected()) == {b"late"}
    life.agree()
    life.garbage(b"late")
    life.wheel.run_for(5_000)
    assert set(life.expected()) == {b"late"}
    assert life.reads(life.rig.kafka.log(TOPIC).committed()) == {}, "what we repeat stands behind the tombstone"


@pytest.mark.parametrize("form", PEERS)
def test_a_cancel_between_a_repeat_and_its_reason(form: str) -> None:
    life = Life(form)
    life.schedule(b"a", 100)
    life.garbage(b"a")
    # the disposal is the first record of ours, the repeat of the schedule the second: the cancel slips in before it
    life.wheel.writer.before_ours.append(lambda: life.wheel.writer.before_ours.append(lambda: life.cancel(b"a")))
    life.agree()
    assert life.expected() == {}


steps = st.lists(
    st.tuples(
        st.sampled_from(["schedule", "cancel", "garbage", "wait", "race", "race-cancel"]),
        st.sampled_from(KEYS),
        st.integers(1, 5),
    ),
    max_size=25,
)


@pytest.mark.parametrize("form", PEERS)
@settings(max_examples=60, deadline=None)
@given(steps=steps)
def test_whatever_happens(form: str, steps: list[tuple[str, bytes, int]]) -> None:
    life = Life(form)
    for what, key, seconds in steps:
        if what == "wait":
            life.wheel.run_for(400 * seconds)
        elif what == "schedule":
            life.schedule(key, seconds)
        elif what in ("cancel", "garbage"):
            getattr(life, what)(key)
        elif what == "race":
            life.wheel.writer.before_ours.append(lambda key=key, s=seconds: life.schedule(key, s))  # type: ignore[misc]
        else:
            life.wheel.writer.before_ours.append(lambda key=key: life.cancel(key))  # type: ignore[misc]
    life.agree()
