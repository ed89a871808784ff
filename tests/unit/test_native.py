"""Whatever the format, its native copy delivers the same message at the same time; what cannot be said is refused."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from almanac import bridge, formats, lines, native, words
from almanac.formats import etf1, karafka, timers
from almanac.native import Wish
from almanac.record import Headers, Record

VECTORS = Path(__file__).parents[1] / "vectors"
NAMES = ("etf1", "karafka", "sky-avro", "sky-json")
NOW = 1_900_000_000_000

wishes = st.builds(
    Wish,
    id=st.binary(min_size=1, max_size=9),
    due=st.integers(0, formats.LAST_DUE),
    target=st.from_regex(r"[a-zA-Z0-9_-]{1,20}", fullmatch=True),
    key=st.none() | st.binary(max_size=9),
    value=st.binary(max_size=30),
    headers=st.lists(
        st.tuples(
            st.sampled_from(["", "mine", "naïve", "schedule_target_key", "scheduler-key", "schedule_source_key"]),
            st.none() | st.binary(max_size=5),
        ),
        max_size=4,
    ),
    timestamp=st.integers(1, NOW),
    partition=st.none(),
    partition_key=st.none(),
)


def unpacked(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def record(of: dict[str, Any]) -> Record:
    headers = [(name, unpacked(value)) for name, value in of["headers"]]
    place = (of["topic"], of["partition"], of["offset"], of["timestamp_ms"])
    return Record(*place, unpacked(of["key"]), unpacked(of["value"]), headers)


def golden() -> list[tuple[str, words.Word]]:
    """The schedules among the golden cases."""
    found = []
    for name in NAMES:
        for case in json.loads((VECTORS / f"{name}.json").read_text()):
            said = words.read(record(case["record"]), formats.named(name), "topic-id")
            if isinstance(said, words.Word):
                found.append((name, said))
    return found


def read_back(made: native.Native) -> formats.Schedule:
    said = words.read(Record("native", 0, 9, made.timestamp, *made[:3]), formats.named("auto"), "topic-id")
    assert isinstance(said, words.Word), said
    assert said.schedule.grace is not None, "it is native"
    return said.schedule


def test_a_bridged_timer_request_is_a_native_schedule_like_any_other() -> None:
    future = timers.Future(callBackTopic="calls", callBackKey="k", callBack=b"v").SerializeToString()
    request = Record("timer-request", 1, 42, NOW, b"1000", future, [])
    out = bridge.schedule(request, "schedules", b"timer-request/1/", NOW)
    said = words.read(Record("schedules", 0, 7, NOW, out.key, out.value, out.headers), formats.named("auto"), "id")
    assert isinstance(said, words.Word)
    assert native.copy(said).headers == out.headers
    asked = native.wish(said)
    assert asked.headers == [(etf1.REQUEST, b"timer-request/1/42")], "without what a delivery adds"
    again = read_back(native.record(lines.read(lines.write(asked, "schedules/0/7"), NOW)))
    assert again.due > NOW - (again.grace or 0), "long past, and not outdated"


@pytest.mark.parametrize(("name", "word"), golden())
def test_a_copy_delivers_what_its_original_would(name: str, word: words.Word) -> None:
    asked = word.schedule
    try:
        made = native.copy(word)
    except native.Unfit as error:
        reason = str(error)
        assert asked.value is None or asked.partition >= 0 or asked.hashed is not None or "outdated" in reason, reason
        return
    said = read_back(made)
    assert made.id == word.record.key
    assert (said.due, said.target, said.key, said.value) == (asked.due, asked.target, asked.key, asked.value)
    ours = (karafka.VERSION, karafka.TYPE, karafka.EPOCH, karafka.TOPIC, karafka.KEY)
    kept = [header for header in asked.headers if header[0] not in ours and not header[0].startswith("scheduler-")]
    assert [header for header in said.headers if not header[0].startswith("scheduler-")] == kept
    assert said.due >= made.timestamp - etf1.TOLERANCE, "it is not outdated"
    if name == "etf1":
        assert made.headers == word.record.headers


@given(asked=wishes)
def test_a_wish_is_read_as_it_was_meant(asked: Wish) -> None:
    said = read_back(native.record(asked))
    assert (said.due, said.target, said.key, said.value) == (asked.due, asked.target, asked.key, asked.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"value": None}, "null value"),
        ({"partition": 3}, "partition 3"),
        ({"partition_key": b""}, "key of its own"),
        ({"id": b""}, "id"),
        ({"headers": [("\ufffd", b"")]}, "UTF-8"),
        ({"headers": [(karafka.TYPE, b"schedule")]}, "would not read it"),
        ({"headers": [("a", b""), (etf1.EPOCH, b"1")]}, "its header scheduler-epoch is one of the scheduler's own"),
        ({"headers": [(etf1.KEY, b"k")]}, "its header scheduler-target-key"),
        ({"headers": [(words.ACKS, b"1")]}, "its header almanac-acks"),
    ],
)
def test_what_the_native_format_cannot_say_is_refused(change: dict[str, Any], says: str) -> None:
    good = Wish(b"id", NOW, "target", None, b"v", [], 1)
    assert native.record(good)
    with pytest.raises(native.Unfit, match=says):
        native.record(good._replace(**change))


def test_what_was_over_when_a_peer_was_told_still_fires() -> None:
    value = json.dumps({"time": 5_000, "topic": "t", "key": "", "value": "eA=="}).encode()
    said = words.read(Record("sky", 0, 0, NOW, b"id", value, []), formats.named("sky-json"), "topic-id")
    assert isinstance(said, words.Word)
    assert native.copy(said).timestamp == 5_000


def sky_json(headers: dict[str, bytes]) -> words.Word:
    packed = {name: base64.b64encode(value).decode() for name, value in headers.items()}
    value = json.dumps({"time": NOW, "topic": "t", "key": "", "value": "eA==", "headers": packed}).encode()
    said = words.read(Record("sky", 0, 0, 1, b"id", value, []), formats.named("sky-json"), "topic-id")
    assert isinstance(said, words.Word)
    return said


def karafka_word(*more: tuple[str, bytes | None]) -> words.Word:
    headers = [(karafka.VERSION, b"1.0.0"), (karafka.TYPE, b"schedule"), (karafka.EPOCH, b"9"), (karafka.TOPIC, b"t")]
    said = words.read(Record("k", 0, 0, 1, b"id", b"v", [*headers, *more]), formats.named("karafka"), "topic-id")
    assert isinstance(said, words.Word)
    return said


@pytest.mark.parametrize("name", [etf1.EPOCH, etf1.EPOCH_MS, etf1.KEY, words.ACKS])
def test_a_users_header_that_cannot_be_delivered_is_told(name: str) -> None:
    with pytest.raises(native.Unfit, match=f"its header {name} "):
        native.copy(sky_json({"mine": b"1", name: b"2"}))
    if name != words.ACKS:  # in a record's own headers that one is ours
        with pytest.raises(native.Unfit, match=f"its header {name} "):
            native.copy(karafka_word((name, b"2")))


def test_another_formats_headers_are_a_users() -> None:
    assert (karafka.KEY, b"1") in read_back(native.copy(sky_json({karafka.KEY: b"1"}))).headers
    headers: Headers = [(etf1.EPOCH, b"9"), (etf1.TOPIC, b"t"), (karafka.KEY, b"1")]
    said = words.read(Record("etf1", 0, 0, 1, b"id", b"v", headers), formats.named("etf1"), "topic-id")
    assert isinstance(said, words.Word)
    assert native.wish(said).headers == [(karafka.KEY, b"1")]


# Lines


@pytest.mark.parametrize("key", [b"user-1", b"", b"\xff"])
def test_a_partition_key_is_in_the_line(key: bytes) -> None:
    asked = native.wish(karafka_word((karafka.PARTITION_KEY, key)))
    line = lines.write(asked, "k/0/0")
    assert asked.partition_key == key
    assert lines.read(line, NOW) == asked
    assert "target_partition_key" in json.loads(line)


@given(asked=wishes)
def test_a_line_is_read_as_it_was_written(asked: Wish) -> None:
    assert lines.read(lines.write(asked, "topic/0/1"), NOW) == asked


def test_bytes_are_text_where_they_can_be() -> None:
    line = json.loads(lines.write(Wish(b"id", 1, "t", None, b"\xff", [("a", b"b")], 1), "here"))
    assert (line["id"], line["value"], line["target_key"], line["headers"]) == (
        "id",
        {"base64": "/w=="},
        None,
        [["a", "b"]],
    )


GOOD: dict[str, Any] = {"id": "a", "due": "2100-01-01T00:00:00Z", "target_topic": "t", "value": "v"}


def test_a_line_by_hand() -> None:
    assert lines.read(json.dumps(GOOD), NOW) == Wish(b"a", 4_102_444_800_000, "t", None, b"v", [], NOW)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "no JSON"),
        ("[]", "no JSON object"),
        ("{}", "id and target_topic and value missing"),
        (json.dumps(GOOD | {"due": "2100-01-01"}), "no offset"),
        (json.dumps(GOOD | {"due": "soon"}), "ISO 8601"),
        (json.dumps(GOOD | {"due": "2020-01-01T00:00:00Z"}), "has passed"),
        (json.dumps(GOOD | {"due_ms": -1}), "due_ms is no whole"),
        (json.dumps(GOOD | {"due_ms": 10**15}), "year 9999"),
        (json.dumps(GOOD | {"target_topic": "a b"}), "no topic's name"),
        (json.dumps(GOOD | {"value": 5}), "neither a text nor"),
        (json.dumps(GOOD | {"value": {"base64": "?"}}), "neither a text nor"),
        (json.dumps(GOOD | {"headers": [["a"]]}), "list of"),
        (json.dumps(GOOD | {"valeu": 5}), "'valeu' is no field"),
        (json.dumps(GOOD | {"headers": [["\ud800", "v"]]}), "name of a header is not UTF-8"),
        (json.dumps(GOOD | {"headers": [["a\0b", "v"]]}), "name of a header holds a null character"),
        (json.dumps(GOOD | {"timestamp_ms": 10**30}), "timestamp_ms lies after the year 9999"),
    ],
)
def test_a_bad_line_is_refused(text: str, says: str) -> None:
    with pytest.raises(lines.BadLine, match=says):
        lines.read(text, NOW)
