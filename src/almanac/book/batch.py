"""A batch of the stream: read from Kafka, decoded and folded once, for all who take it.

Its rows are kept as Parquet until the book and what fired have them: each of Delta's passes over a MERGE's source, and
each question of `fired`, reads only the columns that it needs, and the batch need not fit into memory.
"""

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from almanac.book import decoders, fold, places, read, state

# Written once, read a moment later: nothing is gained by looking for what repeats itself.
_FILES = {"compression": "lz4_raw", "parquet.enable.dictionary": "false", "parquet.block.size": str(32 << 20)}

# The rows that a batch's offsets become.
_OFFSETS = [
    ("topic", pa.string()), ("partition", pa.int32()), ("key", pa.binary()), ("slot", pa.int64()),
    ("version", pa.int64()), ("kill", pa.int64()), ("last_offset", pa.int64()), ("timestamp", pa.int64()),
    ("topic_id", pa.string()),
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Where a batch begins and ends, and how its records are read."""

    position: read.Position  # of the book: what lies below its offsets is no part of the batch (rule 10)
    ends: fold.Offsets  # up to which the records are complete
    halted: fold.Offsets  # partitions that end at a record of the future
    whole: bool  # these were the ends of the log when the batch was cut
    since_ms: int  # when that was
    decoder: decoders.Decoder
    topic_ids: Mapping[str, str]

    @property
    def known(self) -> fold.Offsets:
        return self.position.offsets

    def of(self, records: DataFrame) -> DataFrame:
        """What each of the records within it says."""
        return fold.say(heard(records).where(unread(self.known, self.ends)), self.decoder, self.topic_ids)


@dataclass(frozen=True)
class Batch:
    """See the module."""

    cut: Cut
    news: DataFrame  # `fold.fold`'s rows and those of the offsets, with `whole` and what `state.fresh` says of them


@contextmanager
def folded(records: DataFrame, cut: Cut, folder: str) -> Iterator[Batch]:
    """The batch, for as long as the block lasts. Fails (`fold.FUTURE`) where it meets a record of the future."""
    news = fold.fold(cut.of(records), cut.position.complete).selectExpr(
        "*",
        "CAST(NULL AS STRING) AS topic_id",
        f"{str(cut.whole).lower()} AND {fold.by_partition(cut.halted, -1)} < 0 AS whole",
    )
    news = news.unionByName(_offsets(records, cut), allowMissingColumns=True)
    fresh = state.fresh()
    news = news.alias("n").selectExpr(
        *(f"n.{name}" for name in news.columns if name not in fresh),
        *(f"{sql} AS {name}" for name, sql in fresh.items()),
    )
    place = f"{folder}/{time.time_ns()}"
    try:
        spark = news.sparkSession
        # Lists are collected: where the groups are hashed Spark would hold those of a hundred keys at once.
        with configured(spark, "spark.sql.execution.useObjectHashAggregateExec", "false"):
            news.write.options(**_FILES).parquet(place)
        files = (
            spark.read.schema(news.schema).option("ignoreMissingFiles", "false").option("ignoreCorruptFiles", "false")
        )
        yield Batch(cut, files.parquet(re.sub(r"([\\{}\[\]*?])", r"\\\1", place)))  # not a pattern, whatever is in it
    finally:
        places.discard(place)  # else it goes with the checkpoint


@contextmanager
def configured(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    """With that setting, for a moment: the session may be a caller's."""
    usual = spark.conf.get(key, None)
    spark.conf.set(key, value)
    try:
        yield
    finally:
        spark.conf.unset(key) if usual is None else spark.conf.set(key, usual)


def unread(known: fold.Offsets, ends: fold.Offsets) -> str:
    """Rule 10: what lies below the offsets that are known is dropped; a replayed batch would raise the dead."""
    return f"offset >= {fold.by_partition(known, 0)} AND offset < {fold.by_partition(ends, 0)}"


def heard(records: DataFrame) -> DataFrame:
    """Records of the Kafka source as the fold wants them."""
    return records.selectExpr(
        "topic", "partition", "offset", "unix_millis(timestamp) AS timestamp", "key", "value",
        "coalesce(headers, CAST(array() AS array<struct<key:string,value:binary>>)) AS headers",
    )  # fmt: skip


def _offsets(records: DataFrame, cut: Cut) -> DataFrame:
    """The partitions' rows: `kill` carries the offset that the batch was cut by (see `table.MERGE`)."""
    known, complete, halted = cut.known, cut.position.complete, cut.halted
    rows = [
        (place[0], place[1], b"", fold.OFFSET, max(end, known.get(place, 0)), known.get(place, -1),
         end if cut.whole and place not in halted else complete.get(place, -1),
         # a partition that halts does not stand where the log ends: it ages (see `trust`)
         cut.position.since[place] if end == known.get(place) == halted.get(place) else cut.since_ms,
         cut.topic_ids.get(place[0]))
        for place, end in cut.ends.items() if end >= known.get(place, 0)
    ]  # fmt: skip
    # As Arrow: of plain rows Spark makes a task of Python's, and a process for it that costs a second.
    columns = list(zip(*rows, strict=True)) or [()] * len(_OFFSETS)
    arrays = [pa.array(column, kind) for column, (_, kind) in zip(columns, _OFFSETS, strict=True)]
    offsets = records.sparkSession.createDataFrame(pa.table(arrays, pa.schema(_OFFSETS)))
    return offsets.selectExpr("*", f"{fold.HASH} AS hash")
