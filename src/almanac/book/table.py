"""The book: a Delta table with one row per pending schedule and one per source partition (rule 10).

Identity of a row: topic, partition, key, slot.

    slot -1   the word of that key: `version` and `kill` of rule 3, `pending`, `adrift` of rule 4
    slot >=0  garbage at that offset that nobody has disposed of yet (rule 5); `reason` says what is wrong with it
    slot -2   the partition itself: `version` is the next offset to read, `timestamp` when that was so,
              `last_offset` the last of these at which the log ended there: the book is *complete* up to it
    slot -3   the book itself: `version` is a number that changes when it is built anew or loses a topic

`wake` is the horizon from which a page needs the row: the due time of a schedule; -1 for rows that every page brings to
their wheel (adrift, garbage); null for all others. The table is clustered by it.

A repeat that comes late must not raise a word that is over. Of versions below `complete` the book knows all there is to
know: what is not pending there is over, and a repeat of it says nothing new. (The cleaner cannot have taken the
original before the book read it: the repeat did not exist then.) Only while the book is behind, over several batches,
does it keep words that are over, as dead rows without their payload.
"""

import logging
import random
import time
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.functions import arrow_udf  # `pyspark.sql.functions` has it without a stub

from almanac import errors
from almanac.book import decoders, fold, places, read, trust

log = logging.getLogger(__name__)

ATTEMPTS = 3

COLUMNS: Mapping[str, str] = {
    "topic": "STRING", "partition": "INT", "key": "BINARY", "slot": "BIGINT",
    "version": "BIGINT", "kill": "BIGINT", "pending": "BOOLEAN", "adrift": "BOOLEAN", "wake": "BIGINT",
    "due": "BIGINT", "timestamp": "BIGINT", "value": "BINARY", "headers": fold.HEADERS, "target": "STRING",
    "last_offset": "BIGINT", "last_kind": "STRING", "topic_id": "STRING", "reason": "STRING",
}  # fmt: skip


class Book:
    """The table below a group's book folder."""

    def __init__(self, folder: str, spark: SparkSession, page_length_ms: int = 300_000) -> None:
        self.folder = folder.rstrip("/")
        self.path = f"{self.folder}/book"
        self.spark = spark
        self._kept_ms = max(3 * page_length_ms, 3_600_000)  # a page reads the version it pinned: longer than two pages

    @property
    def table(self) -> str:
        """Its name in SQL."""
        return f"delta.`{self.path.replace('`', '``')}`"

    # Life

    def exists(self) -> bool:
        """Is there a table, readable or not?"""
        return places.exists(f"{self.path}/_delta_log")

    def create(self) -> None:
        """Makes the empty table if there is none."""
        if self.exists():
            return
        kept = f"interval {self._kept_ms // 1000} seconds"
        # Never without its own row: a batch that was cut from an earlier book must meet it (see `_replaced`).
        _itself(self.spark).createOrReplaceTempView("almanac_itself")
        self.spark.sql(f"""
            CREATE TABLE {self.table} USING delta CLUSTER BY (wake) TBLPROPERTIES (
                'almanac.schema' = '{trust.SCHEMA_VERSION}', 'delta.enableDeletionVectors' = 'true',
                'delta.dataSkippingStatsColumns' = 'slot,wake,partition,version',
                'delta.deletedFileRetentionDuration' = '{kept}', 'delta.logRetentionDuration' = '{kept}')
            AS SELECT * FROM almanac_itself""")

    def drop(self) -> None:
        """Forgets everything: the book will be built again from the beginning of the log."""
        places.remove(self.path)

    # What it says of itself

    def position(self) -> read.Position:
        """Up to where the latest version speaks. Asked without Spark: a job would take ten times as long."""
        return read.Reader(self.folder).position()

    def offsets(self) -> dict[fold.Partition, int]:
        """The next offset to read of each partition; empty for an empty book."""
        return self.position().offsets

    def distrust(
        self,
        topic_ids: Mapping[str, str],
        starts: fold.Offsets,
        ends: fold.Offsets,
        retention_ms: Mapping[str, int],
        now_ms: int | None = None,
    ) -> str | None:
        """Why the book must be built again (rule 10), or None if it is good; see `trust.distrust`."""
        if not self.exists():
            return "there is none yet"
        try:
            reader = read.Reader(self.folder)
        except Exception as error:  # whatever is wrong with it, the log has the truth
            return trust.unreadable(error)
        return trust.distrust(reader, topic_ids, starts, ends, retention_ms, now_ms)

    # What it is told

    def keep_only(self, topics: list[str]) -> None:
        """Takes the rows of topics out that are no schedules topics any more; coming back they start from scratch."""
        if {topic for topic, _ in self.offsets()} - set(topics):
            kept = ", ".join(decoders.literal(topic) for topic in topics)
            self._replace(_itself(self.spark), f"slot = {fold.BOOK} OR topic NOT IN ({kept})")

    def take(
        self,
        records: DataFrame,
        ends: fold.Offsets,
        decoder: decoders.Decoder,
        topic_ids: Mapping[str, str],
        *,
        whole: bool,
        since_ms: int | None = None,
    ) -> dict[fold.Partition, int]:
        """Folds a batch in, in one commit. Taking it twice, or one that overlaps what is known, changes nothing.

        `records` as the Kafka source gives them, `ends` the offset up to which they are complete, partition by
        partition. `whole`: these were the ends of the log when the batch was cut.

        Returns the partitions that halt at a record of the future: they are taken up to it and no further.
        """
        halted: dict[fold.Partition, int] = {}
        for attempt in range(1, ATTEMPTS + 1):
            try:
                # rule 10: the offsets are read again before each attempt
                self._take(
                    records, {**ends, **halted}, decoder, topic_ids, whole, since_ms or int(time.time() * 1000), halted
                )
                return halted
            except PySparkException as error:
                if fold.FUTURE in str(error) and not halted:
                    # Rare: so it is looked for when it was met, not before every batch.
                    unread = heard(records).where(_unread(self.offsets(), ends))
                    halted = fold.halts(fold.say(unread, decoder, topic_ids))
                    continue
                if attempt == ATTEMPTS or not _conflict(error):
                    raise
                log.info("another writer was faster on the book, attempt %d: %s", attempt, errors.brief(error))
        raise AssertionError("the last attempt returns or raises")

    def _take(
        self,
        records: DataFrame,
        ends: fold.Offsets,
        decoder: decoders.Decoder,
        topic_ids: Mapping[str, str],
        whole: bool,
        since_ms: int,
        halted: fold.Offsets,
    ) -> None:
        position = self.position()
        known, complete = position.offsets, position.complete
        folded = fold.fold(fold.say(heard(records).where(_unread(known, ends)), decoder, topic_ids), complete)
        rows = [
            (topic, partition, bytearray(), fold.OFFSET, max(end, known.get((topic, partition), 0)),
             end if whole and (topic, partition) not in halted else complete.get((topic, partition), -1),
             # a partition that halts does not stand where the log ends: it ages (see `trust`)
             position.since[topic, partition] if end == known.get((topic, partition)) == halted.get((topic, partition))
             else since_ms, topic_ids.get(topic))
            for (topic, partition), end in ends.items() if end >= known.get((topic, partition), 0)
        ]  # fmt: skip
        offsets = _row_of(
            records.sparkSession.createDataFrame(
                rows,
                "topic string, partition int, key binary, slot bigint, version bigint, last_offset bigint, "
                "timestamp bigint, topic_id string",
            ).coalesce(1)
        )
        news = folded.selectExpr("*", f"{str(whole).lower()} AND {fold.by_partition(halted, -1)} < 0 AS whole")
        moved = {(topic, partition): known.get((topic, partition), -1) for topic, partition, *_ in rows}
        if not known:
            self._fill(news, offsets)
        elif moved:
            self._merge(news, offsets, position, moved)
        if whole and not halted and complete != known:
            # It was behind and is not any more: the dead rows have done their work.
            self.spark.sql(f"DELETE FROM {self.table} WHERE slot = {fold.WORD} AND NOT pending AND NOT adrift")

    def _fill(self, news: DataFrame, offsets: DataFrame) -> None:
        """The first batch. It overwrites: whatever another writer did meanwhile, the table is one batch's truth."""
        rows = _rows(news).union(offsets.union(_itself(news.sparkSession)).coalesce(1))
        rows.write.format("delta").mode("overwrite").save(self.path)

    def _merge(self, news: DataFrame, offsets: DataFrame, position: read.Position, moved: fold.Offsets) -> None:
        """Later ones: rows of the book that the news speak of go, theirs come, in one commit (rule 10).

        It is a MERGE with one join, of everything but the payloads; Delta's own takes three, and all columns.
        `moved`: the partitions whose offsets move, and where each was.
        """
        spark = news.sparkSession
        news.createOrReplaceTempView("almanac_news")
        # 1. The news beside the book's rows of the same keys. Kept: it is needed three times.
        beside = spark.sql(BESIDE.format(table=self.table, version=position.version))
        beside = beside.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)
        beside.createOrReplaceTempView("almanac_beside")
        # 2. Which rows go. A word may stay although something was said of its key; few do.
        sources = {each: number for number, each in enumerate(sorted(moved))}
        known = beside.where("before IS NOT NULL").selectExpr(f"{_code(sources, 'before')} AS code", "stays").toArrow()
        spark.udf.register("almanac_gone", _gone(spark, frozenset(known["code"].to_pylist())))
        # 3. The rows that come. Of the book's payloads only those of words that stay are read.
        rows = _rows(beside.where("NOT stays"))
        if pc.any(known["stays"]).as_py():
            staying = spark.sql(STAYING.format(table=self.table, version=position.version))
            rows = rows.union(_rows(staying))
        self._replace(rows.union(offsets), _replaced(position, moved, sources))

    def _replace(self, rows: DataFrame, condition: str) -> None:
        """The book's rows for which the condition holds go, these come, in one commit."""
        # The condition is of what goes; without this Delta would demand it of what comes too.
        rows.sparkSession.conf.set("spark.databricks.delta.replaceWhere.constraintCheck.enabled", "false")
        rows.write.format("delta").mode("overwrite").option("replaceWhere", condition).save(self.path)

    # Upkeep, away from the firing path

    def tidy(self) -> None:
        """Joins small files and removes those that no page can be reading."""
        try:
            self.spark.sql(f"OPTIMIZE {self.table}")
            self.spark.sql(f"VACUUM {self.table}")
        except PySparkException as error:
            if not _conflict(error):
                raise
            log.info("the book was written meanwhile, tidied up next time: %s", errors.brief(error))


def heard(records: DataFrame) -> DataFrame:
    """Records of the Kafka source as the fold wants them."""
    return records.selectExpr(
        "topic", "partition", "offset", "unix_millis(timestamp) AS timestamp", "key", "value",
        "coalesce(headers, CAST(array() AS array<struct<key:string,value:binary>>)) AS headers",
    )  # fmt: skip


def _unread(known: fold.Offsets, ends: fold.Offsets) -> str:
    """Rule 10: what lies below the book's offsets is dropped; a replayed batch would raise the dead."""
    return f"offset >= {fold.by_partition(known, 0)} AND offset < {fold.by_partition(ends, 0)}"


# A row is pending, adrift (rule 4) or dead. n is the news, with `version` and `kill` of news and book together. The
# last record of a key is always the news': the batch was cut at the book's offsets.

_PENDING = f"(n.slot = {fold.WORD} AND n.version > n.kill)"
_ADRIFT = f"""(n.slot = {fold.WORD} AND CASE
    WHEN n.last_kind = 'S' THEN n.value IS NULL -- the cleaner would take it for a tombstone (see `words.NULL`)
    WHEN n.last_kind = 'C' THEN n.version > n.kill -- a peer's tombstone, which acknowledges an older version
    WHEN n.last_kind NOT IN ('T', 'R', 'X', 'D') THEN false
    WHEN n.version > n.kill THEN NOT (n.last_kind = 'R' AND n.last_version = n.version)
    ELSE n.last_kind = 'R' END)"""
# Nothing is left to be said of a word that is over.
_KEPT = f"""CASE WHEN n.slot = {fold.WORD} THEN {_PENDING} OR {_ADRIFT} OR NOT (n.whole OR n.kill = -1)
    ELSE n.last_kind = 'G' END"""
_LIVE = f"(n.slot <> {fold.WORD} OR n.version > n.kill)"  # dead ones lose their payload
_PAYLOAD = ("value", "headers", "target", "due", "timestamp")
_DEAD = {"headers": f"ELSE CAST(array() AS {fold.HEADERS})"}  # a list is never null: readers need not ask
_ROW: Mapping[str, str] = {
    **{name: f"n.{name}" for name in COLUMNS},
    **{name: f"CASE WHEN {_LIVE} THEN n.{name} {_DEAD.get(name, '')} END" for name in _PAYLOAD},
    # A dead row whose last record is a repeat: what it repeats is over, even if nothing else is known of it.
    "kill": f"""CASE WHEN n.slot <> {fold.WORD} THEN -1L
        WHEN n.version <= n.kill AND n.last_kind = 'R' THEN greatest(n.kill, n.last_version) ELSE n.kill END""",
    "pending": _PENDING,
    "adrift": _ADRIFT,
    "wake": f"CASE WHEN {_ADRIFT} OR n.slot >= 0 THEN -1L WHEN {_PENDING} THEN n.due END",
    "topic_id": "CAST(NULL AS STRING)",
}


def _rows(news: DataFrame) -> DataFrame:
    """The rows of the book that the news make."""
    return news.alias("n").where(_KEPT).selectExpr(*(f"{expression} AS {name}" for name, expression in _ROW.items()))


def _row_of(few: DataFrame) -> DataFrame:
    """Rows that are no schedules, with the columns of the book that they lack."""
    usual = {"kill": "-1L", "pending": "false", "adrift": "false"}
    return few.selectExpr(
        *(
            f"CAST({name if name in few.columns else usual.get(name, 'NULL')} AS {kind}) AS {name}"
            for name, kind in COLUMNS.items()
        )
    )


def _itself(spark: SparkSession) -> DataFrame:
    """The row of a book that is new, or is not what it was."""
    return _row_of(
        spark.createDataFrame([(fold.BOOK, random.getrandbits(62))], "slot bigint, version bigint").coalesce(1)
    )


# The hash first, as in the fold: then nothing of the news is brought together or sorted once more.
BESIDE = f"""
SELECT n.* EXCEPT (hash, id, version, kill),
       greatest(n.version, b.version) AS version, greatest(n.kill, b.kill) AS kill,
       if(n.slot = {fold.WORD}, b.last_offset, b.slot) AS before,
       coalesce(n.slot = {fold.WORD} AND b.version >= n.version AND b.version > greatest(n.kill, b.kill), false)
           AS stays
FROM almanac_news AS n LEFT JOIN (
    SELECT {fold.HASH} AS hash, coalesce(key, X'') AS id, slot, partition, topic, version, kill, last_offset
    FROM {{table}} VERSION AS OF {{version}} WHERE slot >= {fold.WORD}
) AS b ON n.hash = b.hash AND n.id = b.id AND n.slot = b.slot AND n.partition = b.partition AND n.topic = b.topic
"""

STAYING = f"""
SELECT n.* EXCEPT ({", ".join(_PAYLOAD)}), {", ".join(f"b.{name}" for name in _PAYLOAD)}
FROM almanac_beside AS n JOIN {{table}} VERSION AS OF {{version}} AS b
ON n.before = b.last_offset AND n.partition = b.partition AND n.topic = b.topic
WHERE n.stays AND b.slot = {fold.WORD}
"""

# A row that goes is named by a number: that of its last record (garbage: of the record itself) and of the partition.


def _code(sources: Mapping[fold.Partition, int], record: str) -> str:
    """The number of a row: exact, other than a hash."""
    return f"(({record} * 2 + if(slot >= 0, 1, 0)) * {len(sources)} + {fold.by_partition(sources, 0)})"


def _gone(spark: SparkSession, codes: frozenset[int]) -> Any:
    """A function for SQL: is this one of the codes? Python's set and not a join: nothing of the book is moved."""
    shared = spark.sparkContext.broadcast(codes)

    def gone(asked: pa.Array) -> pa.Array:
        known = shared.value
        return pa.array([code in known for code in asked.to_pylist()], pa.bool_())

    make: Any = arrow_udf  # see `decoders`
    return make(gone, "boolean")


_CONFLICT = "almanac: the book changed since the batch was cut"


def _replaced(position: read.Position, moved: fold.Offsets, sources: Mapping[fold.Partition, int]) -> str:
    """Which rows of the book go. Fails (`_CONFLICT`) on a book that is not the one the batch was cut by.

    Another writer may have moved its offsets, or built it anew, since its position was read. One that commits while
    this is written is Delta's to refuse.
    """
    code = _code(sources, f"if(slot = {fold.WORD}, last_offset, slot)")
    was = fold.by_partition(moved, -2)
    return f"""CASE
        WHEN slot >= {fold.WORD} THEN {fold.by_partition(sources, -1)} >= 0 AND almanac_gone({code})
        WHEN slot = {fold.OFFSET} THEN CASE {was} WHEN -2L THEN false WHEN version THEN true
            ELSE raise_error('{_CONFLICT}') END
        WHEN version = {position.book} THEN false
        ELSE raise_error('{_CONFLICT}') END"""


def _conflict(error: PySparkException) -> bool:
    text = str(error)
    return _CONFLICT in text or "DELTA_CONCURRENT" in text or "ConcurrentModification" in text
