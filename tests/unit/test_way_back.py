"""The way back: whoever goes back to a peer finds it reading our topic rightly, compacted or not.

The peers' rules, in a few lines each, as their programs have them: what waits after a topic was read to its end. They
know nothing of our headers. Where a peer itself is wrong (an update between a fire and its tombstone, garbage that
cancels), the log that we leave must say the right thing all the same: it ends in the truth (rule 4).
"""

import base64
import io
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory import TOPIC, Rig, Turning

from almanac import client
from almanac.client import Message
from almanac.formats import sky_avro
from almanac.record import Record

Pending = dict[bytes, tuple[int, bytes | None]]
"""By id: when, in ms, and the payload."""

KEYS = (b"a", b"b", b"c")


# The peers' rules


def etf1(log: list[Record]) -> Pending:
    """The Go program: a null value deletes; anything else replaces, if its headers are those of a schedule."""
    found: Pending = {}
    for record in log:
        headers = dict(record.headers)
        epoch = headers.get("scheduler-epoch") or b""
        if record.value is None:
            found.pop(record.key or b"", None)
        elif epoch.isdigit() and headers.get("scheduler-target-topic"):
            found[record.key or b""] = (int(epoch) * 1000, record.value)
    return found


def sky(read: Callable[[bytes], tuple[int, bytes | None]]) -> Callable[[list[Record]], Pending]:
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


def read_avro(value: bytes) -> tuple[int, bytes | None]:
    said = fastavro.schemaless_reader(io.BytesIO(value), json.loads(sky_avro.SCHEMA), None)
    assert isinstance(said, dict)
    return said["time"], said["value"]


def read_json(value: bytes) -> tuple[int, bytes | None]:
    said = json.loads(value)
    return said["time"], None if said["value"] is None else base64.b64decode(said["value"])


def karafka(log: list[Record]) -> Pending:
    """The Ruby program: it stops at a record without a schema version; what is no schedule deletes."""
    found: Pending = {}
    for record in log:
        headers = dict(record.headers)
        assert headers["schedule_schema_version"] == b"1.0.0", "it would stop here"
        if headers["schedule_source_type"] == b"schedule":
            found[record.key or b""] = (int(headers["schedule_target_epoch"] or b"") * 1000, record.value)
        else:
            found.pop(record.key or b"", None)
            if headers["schedule_source_type"] == b"tombstone":
                assert int(headers["schedule_target_epoch"] or b"") > 0
    return found


# What users write, and garbage of each format


def at(due: int) -> datetime:
    return datetime.fromtimestamp(due / 1000, UTC)


Make = Callable[[bytes, int, bytes], Message]
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
PEERS: dict[str, tuple[Callable[[list[Record]], Pending], Make, Callable[[bytes, str], Message], Message]] = {
    "etf1": (
        etf1,
        lambda key, due, value: client.etf1.schedule(Message("target", b"k", value), key, at(due), TOPIC, LONG_AGO),
        client.etf1.cancel,
        Message(TOPIC, b"", b"?", [("scheduler-epoch", b"soon")]),
    ),
    "sky-avro": (
        sky(read_avro),
        lambda key, due, value: client.sky.schedule(Message("target", b"k", value), key, at(due), TOPIC),
        client.sky.cancel,
        Message(TOPIC, b"", b"?"),
    ),
    "sky-json": (
        sky(read_json),
        lambda key, due, value: client.sky.schedule(Message("target", b"k", value), key, at(due), TOPIC, "json"),
        client.sky.cancel,
        Message(TOPIC, b"", b"?"),
    ),
    "karafka": (
        karafka,
        lambda key, due, value: client.karafka.schedule(
            Message("target", b"k", value), at(due), TOPIC, id=key, now=LONG_AGO
        ),
        client.karafka.cancel,
        Message(TOPIC, b"", b"?", [("schedule_schema_version", b"1.0.0"), ("schedule_source_type", b"cancel")]),
    ),
}


class Life:
    """A wheel on a topic of one format, and users who write to it, also at the worst moment."""

    def __init__(self, form: str) -> None:
        self.reads, self._make, self._cancel, self._garbage = PEERS[form]
        self.rig = Rig(form=form)
        self.written = 0
        self.truth: Pending = {}  # the users' last words; what fired of them is taken out at the end
        self.wheel: Turning = self.rig.wheel().begin()

    def write(self, message: Message) -> None:
        self.rig.kafka.write(TOPIC, message.key, message.value, list(message.headers))

    def schedule(self, key: bytes, seconds: int) -> None:
        due = (int(self.rig.clock.wall()) // 1000 + seconds) * 1000
        self.written += 1
        value = b"v%d" % self.written
        self.truth[key] = (due, value)
        self.write(self._make(key, due, value))

    def cancel(self, key: bytes) -> None:
        self.truth.pop(key, None)
        self.write(self._cancel(key, TOPIC))

    def garbage(self, key: bytes) -> None:
        self.write(replace(self._garbage, key=key))

    def expected(self) -> Pending:
        fired = set(self.rig.kafka.fired())
        return {key: said for key, said in self.truth.items() if said[1] not in fired}

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
    for number, key in enumerate(KEYS):
        life.schedule(key, 1 + number)
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
