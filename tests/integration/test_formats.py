"""Each wire format says the same to the book (Spark) as to the wheel (Python), whatever is in the record."""

import base64
import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from logs import TOPIC, TOPIC_ID, frame
from pyspark.sql import SparkSession

from almanac import formats, words
from almanac.book import batch, decoders, fold
from almanac.record import Record

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


def read(spark: SparkSession, decoder: decoders.Decoder, records: list[Record]) -> dict[int, Any]:
    """What Spark says of each record, by partition."""
    decoders.register(spark)
    heard = batch.heard(frame(spark, records))
    ids = dict.fromkeys({record.topic for record in records}, TOPIC_ID)
    return {row.partition: row for row in fold.say(heard, decoder, ids).collect()}


KINDS = {words.Halt: "H", words.Garbage: "G", words.Disposal: "D"}


def agree(row: Any, meant: words.Said, record: Record) -> None:
    if isinstance(meant, words.Word):
        wanted = ("R" if meant.ours else "S", meant.version, meant.schedule.due, meant.schedule.target)
        assert (row.kind, row.version, row.due, row.target) == wanted, record
        assert (row.value, row.timestamp) == (meant.record.value, meant.record.timestamp), record
    elif isinstance(meant, words.Kill):
        assert row.kill == meant.version, record
        assert (row.kind in "TX") == meant.ours, record
    else:
        assert row.kind == KINDS[type(meant)], (record, meant)


def odd_records(seed: int, topics: Sequence[str]) -> list[Record]:
    """The golden cases and hundreds that are a little odd; each has a partition of its own."""
    chance, good = random.Random(seed), golden()
    records = good + [mutated(chance, chance.choice(good)) for _ in range(600)]
    return [record._replace(partition=n, topic=topics[n % len(topics)]) for n, record in enumerate(records)]


# no shrinking: each example is a thousand records in one run of Spark, and the assertion names the one
seeds = given(seed=st.integers(0, 1 << 32))
briefly = settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])


@pytest.mark.parametrize("name", formats.NAMES)
@briefly
@seeds
def test_spark_reads_every_record_as_python_does(spark: SparkSession, name: str, seed: int) -> None:
    records = odd_records(seed, [TOPIC])
    said = read(spark, decoders.named(name), records)
    for record in records:
        agree(said[record.partition], words.read(record, formats.named(name), TOPIC_ID), record)


@briefly
@seeds
def test_topics_of_different_formats_in_one_batch(spark: SparkSession, seed: int) -> None:
    records = odd_records(seed, formats.NAMES)
    said = read(spark, decoders.by_topic({name: name for name in formats.NAMES}), records)
    for record in records:
        agree(said[record.partition], words.read(record, formats.named(record.topic), TOPIC_ID), record)


@pytest.mark.parametrize("name", formats.NAMES)
def test_java_compiles_every_part_of_a_decoder(spark: SparkSession, name: str) -> None:
    """What it does not compile takes several times as long: see `fold.apart`."""
    decoders.register(spark)
    places, ends = ({(TOPIC, partition): offset for partition in range(4)} for offset in (5, 99))
    some = frame(spark, golden()[:1]).localCheckpoint()  # of rows that it has Spark computes everything at once
    records = batch.heard(some).where(batch.unread(places, ends))
    said = fold.say(records, decoders.named(name), {TOPIC: TOPIC_ID})
    fold.fold(said, places).createOrReplaceTempView("folded")
    with batch.configured(spark, "spark.sql.adaptive.enabled", "false"):  # else nothing is compiled before it runs
        (plan,) = spark.sql("EXPLAIN CODEGEN SELECT * FROM folded").collect()
    sizes = [int(size) for size in re.findall(r"maxMethodCodeSize:(\d+)", plan[0])]
    assert len(sizes) >= 4
    assert max(sizes) <= 8_000
