"""What the wheel does for the two sky formats, which differ in how they are written only."""

import io
import json

import fastavro
import peers
import pytest
from memory import START, TOPIC, Rig

from almanac.formats import sky_avro
from almanac.record import first

FORMS = {"sky-avro": peers.sky_avro, "sky-json": peers.sky_json}
both = pytest.mark.parametrize("form", FORMS)


def schedule(rig: Rig, key: bytes, due: int, value: bytes | None) -> int:
    write = FORMS[rig.form.name]
    return rig.kafka.write(TOPIC, key, write(START + due, "target", b"k-" + key, value, {"h": b"\xff"}))


@both
def test_delivers_what_was_given_and_nothing_more(form: str) -> None:
    rig = Rig(form=form)
    schedule(rig, b"a", 1_000, b"\x00payload")
    rig.wheel().begin().run_for(2_000)
    (delivered,) = rig.kafka.read("target")
    assert (delivered.key, delivered.value, delivered.headers) == (b"k-a", b"\x00payload", [("h", b"\xff")])


@both
def test_a_null_inner_value_delivers_a_tombstone(form: str) -> None:
    rig = Rig(form=form)
    schedule(rig, b"a", 1_000, None)
    rig.wheel().begin().run_for(2_000)
    (delivered,) = rig.kafka.read("target")
    assert (delivered.key, delivered.value) == (b"k-a", None)


@both
def test_the_past_is_fired_at_once_however_long_ago(form: str) -> None:
    rig = Rig(form=form)
    wheel = rig.wheel().begin()
    schedule(rig, b"a", -START, b"at the epoch")
    wheel.run_for(100)
    assert rig.kafka.fired() == [b"at the epoch"]
    assert rig.kafka.read("dead-letters") == []


@both
@pytest.mark.parametrize("time", [-START - 1, -START, -5 * 86_400_000])
def test_who_asks_for_the_past_has_missed_nothing(form: str, time: int) -> None:
    rig = Rig(form=form, since_delta=0)
    schedule(rig, b"a", time, b"at once")
    rig.wheel().begin().run_for(100)
    assert rig.kafka.fired() == [b"at once"]


@pytest.mark.parametrize("branch", [b"\x01\x06bad", b"\x03", b"\x81\x00\x06bad", b"\x04\x06bad"])
def test_a_branch_that_the_avro_union_does_not_have_is_garbage(branch: bytes) -> None:
    rig = Rig(form="sky-avro")
    schedule(rig, b"a", 1_000, b"good")
    head = io.BytesIO()
    schema = json.loads(sky_avro.SCHEMA)
    schema["fields"] = schema["fields"][:3]
    fastavro.schemaless_writer(head, schema, {"time": START + 10, "topic": "target", "key": b"k"})
    rig.kafka.write(TOPIC, b"a", head.getvalue() + branch)
    rig.wheel().begin().run_for(2_000)
    assert rig.kafka.fired() == [b"good"]
    assert len(rig.kafka.read("dead-letters")) == 1


def test_what_the_peers_json_reader_takes_is_taken() -> None:
    rig = Rig(form="sky-json")
    for key, text in (
        (b"padding", '{"time": %d, "topic": "target", "key": "aw", "value": "dg", "headers": {"h": "/w"}}'),
        (b"decimal", '{"time": %d.0, "topic": "target", "key": "aw==", "value": "dg=="}'),
        (b"text", '{"time": "%d", "topic": "target", "key": "aw==", "value": "dg=="}'),
        (b"half", '{"time": %d.5, "topic": "target", "key": "aw==", "value": "dg=="}'),
        (b"words", '{"time": "%d ms", "topic": "target", "key": "aw==", "value": "dg=="}'),
        (b"odd", '{"time": %d, "topic": "target", "key": "a", "value": "dg=="}'),
    ):
        rig.kafka.write(TOPIC, key, (text % (START + 100)).encode())
    rig.wheel().begin().run_for(1_000)
    assert [(each.key, each.value) for each in rig.kafka.read("target")] == [(b"k", b"v")] * 3
    assert [each.key for each in rig.kafka.read("dead-letters")] == [b"half", b"words", b"odd"]


@both
def test_the_tombstone_says_expired(form: str) -> None:
    rig = Rig(form=form)
    schedule(rig, b"a", 1_000, b"v")
    rig.wheel().begin().run_for(2_000)
    tombstone = rig.kafka.read(TOPIC)[-1]
    assert (tombstone.key, tombstone.value) == (b"a", None)
    assert first(tombstone.headers)["schedule:expired"] == b"true"
    assert first(tombstone.headers)["almanac-acks"] == b"0"


@both
def test_garbage_does_not_cancel(form: str) -> None:
    rig = Rig(form=form)
    wheel = rig.wheel().begin()
    schedule(rig, b"a", 5_000, b"v")
    rig.kafka.write(TOPIC, b"a", b"\xff no schedule")
    wheel.run_for(1_000)
    (dead,) = rig.kafka.read("dead-letters")
    assert (dead.value, first(dead.headers)["almanac-reason"]) == (b"\xff no schedule", b"invalid")
    rig.kafka.log(TOPIC).compact()  # only the last record of the key is left: it must still say what is pending
    rig.wheel().begin().run_for(6_000)
    assert rig.kafka.fired() == [b"v"]


@both
def test_a_null_record_value_cancels(form: str) -> None:
    rig = Rig(form=form)
    wheel = rig.wheel().begin()
    schedule(rig, b"a", 5_000, b"v")
    rig.kafka.cancel(b"a")
    wheel.run_for(10_000)
    assert rig.kafka.fired() == []


@both
def test_the_peers_own_expiry_counts_as_a_cancel(form: str) -> None:
    rig = Rig(form=form)
    schedule(rig, b"a", 5_000, b"v")
    rig.kafka.write(TOPIC, b"a", None, [("schedule:expired", b"true")])
    rig.wheel().begin().run_for(10_000)
    assert rig.kafka.fired() == []
