"""The golden cases of the wire formats, through the code that the wheel's tail uses."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from almanac import formats, words
from almanac.record import Record

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
        due, target, key, partition, value, out, _, _ = said.schedule
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
