"""The book: a Delta table with one row per pending schedule and one per source partition (rule 10).

Identity of a row: topic, partition, key, slot.

    slot -1   the word of that key: `version` and `kill` of rule 3, `pending`, `adrift` of rule 4
    slot >=0  garbage at that offset that nobody has disposed of yet (rule 5); `reason` says what is wrong with it
    slot -2   the partition itself: `version` is the next offset to read, `timestamp` when that was so,
              `last_offset` the last of these at which the log ended there: the book is *complete* up to it

`wake` is the horizon from which a page needs the row: the due time of a schedule; -1 for rows that every page brings to
their wheel (adrift, garbage); null for all others. The table is clustered by it.

A repeat that comes late must not raise a word that is over. Of versions below `complete` the book knows all there is to
know: what is not pending there is over, and a repeat of it says nothing new. (The cleaner cannot have taken the
original before the book read it: the repeat did not exist then.) Only while the book is behind, over several batches,
does it keep words that are over, as dead rows without their payload.
"""

import logging
import time
from collections.abc import Callable, Mapping

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from almanac import errors
from almanac.book import batch, decoders, fold, places, read, state, trust

log = logging.getLogger(__name__)

ATTEMPTS = 3
CLUSTER = "wake"  # the column whose order the files have
# Rows of a file: so few that a page, and whoever asks, reads only what is due then. (Payloads may be of any size, and
# compress to nothing: bytes say little.)
FILE_ROWS = 100_000

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
        columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        self.spark.sql(f"""
            CREATE TABLE {self.table} ({columns}) USING delta CLUSTER BY ({CLUSTER}) TBLPROPERTIES (
                'almanac.schema' = '{trust.SCHEMA_VERSION}', 'delta.enableDeletionVectors' = 'true',
                'delta.dataSkippingStatsColumns' = 'slot,wake,partition,version',
                'delta.deletedFileRetentionDuration' = '{kept}', 'delta.logRetentionDuration' = '{kept}')""")

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
            self.spark.sql(f"DELETE FROM {self.table} WHERE topic NOT IN ({kept})")

    def take(
        self,
        records: DataFrame,
        ends: fold.Offsets,
        decoder: decoders.Decoder,
        topic_ids: Mapping[str, str],
        *,
        whole: bool,
        since_ms: int | None = None,
        halted: fold.Offsets | None = None,
        kept: str | None = None,
        before: Callable[[batch.Batch], object] | None = None,
    ) -> dict[fold.Partition, int]:
        """Folds a batch in, in one commit. Taking it twice, or one that overlaps what is known, changes nothing.

        `records` as the Kafka source gives them, `ends` the offset up to which they are complete, partition by
        partition. `whole`: these were the ends of the log when the batch was cut. `before` is told of the batch while
        the book does not know it yet. `kept` is the folder where its rows are meanwhile.

        Returns the partitions that halt at a record of the future: they are taken up to it and no further. `halted` are
        those that are known to.
        """
        halts = dict(halted or {})
        for attempt in range(1, ATTEMPTS + 1):
            cut = batch.Cut(
                position=self.position(),  # rule 10: read again before each attempt
                ends={**ends, **halts}, halted=halts, whole=whole, since_ms=since_ms or int(time.time() * 1000),
                decoder=decoder, topic_ids=topic_ids,
            )  # fmt: skip
            try:
                with batch.folded(records, cut, kept or f"{self.folder}/batches") as folded:
                    if before is not None:
                        before(folded)
                    self._put(folded)
                return halts
            except PySparkException as error:
                if fold.FUTURE in str(error) and attempt < ATTEMPTS:
                    # Rare: so it is looked for when it was met, not before every batch.
                    halts = {**halts, **fold.halts(cut.of(records))}
                    continue
                if attempt == ATTEMPTS or not conflict(error):
                    raise
                log.info("another writer was faster on the book, attempt %d: %s", attempt, errors.brief(error))
        raise AssertionError("the last attempt returns or raises")

    def _put(self, folded: batch.Batch) -> None:
        cut = folded.cut
        if cut.known:
            self._merge(folded.news)
        else:
            self._fill(folded.news)
        if cut.whole and not cut.halted and cut.position.complete != cut.known:
            # It was behind and is not any more: the dead rows have done their work.
            self.spark.sql(f"DELETE FROM {self.table} WHERE slot = {fold.WORD} AND NOT pending AND NOT adrift")

    def _fill(self, news: DataFrame) -> None:
        """The first batch. It overwrites: whatever another writer did meanwhile, the table is one batch's truth."""
        inserted = (f"{expression} AS {name}" for name, expression in _INSERT.items())
        rows = news.alias("n").where("n.kept").selectExpr(*inserted)
        # In as many files as there are tasks: more of them took a third longer, and `tidy` puts them in order.
        # An overwrite of all there is, as such, forgets what the table is clustered by.
        rows.write.format("delta").mode("overwrite").option("replaceWhere", "true").save(self.path)

    def _merge(self, news: DataFrame) -> None:
        news.createOrReplaceTempView("almanac_news")
        # The source is files that nobody changes: Delta need not keep them once more.
        with batch.configured(news.sparkSession, "spark.databricks.delta.merge.materializeSource", "none"):
            news.sparkSession.sql(MERGE.format(table=self.table))

    # Upkeep, away from the firing path

    def tidy(self) -> None:
        """Puts what is new in order, and removes files that no page can be reading."""
        try:
            with batch.configured(self.spark, "spark.sql.files.maxRecordsPerFile", str(FILE_ROWS)):
                self.spark.sql(f"OPTIMIZE {self.table}")
            self.spark.sql(f"VACUUM {self.table}")
        except PySparkException as error:
            if not conflict(error):
                raise
            log.info("the book was written meanwhile, tidied up next time: %s", errors.brief(error))


_CONFLICT = "almanac: the offsets moved since the batch was cut"
# What a batch alone says, with no row in the book: `state.fresh`.
_INSERT: Mapping[str, str] = {
    **{name: f"n.{name}" for name in COLUMNS},
    "version": f"""CASE WHEN n.slot = {fold.OFFSET} AND n.kill <> -1 THEN raise_error('{_CONFLICT}')
        ELSE n.version END""",
    "kill": "n.killed",
}
_BOTH = ("greatest(b.version, n.version)", "greatest(b.kill, n.kill)")


def _update() -> dict[str, str]:
    """A word's row: the batch's word if it is newer, else the old one stays; dead ones lose their payload."""
    payload = {
        name: f"""CASE WHEN {state.pending(*_BOTH)} THEN CASE WHEN n.version > b.version THEN n.{name} ELSE b.{name} END
            {state.DEAD.get(name, "")} END"""
        for name in state.PAYLOAD
    }
    return {
        "version": _BOTH[0], "kill": state.kill(*_BOTH), "pending": state.pending(*_BOTH),
        "adrift": state.adrift(*_BOTH),
        "wake": state.wake(*_BOTH, "CASE WHEN n.version > b.version THEN n.due ELSE b.due END"),
        "last_offset": "n.last_offset", "last_kind": "n.last_kind", **payload,
    }  # fmt: skip


def _assignments(columns: Mapping[str, str]) -> str:
    return ", ".join(f"b.{name} = {expression}" for name, expression in columns.items())


_HASH = "xxhash64(coalesce(b.key, X''), b.partition, b.slot)"  # `fold.HASH` of the book's row

# The statement that keeps the book (rule 10: words, garbage and offsets in one commit). A second writer that moved the
# offsets after this batch was cut makes the whole statement fail; one that commits while it runs is Delta's to refuse.
MERGE = f"""
MERGE INTO {{table}} AS b USING almanac_news AS n
ON {_HASH} = n.hash AND b.topic = n.topic AND b.partition = n.partition AND b.slot = n.slot AND b.key <=> n.key
WHEN MATCHED AND n.slot = {fold.OFFSET} THEN UPDATE SET
    b.version = CASE WHEN b.version = n.kill THEN n.version ELSE raise_error('{_CONFLICT}') END,
    b.timestamp = n.timestamp, b.last_offset = n.last_offset, b.topic_id = n.topic_id
WHEN MATCHED AND n.slot >= 0 AND n.last_kind = 'D' THEN DELETE
WHEN MATCHED AND {state.over(*_BOTH)} THEN DELETE
WHEN MATCHED AND n.slot = {fold.WORD} THEN UPDATE SET {_assignments(_update())}
WHEN NOT MATCHED AND n.kept THEN INSERT ({", ".join(_INSERT)}) VALUES ({", ".join(_INSERT.values())})
"""


def conflict(error: PySparkException) -> bool:
    """Did another writer's commit come first?"""
    text = str(error)
    return _CONFLICT in text or "DELTA_CONCURRENT" in text or "ConcurrentModification" in text
