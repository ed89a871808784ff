"""The wire formats through the code that the wheel's tail uses: golden cases, and what peers would write."""

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

import peers
import pytest
from hypothesis import given
from hypothesis import strategies as st

from almanac import formats, words
from almanac.formats import timers
from almanac.record import Headers, Record

VECTORS = Path(__file__).parents[1] / "vectors"
FORMATS = ("etf1", "karafka", "sky-avro", "sky-json")
CASES = [(name, case) for name in FORMATS for case in json.loads((VECTORS / f"{name}.json").read_text())]
HEADER_FORMATS = ("etf1", "karafka")


def unpacked(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def headers(listed: list[list[Any]]) -> list[tuple[str, bytes | None]]:
    return [(name, unpacked(value)) for name, value in listed]


def record(case: dict[str, Any]) -> Record:
    of = case["record"]
    place = (of["topic"], of["partition"], of["offset"], of["timestamp_ms"])
    return Record(*place, unpacked(of["key"]), unpacked(of["value"]), headers(of["headers"]))


def expected(case: dict[str, Any], format_name: str) -> None:
    wanted, read = case["expect"], record(case)
    said = words.read(read, formats.named(format_name), "topic-id")
    if wanted["kind"] in ("schedule", "outdated"):
        assert isinstance(said, words.Word), said
        grace = said.schedule.grace
        outdated = grace is not None and said.schedule.due < read.timestamp - grace
        assert outdated == (wanted["kind"] == "outdated")
    if wanted["kind"] == "schedule":
        assert isinstance(said, words.Word)
        due, target, key, partition, value, out, *_ = said.schedule
        meant = wanted["target"]
        assert due == wanted["due_ms"]
        assert (target, None if partition < 0 else partition) == (meant["topic"], meant["partition"])
        assert (key, value, out) == (unpacked(meant["key"]), unpacked(meant["value"]), headers(meant["headers"]))
    elif wanted["kind"] == "tombstone":
        assert isinstance(said, words.Kill)
        assert said.version == (read.offset if wanted["acks"] is None else wanted["acks"])
    elif wanted["kind"] == "invalid":
        assert isinstance(said, words.Garbage)
        assert wanted["reason_mentions"].lower() in said.reason.lower()
    elif wanted["kind"] == "incompatible":
        assert isinstance(said, words.Halt)


@pytest.mark.parametrize(("name", "case"), CASES, ids=[f"{name}: {case['name']}" for name, case in CASES])
def test_vector(name: str, case: dict[str, Any]) -> None:
    expected(case, name)


@pytest.mark.parametrize(
    ("name", "case"),
    [each for each in CASES if each[0] in HEADER_FORMATS],
    ids=[f"{name}: {case['name']}" for name, case in CASES if name in HEADER_FORMATS],
)
def test_auto_tells_the_header_formats_apart(name: str, case: dict[str, Any]) -> None:
    expected(case, "auto")


@pytest.mark.parametrize("case", json.loads((VECTORS / "timers.json").read_text()), ids=lambda case: str(case["name"]))
def test_timers_vector(case: dict[str, Any]) -> None:
    wanted = case["expect"]
    if wanted["kind"] == "invalid":
        with pytest.raises(formats.Invalid, match=f"(?i){wanted['reason_mentions']}"):
            timers.read(record(case))
        return
    said, meant = timers.read(record(case)), wanted["target"]
    assert (said.due, said.target) == (wanted["due_ms"], meant["topic"])
    assert (said.key, said.value) == (unpacked(meant["key"]), unpacked(meant["value"]))


# Whatever a peer's client can say is understood, and reaches the target untouched.

topics = st.from_regex(r"[a-zA-Z0-9_-]{1,30}", fullmatch=True)
blobs = st.binary(max_size=40)
names = st.text(st.characters(codec="utf-8", exclude_characters="\ufffd\0"), max_size=9).map("x{}".format)
maps = st.none() | st.dictionaries(names, blobs, max_size=4)
lists = st.lists(st.tuples(names, st.none() | blobs), max_size=4)
ids = st.binary(min_size=1, max_size=20)
millis = st.integers(0, formats.LAST_DUE)
seconds = st.integers(0, formats.LAST_DUE // 1000)


def heard(form: str, id: bytes, value: bytes | None, headers: Headers) -> formats.Schedule:  # noqa: A002
    said = words.read(Record("schedules", 3, 41, 1_500_000_000_000, id, value, headers), formats.named(form), "id")
    assert isinstance(said, words.Word), said
    return said.schedule


@pytest.mark.parametrize("form", ["etf1", "auto"])
@given(id=ids, epoch=seconds, topic=topics, key=st.none() | blobs, value=blobs, headers=lists)
def test_etf1_round_trip(
    form: str, id: bytes, epoch: int, topic: str, key: bytes | None, value: bytes, headers: Headers  # noqa: A002
) -> None:  # fmt: skip
    written = peers.etf1(epoch, topic, key, headers)
    said = heard(form, id, value, written)
    assert (said.due, said.target, said.key, said.value) == (epoch * 1000, topic, key, value)
    added: Headers = [("scheduler-timestamp", b"1500000000"), ("scheduler-key", id), ("scheduler-topic", b"schedules")]
    assert said.headers == written + added


@pytest.mark.parametrize("form", ["karafka", "auto"])
@given(
    id=ids, epoch=seconds, topic=topics, key=st.none() | blobs, partition=st.none() | st.integers(0, 2**31 - 1),
    partition_key=st.none() | blobs, value=st.none() | blobs, headers=lists,
)  # fmt: skip
def test_karafka_round_trip(
    form: str, id: bytes, epoch: int, topic: str, key: bytes | None, partition: int | None,  # noqa: A002
    partition_key: bytes | None, value: bytes | None, headers: Headers,
) -> None:  # fmt: skip
    written = peers.karafka(epoch, topic, key, partition, partition_key, headers)
    said = heard(form, id, value, written)
    assert (said.due, said.target, said.key, said.value) == (epoch * 1000, topic, key, value)
    assert said.partition == (-1 if partition is None else partition)
    assert said.hashed == (zlib.crc32(partition_key) if partition is None and partition_key is not None else None)
    source = {"topic": b"schedules", "partition": b"3", "offset": b"41", "key": id}
    assert said.headers == written + [(f"schedule_source_{name}", each) for name, each in source.items()]


@given(id=ids, time=millis, topic=topics, key=blobs, value=st.none() | blobs, headers=maps, sized=st.booleans())
def test_sky_avro_round_trip(
    id: bytes, time: int, topic: str, key: bytes, value: bytes | None, headers: dict[str, bytes] | None,  # noqa: A002
    sized: bool,
) -> None:  # fmt: skip
    said = heard("sky-avro", id, peers.sky_avro(time, topic, key, value, headers, sized), [])
    assert (said.due, said.target, said.key, said.value) == (time, topic, key, value)
    assert said.headers == list((headers or {}).items())


@given(id=ids, time=millis, topic=topics, key=blobs, value=st.none() | blobs, headers=maps)
def test_sky_json_round_trip(
    id: bytes, time: int, topic: str, key: bytes, value: bytes | None, headers: dict[str, bytes] | None  # noqa: A002
) -> None:  # fmt: skip
    said = heard("sky-json", id, peers.sky_json(time, topic, key, value, headers), [])
    assert (said.due, said.target, said.key, said.value) == (time, topic, key, value)
    assert said.headers == list((headers or {}).items())


@given(epoch=seconds, topic=topics, key=st.text(st.characters(codec="utf-8"), max_size=20), content=blobs)
def test_timers_round_trip(epoch: int, topic: str, key: str, content: bytes) -> None:
    said = timers.read(Record("timer-request", 0, 0, 0, b"%d" % epoch, peers.future(topic, key, content), []))
    assert (said.due, said.target, said.key, said.value) == (epoch * 1000, topic, key.encode(), content)


def test_the_proto_file_says_what_the_code_reads() -> None:
    said = re.findall(r"(string|bytes) (\w+) = (\d);", formats.schema("timers"))
    kinds = {9: "string", 12: "bytes"}
    assert said == [(kinds[field.type], field.name, str(field.number)) for field in timers.Future.DESCRIPTOR.fields]


@pytest.mark.parametrize("name", ["\\ud800", "a\\u0000b"])
@pytest.mark.parametrize("content", ['"eA=="', "5"])
def test_a_header_that_no_client_could_write_is_garbage_with_a_reason_that_can_be_written(
    name: str, content: str
) -> None:
    """confluent-kafka ends the process at a lone surrogate, and cuts a name at a null character."""
    value = f'{{"time": 1, "topic": "t", "key": "", "value": null, "headers": {{"{name}": {content}}}}}'.encode()
    said = words.read(Record("schedules", 0, 0, 0, b"id", value, []), formats.named("sky-json"), "id")
    assert isinstance(said, words.Garbage)
    assert said.reason.encode()
    assert "header" in said.reason


def test_an_avro_header_with_a_null_character_is_garbage() -> None:
    value = peers.sky_avro(1, "t", b"", None, {"a\0b": b""})
    said = words.read(Record("schedules", 0, 0, 0, b"id", value, []), formats.named("sky-avro"), "id")
    assert isinstance(said, words.Garbage)
