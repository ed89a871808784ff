"""The fold of a stretch says of every record what the wheel reads in it, and of every key what the rules say."""

import base64
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import logs
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from logs import TOPIC, TOPIC_ID, record, schedule

from almanac import formats, words
from almanac.book import columns, fold, worker
from almanac.book.stretch import Stretch
from almanac.record import Headers, Record

VECTORS = Path(__file__).parents[1] / "vectors"
FILES = ("etf1", "karafka", "sky-avro", "sky-json")
ODD = (
    None, b"", b"0", b"007", b" 1", b"1\n", b"+1", "\u0661".encode(), b"\xff", b"9" * 12, b"9" * 13, b"4294967296",
    b"1.0", b"1.0.0", b"1.0.1", b"0.9.9", b"2.0.0", b"1.0.0.0", b"schedule", b"cancel", b"tombstone", b"a/b", b".",
    b"t" * 250,
)  # fmt: skip


def unpacked(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def golden() -> list[Record]:
    strange = b'{"time": 1, "topic": "t", "key": "", "value": null, "headers": {"\\ud800": 5}}'
    found = [
        Record(TOPIC, 0, 1, 0, b"id", strange, []),
        Record(TOPIC, 0, 1, 0, b"id", strange.replace(b"5", b'""'), []),
    ]
    for name in FILES:
        for case in json.loads((VECTORS / f"{name}.json").read_text()):
            of = case["record"]
            headers = [(each, unpacked(value)) for each, value in of["headers"]]
            found.append(
                Record(TOPIC, 0, of["offset"], of["timestamp_ms"], unpacked(of["key"]), unpacked(of["value"]), headers)
            )
    return found


def mutated(chance: random.Random, record: Record) -> Record:
    """Something in it is odd."""
    headers, value = list(record.headers), record.value
    for _ in range(chance.randint(1, 2)):
        what = chance.choice("dhhhccvvtekn")
        if what in "dh" and headers:
            at = chance.randrange(len(headers))
            headers[at : at + 1] = [] if what == "d" else [(headers[at][0], chance.choice(ODD))]
        elif what == "c":
            odd = chance.choice((*ODD, b"7", TOPIC_ID.encode()))
            headers.insert(chance.randint(0, len(headers)), (chance.choice(sorted(words.CONTROL)), odd))
        elif what == "v" and value:
            at = chance.randrange(len(value))
            value = value[:at] + bytes([chance.randrange(256)]) + value[at + 1 :]
        elif what == "t" and value:
            value = value[: chance.randrange(len(value))]
        elif what == "e":
            value = (value or b"") + chance.choice((b"\x00", b" ", b"}", b"null", b""))
        elif what == "k":
            record = record._replace(key=chance.choice((b"", None, b"\x00")))
        else:
            value = None
    return record._replace(headers=headers, value=value)


def folded(records: Sequence[Record], form: str = "etf1", start: int = 0, complete: int = fold.NONE) -> list[Any]:
    """The rows that a stretch of these becomes."""
    folding = fold.Fold(Stretch(TOPIC, records[0].partition, start, 1 << 62, complete, TOPIC_ID, form))
    for first in range(0, len(records), columns.CHUNK_RECORDS):
        if not folding.take(records[first : first + columns.CHUNK_RECORDS]):
            break
    rows: list[Any] = pa.Table.from_batches(folding.news(folding.keys()), fold.NEWS).to_pylist()
    return rows


def agree(rows: list[Any], meant: words.Said, record: Record) -> None:
    word: dict[str, Any] = next((row for row in rows if row["slot"] == fold.WORD), {})
    assert isinstance(meant, words.Halt) == (not rows), record
    match meant:
        case words.Word(version, original, planned, ours):
            said = ("R" if ours else "S", version, planned.due, planned.target)
            assert (word["last_kind"], word["version"], word["due"], word["target"]) == said, record
            headers = [(each["name"], each["value"]) for each in word["headers"]]
            assert (word["value"], word["timestamp"]) == (original.value, original.timestamp), record
            assert headers == original.headers, record
        case words.Kill(version, ours):
            assert (word["kill"], word["last_kind"] in "TX") == (version, ours), record
        case words.Disposal(of):
            assert word["last_kind"] == "D", record
            assert [row["slot"] for row in rows if row is not word] == ([of] if of < record.offset else []), record
        case words.Garbage(_, reason):
            (garbage,) = (row for row in rows if row["slot"] == record.offset)
            assert (garbage["key"], garbage["value"], garbage["reason"]) == (record.key, record.value, reason), record
            assert word["last_kind"] == "G", record


def odd_records(seed: int) -> list[Record]:
    """The golden cases and some that are a little odd."""
    chance, good = random.Random(seed), golden()
    return good + [mutated(chance, chance.choice(good)) for _ in range(100)]


@pytest.mark.parametrize("name", formats.NAMES)
@settings(max_examples=3, phases=[Phase.generate])  # the assertion names the record
@given(seed=st.integers(0, 1 << 32))
def test_every_record_means_what_the_wheel_reads_in_it(name: str, seed: int) -> None:
    form = formats.named(name)
    for each in odd_records(seed):
        agree(folded([each], name, start=each.offset), words.read(each, form, TOPIC_ID), each)


@settings(max_examples=300)
@given(seed=st.integers(0, 1 << 32), chunk=st.sampled_from((1, 3, 10_000)))
def test_the_fold_equals_the_statement_of_the_rules(seed: int, chunk: int) -> None:
    chance = random.Random(seed)
    log = logs.log(chance, 0, chance.randint(1, 30))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "CHUNK_RECORDS", chunk)
        rows = folded(log)
    truth = logs.truth(log)
    words_ = {row["key"]: row for row in rows if row["slot"] == fold.WORD}
    assert set(words_) == {each.key or b"" for each in log}
    pending = {}
    for key, row in words_.items():
        if row["version"] > row["kill"]:
            headers = [(each["name"], each["value"]) for each in row["headers"]]
            record = Record(TOPIC, 0, row["version"], row["timestamp"], key, row["value"], headers)
            pending[0, key] = (record, row["due"])
        else:
            assert (row["value"], row["headers"]) == (None, []), "what is over has no payload"
        last = [each for each in log if (each.key or b"") == key][-1]
        assert row["last_offset"] == last.offset
    assert pending == truth.pending
    assert {(0, row["slot"]) for row in rows if row["slot"] != fold.WORD} == truth.garbage


def test_what_fired() -> None:
    def fired(version: int, *more: tuple[str, bytes]) -> Headers:
        return [*words.acknowledgement(version, TOPIC_ID), *more]

    folding = fold.Fold(Stretch(TOPIC, 0, 0, 99, fold.NONE, TOPIC_ID, "etf1"))
    folding.take([
        record(1, b"a", b"v", schedule()), record(2, b"b", b"v", schedule()), record(3, b"a", None, fired(1)),
        record(4, b"c", None, fired(0, (words.REASON, b"forbidden"))), record(5, b"a", b"w", schedule(5)),
        record(6, b"other", None, fired(2)),  # of this id there was no such version
        record(7, b"a", None, words.repeat(1, None, TOPIC_ID)), record(8, b"a", None, []),
    ])  # fmt: skip
    assert list(folding.news(folding.keys()))
    names = ("id", "version", "offset", "fired_at", "reason", "due", "target")
    assert sorted(tuple(row[name] for name in names) for row in folding.gone.to_pylist()) == [
        (b"a", 1, 3, logs.SINCE + 3, None, logs.DUE * 1000, "target"),
        (b"c", 0, 4, logs.SINCE + 4, "forbidden", None, None),
        (b"other", 2, 6, logs.SINCE + 6, None, None, None),
    ]


def test_a_repeat_of_what_the_book_has_read_past_is_the_last_record_and_no_word() -> None:
    late = record(9, b"a", b"v", [*schedule(), *words.repeat(4, 7, TOPIC_ID)])
    (row,) = folded([late], start=8, complete=8)
    assert (row["version"], row["last_kind"], row["last_version"]) == (fold.NONE, "R", 4)
    (row,) = folded([late], start=8, complete=4)
    assert (row["version"], row["timestamp"]) == (4, 7)


def test_keys_that_the_stretch_alone_does_not_decide() -> None:
    folding = fold.Fold(Stretch(TOPIC, 0, 5, 99, 5, TOPIC_ID, "etf1"))
    folding.take([
        record(5, b"new", b"v", schedule()), record(6, b"fired", None, words.acknowledgement(2, TOPIC_ID)),
        record(7, b"cancelled", None, []), record(8, b"damaged", b"v", []),
        record(9, b"repeated", b"v", [*schedule(), *words.repeat(2, 7, TOPIC_ID)]),
    ])  # fmt: skip
    keys = folding.keys()
    assert dict(zip(keys["key"].to_pylist(), keys["decided"].to_pylist(), strict=True)) == {
        b"new": True,
        b"fired": False,
        b"cancelled": True,
        b"damaged": False,
        b"repeated": False,
    }


def test_shares_are_even() -> None:
    lengths = (1, 9, 4, 5, 0)
    stretches = [Stretch(TOPIC, p, -2, length, fold.NONE, TOPIC_ID, "etf1") for p, length in enumerate(lengths)]
    dealt = worker.shares(stretches, 2)
    assert sorted(sum(each.end for each in share) for share in dealt) == [9, 10]
    assert sorted(each.partition for share in dealt for each in share) == [0, 1, 2, 3, 4]
    assert len(worker.shares(stretches, 9)) == 5
    assert worker.shares([], 4) == []
