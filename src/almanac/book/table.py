"""The book: a Delta table with one row per pending schedule and one per source partition (rule 10).

Identity of a row: topic, partition, key, slot.

    slot -1   the word of that key: `version` and `kill` of rule 3, `pending`, `adrift` of rule 4
    slot >=0  garbage at that offset that nobody has disposed of yet (rule 5); `reason` says what is wrong with it
    slot -2   the partition itself: `version` is the next offset to read, `timestamp` when that was so,
              `last_offset` the last of these at which the log ended there: the book is *complete* up to it

`met`: a word that took the place of another row when it was written; null where nobody looked.

`wake` is the horizon from which a page needs the row: the due time of a schedule; -1 for rows that every page brings to
their wheel (adrift, garbage); null for all others. The table is clustered by it.

A repeat that comes late must not raise a word that is over. Of versions below `complete` the book knows all there is to
know: what is not pending there is over, and a repeat of it says nothing new. (The cleaner cannot have taken the
original before the book read it: the repeat did not exist then.) Only while the book is behind, over several batches,
need it know what is over. But a row that strikes another one out takes its place, as a dead row without payload
(`wake` is null): they are forgotten when the book is put in order.
"""

import logging
import time
from collections.abc import Callable, Mapping

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession, functions

from almanac import errors
from almanac.book import batch, fold, places, read, sql, state, stretch, trust

log = logging.getLogger(__name__)

ATTEMPTS = 3
CLUSTER = "wake"  # the column whose order the files have
# Rows of a file: so few that a page, and whoever asks, reads only what is due then. (Payloads may be of any size, and
# compress to nothing: bytes say little.)
FILE_ROWS = 100_000
FEW = 100_000  # keys that go to where the book's rows are

COLUMNS: Mapping[str, str] = {
    "topic": "STRING", "partition": "INT", "key": "BINARY", "slot": "BIGINT",
    "version": "BIGINT", "kill": "BIGINT", "pending": "BOOLEAN", "adrift": "BOOLEAN", "wake": "BIGINT",
    "due": "BIGINT", "timestamp": "BIGINT", "value": "BINARY", "headers": sql.HEADERS, "target": "STRING",
    "last_offset": "BIGINT", "last_kind": "STRING", "topic_id": "STRING", "reason": "STRING", "met": "BOOLEAN",
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
        # Elsewhere first: whoever still writes finds none, or one whose numbers are all above theirs (rule 10).
        made = f"{self.path}-{time.time_ns()}"
        self._make(f"delta.`{made.replace('`', '``')}`")
        empty = self.spark.createDataFrame([], self.spark.read.format("delta").load(made).schema)
        self._numbered(empty.write.mode("append"), time.time_ns()).save(made)
        try:
            places.move(made, self.path)
        except OSError:
            if not self.exists():
                raise
            places.discard(made)  # another writer was faster

    def _make(self, name: str) -> None:
        kept = f"interval {self._kept_ms // 1000} seconds"
        columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        self.spark.sql(f"""
            CREATE TABLE {name} ({columns}) USING delta CLUSTER BY ({CLUSTER}) TBLPROPERTIES (
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

    def offsets(self) -> dict[stretch.Partition, int]:
        """The next offset to read of each partition; empty for an empty book."""
        return self.position().offsets

    def distrust(
        self,
        topic_ids: Mapping[str, str],
        starts: stretch.Offsets,
        ends: stretch.Offsets,
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
        position = self.position()
        if {topic for topic, _ in position.offsets} - set(topics):
            kept = ", ".join(sql.literal(topic) for topic in topics)
            none = self.spark.sql(f"SELECT * FROM {self.table} WHERE false")
            writer = none.write.mode("overwrite").option("replaceWhere", f"topic NOT IN ({kept})")
            # Numbered: a batch that another writer cut before must not bring offsets back without their rows.
            self._numbered(writer, position.number + 1).save(self.path)

    def take(
        self,
        records: stretch.Log,
        ends: stretch.Offsets,
        formats: Mapping[str, str],
        topic_ids: Mapping[str, str],
        *,
        whole: bool,
        since_ms: int | None = None,
        halted: stretch.Offsets | None = None,
        kept: str | None = None,
        before: Callable[[batch.Batch], object] | None = None,
    ) -> batch.Batch:
        """Folds a batch in, in one commit. Taking it twice, or one that overlaps what is known, changes nothing.

        `ends` are the offsets up to which the log is complete, partition by partition. `whole`: it ended there when the
        batch was cut. `before` is told of the batch while the book does not know it yet. `kept` is the folder where its
        rows are meanwhile.

        Partitions that halt at a record of the future are taken up to it and no further: the batch's `cut.halted`.
        `halted` are those that are known to.
        """
        for attempt in range(1, ATTEMPTS + 1):
            cut = batch.Cut(
                position=self.position(),  # rule 10: read again before each attempt
                ends=ends, halted=halted or {}, whole=whole, since_ms=since_ms or int(time.time() * 1000),
                formats=formats, topic_ids=topic_ids,
            )  # fmt: skip
            try:
                with batch.folded(self.spark, records, cut, self.path, kept or f"{self.folder}/batches") as folded:
                    if before is not None:
                        before(folded)
                    if self._put(folded):
                        return folded
            except PySparkException as error:
                if attempt == ATTEMPTS or not conflict(error):
                    raise
                log.debug("attempt %d", attempt, exc_info=error)
            log.info("another writer was faster on the book, attempt %d", attempt)
        raise read.BookError(f"{self.path} could not be written: others were faster {ATTEMPTS} times")

    def _put(self, folded: batch.Batch) -> bool:
        """Words, garbage and offsets in one commit (rule 10): the batch's rows, in place of those with their identity.

        Whether it was: the commit has a number, and Delta leaves one out, without a word, that another writer used.
        """
        cut, spark = folded.cut, self.spark
        writer = self._rows(folded).alias("n").write.mode("overwrite")
        if cut.known:
            writer = writer.option("replaceOn", SAME).option("targetAlias", "b")
        else:
            # The first batch: whatever another writer did meanwhile, the table is one batch's truth. (An overwrite of
            # all there is, as such, forgets what the table is clustered by.)
            writer = writer.option("replaceWhere", "true")
        # The source is files that nobody changes: Delta need not keep them once more.
        with batch.configured(spark, "spark.databricks.delta.insertReplaceOnOrUsing.materializeSource", "none"):
            number = cut.position.number + 1
            if self.position().number != cut.position.number:  # fails, too, if there is none any more
                return False
            self._numbered(writer, number).save(self.path)
        stands = self.position()
        return stands.number == number and stands.offsets == {**cut.known, **cut.moved}

    @staticmethod
    def _numbered(writer: DataFrameWriter, number: int) -> DataFrameWriter:
        return writer.format("delta").option("txnAppId", read.WRITER).option("txnVersion", number)

    def _rows(self, folded: batch.Batch) -> DataFrame:
        """What the batch makes of its keys: rows of the book."""
        news = folded.news
        alone = [f"{expression} AS {name}" for name, expression in _ALONE.items()]
        if not folded.cut.known:
            return news.alias("n").where("n.kept").selectExpr(*alone)
        if folded.odd is None:
            return news.alias("n").where(_REPLACES).selectExpr(*alone)
        log.debug("%d rows of the book say something beside the batch", folded.odd_keys)

        def small(rows: DataFrame) -> DataFrame:
            return functions.broadcast(rows) if folded.odd_keys <= FEW else rows

        keys = small(folded.odd)
        here = [news[name] == keys[name] for name in keys.columns]
        rest = news.join(keys, [*here, news["slot"] == fold.WORD], "left_anti")
        both = news.where(f"slot = {fold.WORD}").join(keys, keys.columns, "left_semi").alias("n")
        # of the version that was asked: another writer's tidying may have taken a dead row since
        asked = f"{self.table} VERSION AS OF {folded.cut.position.version}"
        kept = self.spark.sql(f"SELECT * FROM {asked} WHERE slot = {fold.WORD}").alias("b")
        both = kept.join(small(both), functions.expr(SAME))
        return (
            rest.alias("n").where(_REPLACES).selectExpr(*alone)
            .unionByName(both.selectExpr(*(f"{expression} AS {name}" for name, expression in _BOTH_ROW.items())))
        )  # fmt: skip

    # Upkeep, away from the firing path

    def tidy(self) -> None:
        """Forgets what is over, puts what is new in order, and removes files that no page can be reading."""
        position = self.position()
        complete = {place: end for place, end in position.offsets.items() if position.complete[place] == end}
        try:
            self.spark.sql(
                f"DELETE FROM {self.table} WHERE slot <> {fold.OFFSET} AND wake IS NULL "
                f"AND greatest(version, kill, slot) < {sql.by_partition(complete, -1)}"
            )
            with batch.configured(self.spark, "spark.sql.files.maxRecordsPerFile", str(FILE_ROWS)):
                self.spark.sql(f"OPTIMIZE {self.table}")
            self.spark.sql(f"VACUUM {self.table}")
        except PySparkException as error:
            if not conflict(error):
                raise
            log.info("the book was written meanwhile, tidied up next time: %s", errors.brief(error))


_REPLACES = f"""(n.kept -- strikes out what is in its place, and says so for as long as that may matter (see `tidy`)
    OR n.slot = {fold.WORD} AND n.met AND n.kill >= 0 OR n.slot >= 0 AND n.last_kind = 'D')"""
# What a batch alone says, with no row in the book: `state.fresh`.
_ALONE: Mapping[str, str] = {**{name: f"n.{name}" for name in COLUMNS}, "kill": "n.killed"}
_BOTH = ("greatest(b.version, n.version)", "greatest(b.kill, n.kill)")


def _both() -> dict[str, str]:
    """A word's row: the batch's word if it is newer, else the old one stays; dead ones lose their payload."""
    payload = {
        name: f"""CASE WHEN {state.pending(*_BOTH)} THEN CASE WHEN n.version > b.version THEN n.{name} ELSE b.{name} END
            {state.DEAD.get(name, "")} END"""
        for name in state.PAYLOAD
    }
    return {
        **{name: f"n.{name}" for name in COLUMNS},
        "version": _BOTH[0], "kill": state.kill(*_BOTH), "pending": state.pending(*_BOTH),
        "adrift": state.adrift(*_BOTH),
        "wake": state.wake(*_BOTH, "CASE WHEN n.version > b.version THEN n.due ELSE b.due END"),
        **payload,
    }  # fmt: skip


_BOTH_ROW = _both()

# Which row of the book (b) a row of the batch (n) takes the place of. Whoever met none need not be looked for. A number
# first: Spark joins by it without looking at the keys. Garbage may have no key; its disposal has an empty one then.
SAME = """coalesce(n.met, true)
    AND xxhash64(coalesce(b.key, X''), b.partition, b.slot) = xxhash64(coalesce(n.key, X''), n.partition, n.slot)
    AND b.partition = n.partition AND b.slot = n.slot AND b.topic = n.topic
    AND coalesce(b.key, X'') = coalesce(n.key, X'')"""


def conflict(error: PySparkException) -> bool:
    """Did another writer's commit come first?"""
    text = str(error)
    return "DELTA_CONCURRENT" in text or "ConcurrentModification" in text
