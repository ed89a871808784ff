"""What fired: a Delta table beside the book, fed by the book's stream from the tombstones that it reads anyway.

A row is a version of a schedule that is over because a wheel acknowledged it (rule 3): `outcome` is `fired`, or the
reason of its dead letter. What a user cancelled or replaced never fired, and is not here. Due time and target come from
the schedule itself: from the same batch, or from the book's row, which is why a batch is taken here before the book
takes it. They are null where neither has it any more.

    date       the day (UTC) it fired, by which the table is partitioned; null for a row of marks
    fired_at   the tombstone's timestamp, epoch ms; lateness = fired_at - due
    marks      JSON, in rows without a date: up to which offset of which partition the tombstones are here

Rows and marks are one commit, and what lies below the marks is left out: a batch that is taken again (a crash between
this commit and the book's) adds nothing, and a book that is built again from the log neither doubles nor forgets. A
commit is numbered (Delta's transaction version), so of two schedulers that take the same batch one begins again.

Marks belong to a topic's id. If a topic is made anew its offsets begin anew, and so do its marks; what fired before
stays in the table, as it did fire. The rows are no cache: what the cleaner took from the log cannot be read again. A
table that cannot be read is set aside, and a new one begins with what the log still has behind the book's offsets.
(Only a log that lost its end, and is written over there, has tombstones that are taken for known ones.)
"""

import json
import logging
import time
from collections.abc import Mapping
from typing import NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from almanac import errors
from almanac.book import batch, places, read, search, sql, stretch, table

log = logging.getLogger(__name__)

DAY = 86_400_000  # ms
WRITER = "almanac-fired"  # Delta's name of the numbers of our commits

COLUMNS: Mapping[str, str] = {
    "id": "BINARY", "topic": "STRING", "partition": "INT", "version": "BIGINT", "target": "STRING", "due": "BIGINT",
    "fired_at": "BIGINT", "lateness": "BIGINT", "outcome": "STRING", "marks": "STRING", "date": "DATE",
}  # fmt: skip


class Marks(NamedTuple):
    """Up to where the table speaks."""

    number: int  # of the commit, -1 before the first
    offsets: dict[tuple[str, str, int], int]  # topic, its id, partition

    def of(self, topic_ids: Mapping[str, str]) -> dict[stretch.Partition, int]:
        """Those of the topics as they are now."""
        return {(t, p): offset for (t, id_, p), offset in self.offsets.items() if topic_ids.get(t) == id_}

    def moved(self, ends: stretch.Offsets, topic_ids: Mapping[str, str]) -> "Marks":
        """The next ones. Of a topic that was made anew the old ones are dropped."""
        kept = {each: offset for each, offset in self.offsets.items() if topic_ids.get(each[0], each[1]) == each[1]}
        for (topic, partition), end in ends.items():
            place = topic, topic_ids.get(topic, ""), partition
            kept[place] = max(end, kept.get(place, 0))
        return Marks(self.number + 1, kept)

    def to_json(self) -> str:
        return json.dumps([[*place, offset] for place, offset in sorted(self.offsets.items())])

    @classmethod
    def from_json(cls, number: int, text: str) -> "Marks":
        return cls(number, {(topic, id_, partition): offset for topic, id_, partition, offset in json.loads(text)})


class Fired:
    """The table below a group's book folder."""

    def __init__(self, folder: str, spark: SparkSession, retention_days: int = 7) -> None:
        self.path = f"{folder.rstrip('/')}/fired"
        self.spark = spark
        self._days = retention_days  # -1: for ever

    @property
    def in_sql(self) -> str:
        """Its name there."""
        return f"delta.`{self.path.replace('`', '``')}`"

    # Life

    def open(self) -> None:
        """Makes the table if there is none; sets one aside that cannot be read."""
        try:
            if places.exists(f"{self.path}/_delta_log"):
                self._read_through()
                return
        except Exception as error:  # whatever is wrong with it, the book must go on
            aside = f"{self.path}-damaged-{time.time_ns() // 1_000_000_000}"
            log.error("what fired cannot be read and is set aside as %s: %s", aside, errors.brief(error))
            places.move(self.path, aside)
        columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        self.spark.sql(f"""
            CREATE TABLE {self.in_sql} ({columns}) USING delta PARTITIONED BY (date) TBLPROPERTIES (
                'almanac.schema' = '1', 'delta.dataSkippingStatsColumns' = 'fired_at,version',
                'delta.enableDeletionVectors' = 'true', 'delta.deletedFileRetentionDuration' = 'interval 1 hours',
                'delta.logRetentionDuration' = 'interval 1 hours')""")

    def _read_through(self) -> None:
        self.marks()
        query = read.query(fired=read.opened(self.path))
        read.rows(query, f"SELECT {', '.join(f'count({name})' for name in COLUMNS)} FROM fired")

    def marks(self) -> Marks:
        """Up to where the latest version speaks."""
        found = read.opened(self.path)
        number = found.transaction_version(WRITER)
        if number is None:
            return Marks(-1, {})
        rows = read.rows(
            read.query(fired=found), f"SELECT marks FROM fired WHERE date IS NULL AND version = {int(number)}"
        )
        if len(rows) != 1:
            raise read.BookError(f"{self.path} has {len(rows)} rows of marks with number {number}, and one is right")
        return Marks.from_json(number, rows[0]["marks"])

    # What it is told

    def take(self, folded: batch.Batch) -> int:
        """Adds what the batch says was fired, in one commit; says how many. To be called before the book takes it."""
        cut = folded.cut
        if folded.gone is None:
            return 0  # the marks stay: there is nothing to be taken twice
        for attempt in range(1, table.ATTEMPTS + 1):
            marks = self.marks()
            gone = self._gone(folded.gone, marks.of(cut.topic_ids), cut.ends)
            total = gone.count()
            if not total:
                return 0
            told = gone.selectExpr(
                "id", "topic", "partition", "version", "target", "due", "fired_at", "fired_at - due AS lateness",
                f"coalesce(reason, '{search.FIRED}') AS outcome", "CAST(NULL AS STRING) AS marks",
                f"date_from_unix_date(CAST(fired_at DIV {DAY} AS INT)) AS date",
            )  # fmt: skip
            if self._append(told, marks.moved(cut.ends, cut.topic_ids)):
                return total
            log.info("another writer was faster on what fired, attempt %d", attempt)
        raise RuntimeError(f"what fired could not be written: others were faster {table.ATTEMPTS} times")

    def _gone(self, told: DataFrame, marks: stretch.Offsets, ends: stretch.Offsets) -> DataFrame:
        """The tombstones that are not here yet."""
        # By the day: a number that is new each time makes Spark compile the whole question again.
        oldest = (int(time.time() * 1000) // DAY - self._days) * DAY if self._days >= 0 else 0
        return told.where(f"{_between(marks, ends)} AND fired_at >= {oldest}").drop("offset")

    def _append(self, told: DataFrame, marks: Marks) -> bool:
        """Whether it is written: Delta leaves a number out, without a word, that another writer has used."""
        mark = told.sparkSession.sql(f"SELECT {marks.number}L AS version, {sql.literal(marks.to_json())} AS marks")
        writer = told.unionByName(mark, allowMissingColumns=True).write.format("delta").mode("append")
        try:
            writer.option("txnAppId", WRITER).option("txnVersion", marks.number).save(self.path)
        except PySparkException as error:
            if not table.conflict(error):
                raise
            return False
        return self.marks() == marks

    # Upkeep

    def tidy(self, now_ms: int | None = None) -> None:
        """Forgets what is older than its retention, joins small files, removes those that nobody reads."""
        number = self.marks().number
        today = (int(time.time() * 1000) if now_ms is None else now_ms) // DAY
        try:
            self.spark.sql(f"DELETE FROM {self.in_sql} WHERE date IS NULL AND version < {number}")
            if self._days >= 0:
                self.spark.sql(
                    f"DELETE FROM {self.in_sql} WHERE date < date_from_unix_date(CAST({today - self._days} AS INT))"
                )
            self.spark.sql(f"OPTIMIZE {self.in_sql}")
            self.spark.sql(f"VACUUM {self.in_sql}")
        except PySparkException as error:
            if not table.conflict(error):
                raise
            log.info("what fired was written meanwhile, tidied up next time: %s", errors.brief(error))


def _between(marks: stretch.Offsets, ends: stretch.Offsets) -> str:
    return f"offset >= {sql.by_partition(marks, 0)} AND offset < {sql.by_partition(ends, 0)}"
