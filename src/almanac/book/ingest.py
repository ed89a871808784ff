"""The stream from the schedules topics into the book (rule 10).

The book's own offsets say where to start. The stream's checkpoint is not truth: each start uses a new one.
"""

import itertools
import json
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery

from almanac.book import fired, places, stretch, table

log = logging.getLogger(__name__)

EARLIEST = -2  # Spark's name for it in startingOffsets
TIDY_EVERY = 16  # merges
TIDY_AFTER = 500_000  # records in a few merges: their files are in no order, and every question reads all of them
BRIEF = 500  # characters of an error


@dataclass(frozen=True, kw_only=True)
class Source:
    """The schedules topics, as the book reads them."""

    kafka: Mapping[str, str]  # Kafka's Java properties, bootstrap.servers among them: Spark plans batches with them
    log: stretch.Log  # which its tasks read
    topic_ids: Mapping[str, str]  # topic -> Kafka's id of it
    partitions: Mapping[str, int]  # topic -> how many it has
    formats: Mapping[str, str]  # topic -> its wire format
    merge_delay_s: int = 30  # a merge waits that long for more ...
    merge_least: int = 100_000  # ... or for that many records
    merge_most: int = 3_000_000  # and takes no more than that: whatever its size, seconds of it are plans and commits
    rebuild_most: int = 4_000_000  # the first batch of an empty book needs no join

    @property
    def topics(self) -> list[str]:
        return sorted(self.partitions)

    def starting(self, known: stretch.Offsets) -> str:
        """Spark's startingOffsets: every partition, at the book's offset or at the log's beginning."""
        offsets: dict[str, dict[str, int]] = {}
        for topic, count in self.partitions.items():
            offsets[topic] = {str(p): known.get((topic, p), EARLIEST) for p in range(count)}
        return json.dumps(offsets)

    def frame(self, spark: SparkSession, known: stretch.Offsets, options: Mapping[str, str]) -> DataFrame:
        reader = spark.readStream.format("kafka")
        for key, value in self.kafka.items():
            reader = reader.option(f"kafka.{key}", value)
        # read_committed: batches end where an open transaction begins
        reader = reader.option("kafka.isolation.level", "read_committed")
        reader = reader.option("subscribe", ",".join(self.topics)).option("startingOffsets", self.starting(known))
        return reader.options(**options).load()


@dataclass
class Progress:
    """What the stream did last; read by status and metrics. Written by Spark's listener thread."""

    running: bool = False
    batches: int = 0
    rows: int = 0
    rows_per_second: float = 0.0
    batch_ms: int = 0
    total_ms: int = 0  # of all batches
    behind: int = 0  # offsets between the book and the log's end
    at_ms: int = 0
    halted: dict[stretch.Partition, int] = field(default_factory=dict)  # by a record of the future, and where
    error: str | None = None
    _counted: int = 0  # records, not told as rows yet
    _begun: float | None = None  # when the batch was that is under way
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def begin(self) -> None:
        self._begun = time.monotonic()

    def end(self) -> None:
        self._begun = None

    def under_way(self) -> float:
        """For how many seconds a batch has been taken in; 0: none is."""
        begun = self._begun
        return 0.0 if begun is None else time.monotonic() - begun

    def count(self, records: int) -> None:
        """So many are in the tables now. Spark's listener tells how long that took, some time after it."""
        with self._lock:
            self._counted += records

    def took(self, batch_ms: int, behind: int) -> None:
        with self._lock:
            self.running, self.error = True, None
            self.batches += 1
            rows, self._counted = self._counted, 0
            self.rows += rows
            self.total_ms += batch_ms
            self.rows_per_second, self.batch_ms, self.behind = rows * 1000 / max(1, batch_ms), batch_ms, behind
            self.at_ms = int(time.time() * 1000)

    def ended(self, error: str | None) -> None:
        with self._lock:
            self.running, self.error = False, error


class Listener(StreamingQueryListener):
    """Feeds a Progress from one query's events."""

    def __init__(self, name: str, progress: Progress) -> None:
        self._name = name
        self._run: str | None = None
        self._progress = progress

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 (Spark's name)
        if event.name == self._name:
            self._run = str(event.runId)
            self._progress.running = True

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 (Spark's name)
        progress = event.progress
        if str(progress.runId) != self._run:
            return
        behind = sum(_behind(source.endOffset, source.latestOffset) for source in progress.sources)
        self._progress.took(progress.batchDuration, behind)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 (Spark's name)
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 (Spark's name)
        if str(event.runId) == self._run:
            self._progress.ended(event.exception)


def _behind(end: str, latest: str) -> int:
    try:
        ends, latests = json.loads(end), json.loads(latest)
    except (TypeError, ValueError):
        return 0
    return sum(
        max(0, offset - ends.get(topic, {}).get(partition, 0))
        for topic, partitions in (latests or {}).items()
        for partition, offset in partitions.items()
    )


class Ingest:
    """Keeps a book up with its topics."""

    def __init__(
        self,
        book: table.Book,
        source: Source,
        progress: Progress | None = None,
        gone: fired.Fired | None = None,
    ) -> None:
        self.book = book
        self.gone = gone  # where what fired is kept; None: nowhere
        self.source = source
        self.progress = progress or Progress()
        self.upkeep_s = 0.0  # that the tables took to be put in order, with all in them already
        self._merges = itertools.count(1)
        self._checkpoint = ""
        self._untidy = 0  # records that came since the book was put in order
        self._begun: stretch.Offsets = {}  # where the next batch begins
        self._planned: stretch.Offsets = {}  # where it begins as Spark has it
        self._most = 0  # offsets in a batch
        self._halted: dict[stretch.Partition, int] = {}  # partitions that are read no further, and where that is
        self._listener: Listener | None = None

    def catch_up(self) -> StreamingQuery:
        """Starts reading to where the log ends now; the query ends by itself. Wait with `awaitTermination()`."""
        known = self.book.offsets()
        most = self.source.merge_most if known else self.source.rebuild_most
        return self._start("catching up", known, most, {}, available_now=True)

    def start(self) -> StreamingQuery:
        """Starts reading for ever: rare merges, bounded in size."""
        options = {
            "minOffsetsPerTrigger": str(self.source.merge_least),
            "maxTriggerDelay": f"{self.source.merge_delay_s}s",
        }
        return self._start("following", self.book.offsets(), self.source.merge_most, options, available_now=False)

    def _start(
        self, what: str, known: stretch.Offsets, most: int, options: Mapping[str, str], *, available_now: bool
    ) -> StreamingQuery:
        spark = self.book.spark
        if self._checkpoint:
            places.remove(self._checkpoint)
        # Only its own: another scheduler may still read with one, or begin to.
        self._checkpoint = f"{self._checkpoints}/{time.time_ns()}"
        name = f"almanac book, {what}"
        self.close()
        self._listener = Listener(name, self.progress)
        spark.streams.addListener(self._listener)
        self._begun, self._planned, self._most, self._halted = known, known, most, {}
        frame = self.source.frame(spark, known, {**options, "maxOffsetsPerTrigger": str(most)})
        writer = frame.writeStream.queryName(name)
        writer = writer.option("checkpointLocation", self._checkpoint).foreachBatch(self.take)
        writer = writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime="1 second")
        return writer.start()

    @property
    def _checkpoints(self) -> str:
        return f"{self.book.folder}/checkpoints"

    def remove_other_checkpoints(self) -> None:
        """What earlier runs left behind. For the owner of all shards: nobody else reads into the book any more."""
        for name in places.names(self._checkpoints):
            if not self._checkpoint.endswith(f"/{name}"):
                places.discard(f"{self._checkpoints}/{name}")

    def close(self) -> None:
        """No more progress is reported; a running query is the caller's to stop."""
        if self._listener is not None:
            self.book.spark.streams.removeListener(self._listener)
            self._listener = None

    def take(self, records: DataFrame, batch: int) -> None:
        """Spark calls it with each batch."""
        # Spark searches the error of a stopped query for an interruption, with a regular expression that takes stack
        # for each character: the query's thread would die of a text with Java's whole trace.
        self.progress.begin()
        try:
            self._merge(records, batch)
        except Exception as error:
            log.debug("batch %d", batch, exc_info=error)
            kind = type(error)
            raise RuntimeError(f"{kind.__module__}.{kind.__qualname__}: {str(error)[:BRIEF]}") from None
        finally:
            self.progress.end()

    def _merge(self, records: DataFrame, batch: int) -> None:
        spark = records.sparkSession
        spark.sparkContext.setJobGroup("almanac book", f"almanac book, batch {batch}")
        since = int(time.time() * 1000)
        planned = self._ends(batch)
        ends = {**planned, **self._halted}
        # Spark cuts a batch short of the log's end only where it would hold more than allowed.
        # (It rounds each partition's share down, so a batch that was cut may be a little smaller than that.)
        # It knows nothing of partitions that halt: what it planned for them counts.
        size = sum(end - self._planned.get(each, 0) for each, end in planned.items())
        whole = size < self._most - len(ends)
        known = self.book.offsets()
        if any(known.get(each, 0) < begun for each, begun in self._begun.items()):
            raise RuntimeError("the book was built anew meanwhile: this stream must begin where it ends")
        taken = self.book.take(
            self.source.log, ends, self.source.formats, self.source.topic_ids, whole=whole, since_ms=since,
            halted=self._halted,
            kept=f"{self._checkpoint}/batches",  # what a crash leaves there goes with the checkpoint
            before=None if self.gone is None else self.gone.take,
        )  # fmt: skip
        self._halted = dict(taken.cut.halted)
        self.progress.count(taken.records)
        self.progress.halted = dict(self._halted)
        self._begun, self._planned = {**ends, **self._halted}, planned
        self._untidy += size
        if next(self._merges) % TIDY_EVERY == 0 or (whole and self._untidy > TIDY_AFTER):
            self._untidy = 0
            spark.sparkContext.setJobGroup("almanac book upkeep", "almanac book: OPTIMIZE and VACUUM")
            begun = time.monotonic()
            self.book.tidy()
            if self.gone is not None:
                self.gone.tidy()
            self.upkeep_s += time.monotonic() - begun

    def _ends(self, batch: int) -> dict[stretch.Partition, int]:
        """Where the batch ends, as Spark wrote it down before it began.

        Not the last record's offset: a transaction's marker or an aborted record may come after it, and a book that
        stands at the log's very end is good at any age (see `Book.distrust`).
        """
        lines = places.text(f"{self._checkpoint}/offsets/{batch}").splitlines()
        offsets = json.loads(lines[-1])
        return {(topic, int(p)): int(end) for topic, ends in offsets.items() for p, end in ends.items()}
