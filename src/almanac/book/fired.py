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
from pyspark.sql import DataFrame, SparkSession, functions

from almanac import errors, words
from almanac.book import decoders, fold, places, read, search, table

log = logging.getLogger(__name__)

DAY = 86_400_000  # ms
WRITER = "almanac-fired"  # Delta's name of the numbers of our commits
FEW = 100_000  # versions that go to where the book's rows are
MANY = 1_000_000  # versions that are looked up in the batch before it is decoded, not after
EARLY = 3_600_000  # ms: no clock is so wrong that what fired was due that much later

COLUMNS: Mapping[str, str] = {
    "id": "BINARY", "topic": "STRING", "partition": "INT", "version": "BIGINT", "target": "STRING", "due": "BIGINT",
    "fired_at": "BIGINT", "lateness": "BIGINT", "outcome": "STRING", "marks": "STRING", "date": "DATE",
}  # fmt: skip


class Marks(NamedTuple):
    """Up to where the table speaks."""

    number: int  # of the commit, -1 before the first
    offsets: dict[tuple[str, str, int], int]  # topic, its id, partition

    def of(self, topic_ids: Mapping[str, str]) -> dict[fold.Partition, int]:
        """Those of the topics as they are now."""
        return {(t, p): offset for (t, id_, p), offset in self.offsets.items() if topic_ids.get(t) == id_}

    def moved(self, ends: fold.Offsets, topic_ids: Mapping[str, str]) -> "Marks":
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

    def take(
        self,
        records: DataFrame,
        ends: fold.Offsets,
        decoder: decoders.Decoder,
        topic_ids: Mapping[str, str],
        book: table.Book,
        known: fold.Offsets,
    ) -> int:
        """Adds what the batch says was fired, in one commit; says how many. To be called before `Book.take`.

        `known` are the book's offsets: what it knows is looked up there, the rest in the batch.
        """
        for attempt in range(1, table.ATTEMPTS + 1):
            marks = self.marks()
            heard = _tombstones(records, topic_ids).persist()
            try:
                gone = heard.where(self._fresh(marks.of(topic_ids), ends)).drop("offset")
                seen = _Seen.of(gone)
                if not seen.total:
                    return 0  # the marks stay: there is nothing to be taken twice
                told = self._told(records, gone, seen, decoder, topic_ids, book, known)
                if self._append(told, marks.moved(ends, topic_ids)):
                    return seen.total
            finally:
                heard.unpersist()
            log.info("another writer was faster on what fired, attempt %d", attempt)
        raise RuntimeError(f"what fired could not be written: others were faster {table.ATTEMPTS} times")

    def _fresh(self, marks: fold.Offsets, ends: fold.Offsets) -> str:
        oldest = int(time.time() * 1000) - self._days * DAY if self._days >= 0 else 0
        within = f"offset >= {fold.by_partition(marks, 0)} AND offset < {fold.by_partition(ends, 0)}"
        return f"{within} AND fired_at >= {oldest}"

    def _told(
        self,
        records: DataFrame,
        gone: DataFrame,
        seen: "_Seen",
        decoder: decoders.Decoder,
        topic_ids: Mapping[str, str],
        book: table.Book,
        known: fold.Offsets,
    ) -> DataFrame:
        """With due time and target, from whoever has them."""
        sources, place = [], ["topic", "partition", "id", "version"]
        if any(least < known.get(each, 0) for each, least in seen.least.items()):
            # what fired was due: the files of later years need not be read
            woke = "" if seen.buried else f"AND wake <= {seen.latest + EARLY}"
            rows = book.spark.sql(
                f"SELECT topic, partition, key AS id, version, due, target FROM {book.table} "
                f"WHERE slot = {fold.WORD} AND pending {woke}"
            )
            # few ones go to where the book's rows are, not these to them
            few = functions.broadcast(gone.select(*place)) if seen.total <= FEW else None
            sources.append(rows if few is None else rows.join(few, place, "left_semi"))
        if any(most >= known.get(each, 0) for each, most in seen.most.items()):
            sources.append(_spoken(records, gone, seen, decoder, topic_ids))
        told = gone.selectExpr("*", "CAST(NULL AS BIGINT) AS due", "CAST(NULL AS STRING) AS target")
        if sources:
            # A repeat says the same as its original: one of them is enough.
            words_ = sources[0] if len(sources) == 1 else sources[0].unionByName(sources[1])
            once = words_.groupBy(*place).agg(functions.expr("any_value(struct(due, target)) AS word"))
            told = gone.join(once, place, "left").selectExpr(*gone.columns, "word.due", "word.target")
        return told.selectExpr(
            "id", "topic", "partition", "version", "target", "due", "fired_at", "fired_at - due AS lateness",
            f"coalesce(reason, '{search.FIRED}') AS outcome", "CAST(NULL AS STRING) AS marks",
            f"date_from_unix_date(CAST(fired_at DIV {DAY} AS INT)) AS date",
        )  # fmt: skip

    def _append(self, told: DataFrame, marks: Marks) -> bool:
        """Whether it is written: Delta leaves a number out, without a word, that another writer has used."""
        mark = told.sparkSession.sql(f"SELECT {marks.number}L AS version, {decoders.literal(marks.to_json())} AS marks")
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


class _Seen(NamedTuple):
    """What the tombstones of a batch have in common."""

    total: int
    least: dict[fold.Partition, int]  # versions
    most: dict[fold.Partition, int]
    latest: int  # epoch ms
    buried: bool  # some ended in the dead letters, perhaps before they were due

    @classmethod
    def of(cls, gone: DataFrame) -> "_Seen":
        rows = gone.groupBy("topic", "partition").agg(
            functions.expr("count(*)"), functions.expr("min(version)"), functions.expr("max(version)"),
            functions.expr("max(fired_at)"), functions.expr("count(reason)"),
        ).collect()  # fmt: skip
        return cls(
            sum(row[2] for row in rows),
            {(row[0], row[1]): row[3] for row in rows},
            {(row[0], row[1]): row[4] for row in rows},
            max((row[5] for row in rows), default=0),
            any(row[6] for row in rows),
        )


def _tombstones(records: DataFrame, topic_ids: Mapping[str, str]) -> DataFrame:
    """Our tombstones (kind T of `words`), by a cheap question of their own: nothing else is decoded for it.

    The same words for every batch, so that Spark compiles it once. And not `fold.say` with a filter on what it says:
    Spark would put the whole of it into the filter, and that into one method too large for Java.
    """
    null = table.heard(records).where(f"value IS NULL AND array_contains(headers.key, '{words.ACKS}')")
    named = null.selectExpr("*", "headers.key AS names", "headers.value AS contents")
    said = named.where(
        "NOT contains(array_join(names, ' '), '\ufffd') "
        f"AND coalesce({decoders.header(words.TOPIC_ID)} = CAST({fold.by_topic(topic_ids)} AS BINARY), true)"
    ).selectExpr(
        "topic", "partition", "coalesce(key, X'') AS id", "offset", "timestamp AS fired_at",
        f"{decoders.text(words.ACKS)} AS acks", f"{decoders.text(words.REASON)} AS reason",
    )  # fmt: skip
    numbered = said.selectExpr("*", f"{decoders.number('acks', 18)} AS number").where("number IS NOT NULL")
    return numbered.selectExpr(
        "topic", "partition", "id", "offset", "least(number, offset) AS version", "fired_at", "reason"
    )  # fmt: skip


def _spoken(
    records: DataFrame, gone: DataFrame, seen: _Seen, decoder: decoders.Decoder, topic_ids: Mapping[str, str]
) -> DataFrame:
    """The words among the records that may be of these versions."""
    version = decoders.number(decoders.text(words.VERSION), 18)
    said = f"CASE WHEN {decoders.present(words.VERSION)} THEN {version} END"
    heard = table.heard(records).selectExpr("*", "headers.key AS names", "headers.value AS contents")
    heard = heard.selectExpr("*", f"least(coalesce({said}, offset), offset) AS says").where(
        f"says >= {fold.by_partition(seen.least, 1 << 62)} AND says <= {fold.by_partition(seen.most, -1)}"
    )
    if seen.total <= MANY:
        # by one number each: Spark keeps a million of these in little memory, and finds one quickly
        places = {place: number for number, place in enumerate(sorted(seen.least))}

        def code(version: str) -> str:
            return f"{version} * {len(places)}L + {fold.by_partition(places, 0)} AS place"

        heard = heard.selectExpr("*", code("says")).join(
            functions.broadcast(gone.selectExpr(code("version"))), "place", "left_semi"
        )
    # No filter on what is said (see `_tombstones`), not even one that Spark adds, as for a null in a join.
    # Only words have a version.
    return fold.say(heard.drop("names", "contents", "says", "place"), decoder, topic_ids).selectExpr(
        "topic", "partition", "coalesce(key, X'') AS id", "coalesce(version, -1L) AS version", "due", "target"
    )
