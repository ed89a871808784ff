"""A batch of the stream: read from Kafka, decoded and folded once, for all who take it.

Its rows are kept as Parquet until the book and what fired have them: each of Delta's passes over them, and each
question of `fired`, reads only the columns that it needs, and the batch need not fit into memory.
"""

import dataclasses
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from almanac.book import fold, places, read, sql, state, worker
from almanac.book.stretch import BEGINNING, Log, Offsets, Partition, Stretch

# `fold.NEWS` as Spark has it.
_NEWS = f"""topic STRING, partition INT, key BINARY, slot BIGINT, version BIGINT, kill BIGINT, due BIGINT,
    timestamp BIGINT, value BINARY, headers {sql.HEADERS}, target STRING, reason STRING,
    last_offset BIGINT, last_kind STRING, last_version BIGINT, met BOOLEAN"""
# `fold.GONE` as Spark has it.
_GONE = """topic STRING, partition INT, id BINARY, version BIGINT, offset BIGINT, fired_at BIGINT, reason STRING,
    due BIGINT, target STRING"""

# `worker.ODD` as Spark has it.
_ODD = "topic STRING, partition INT, key BINARY"

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
    ends: Offsets  # up to which the records are complete
    halted: Offsets  # partitions that end at a record of the future
    whole: bool  # these were the ends of the log when the batch was cut
    since_ms: int  # when that was
    formats: Mapping[str, str]  # topic -> its wire format
    topic_ids: Mapping[str, str]

    @property
    def known(self) -> Offsets:
        return self.position.offsets

    def stretches(self) -> list[Stretch]:
        """What is to be read."""
        complete = self.position.complete
        return [
            Stretch(
                *place, start, self.ends[place], complete.get(place, fold.NONE), self.topic_ids.get(place[0], ""),
                self.formats[place[0]],
            )
            for place, start in unread(self.known, self.ends).items()
        ]  # fmt: skip

    @property
    def moved(self) -> dict[Partition, int]:
        """Where the book stands with it, of the partitions that were looked at."""
        return {place: end for place, end in self.ends.items() if end >= self.known.get(place, 0)}

    def halting(self, found: Offsets) -> "Cut":
        """The same, but these partitions end sooner."""
        return dataclasses.replace(self, ends={**self.ends, **found}, halted={**self.halted, **found})


def unread(known: Offsets, ends: Offsets) -> dict[Partition, int]:
    """Rule 10: partitions with something new, and where that begins; a batch replayed whole would raise the dead."""
    starts = {place: known.get(place, BEGINNING) for place in ends}
    return {place: start for place, start in starts.items() if max(0, start) < ends[place]}


@dataclass(frozen=True)
class Batch:
    """See the module."""

    cut: Cut
    news: DataFrame  # `fold`'s rows and those of the offsets, with `whole` and what `state.fresh` says of them
    gone: DataFrame | None  # `fold`'s rows of what fired, if anything did
    odd: DataFrame | None  # keys of which the book's row still says something beside the batch: rare
    odd_keys: int
    records: int


@contextmanager
def folded(spark: SparkSession, log: Log, cut: Cut, book: str, folder: str) -> Iterator[Batch]:
    """The batch, for as long as the block lasts. A record of the future halts its partition there.

    `book` is the folder of the table.
    """
    place = f"{folder}/{time.time_ns()}"
    try:
        system, path = places.at(place)
        system.create_dir(path, recursive=True)
        shares = worker.shares(cut.stretches(), int(spark.conf.get("spark.sql.shuffle.partitions") or 1))
        work = worker.Work(log, worker.Book(book, cut.position.version) if cut.known else None, place)
        done = spark.sparkContext.parallelize(shares, len(shares)).map(work).collect() if shares else []
        for each in done:
            if each.error is not None:
                raise each.error
        cut = cut.halting({where: offset for each in done for where, offset in each.halts.items()})
        files = [each.file for each in done]
        found = _read(spark, files, _NEWS) if files else spark.createDataFrame(fold.NEWS.empty_table(), _NEWS)
        news = found.selectExpr(
            "*",
            "CAST(NULL AS STRING) AS topic_id",
            f"{str(cut.whole).lower()} AND {sql.by_partition(cut.halted, -1)} < 0 AS whole",
        )
        news = news.unionByName(_offsets(spark, cut), allowMissingColumns=True)
        fresh = state.fresh()
        news = news.alias("n").selectExpr(
            *(f"n.{name}" for name in news.columns if name not in fresh),
            *(f"{sql} AS {name}" for name, sql in fresh.items()),
        )
        gone, odd = [each.gone for each in done if each.gone], [each.odd for each in done if each.odd]
        yield Batch(
            cut=cut, news=news,
            gone=_read(spark, gone, _GONE) if gone else None,
            odd=_read(spark, odd, _ODD) if odd else None, odd_keys=sum(each.odd_keys for each in done),
            records=sum(each.records for each in done),
        )  # fmt: skip
    finally:
        places.discard(place)  # else it goes with the checkpoint


def _read(spark: SparkSession, files: list[str], schema: str) -> DataFrame:
    reader = spark.read.schema(schema).option("ignoreMissingFiles", "false").option("ignoreCorruptFiles", "false")
    return reader.parquet(*(re.sub(r"([\\{}\[\]*?])", r"\\\1", file) for file in files))  # not patterns


@contextmanager
def configured(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    """With that setting, for a moment: the session may be a caller's."""
    usual = spark.conf.get(key, None)
    spark.conf.set(key, value)
    try:
        yield
    finally:
        spark.conf.unset(key) if usual is None else spark.conf.set(key, usual)


def _offsets(spark: SparkSession, cut: Cut) -> DataFrame:
    """The partitions' rows."""
    known, complete, halted = cut.known, cut.position.complete, cut.halted
    rows = [
        (place[0], place[1], b"", fold.OFFSET, end, -1,
         end if cut.whole and place not in halted else complete.get(place, -1),
         # a partition that halts does not stand where the log ends: it ages (see `trust`)
         cut.position.since[place] if end == known.get(place) == halted.get(place) else cut.since_ms,
         cut.topic_ids.get(place[0]))
        for place, end in cut.moved.items()
    ]  # fmt: skip
    # As Arrow: of plain rows Spark makes a task of Python's, and a process for it that costs a second.
    columns = list(zip(*rows, strict=True)) or [()] * len(_OFFSETS)
    arrays = [pa.array(column, kind) for column, (_, kind) in zip(columns, _OFFSETS, strict=True)]
    return spark.createDataFrame(pa.table(arrays, pa.schema(_OFFSETS)))
