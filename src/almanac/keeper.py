"""Keeps the book up with its topics and writes the pages: the part of a runner that works with Spark's tables."""

import dataclasses
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import IsolationLevel
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from almanac import errors, kafka, ports, tail, topics
from almanac.book import fired, ingest, pages, read, stretch, table
from almanac.settings import Settings

log = logging.getLogger("almanac.keeper")

LAG = 2_000_000  # records behind the log up to which a start leaves the catching up to the wheels: they read faster
MERGE = 500_000  # records that are worth a merge before it is time
MERGE_SECONDS = 60.0  # that a merge may take
IN_TIME = 0.9  # page lengths that the newest page reaches ahead, at least
FAILURES = 3  # in a row: then the book itself is looked at


class Stopped(errors.AlmanacError):
    """Stopped before it was up."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The book and its pages in numbers, as of the last page; nothing is read for it."""

    rows: Mapping[int, Mapping[str, int]] = field(default_factory=dict)  # by page that is in use, and topic
    files: int = 0
    pages: int = 0  # written
    page_ms: int = 0  # all of them together
    page_made: int | None = None  # epoch ms
    merges: int = 0
    merge_ms: int = 0  # all of them together
    merged: int = 0  # records
    behind: int = 0  # records of the log that the book had not read at its last merge
    following: bool = False  # the stream runs


class Keeper:
    """The book and the pages of one runner."""

    def __init__(
        self,
        settings: Settings,
        spark: SparkSession,
        admin: AdminClient,
        topic_ids: dict[str, str],
        sources: list[ports.Source],
        shards: int,
        stopping: threading.Event,
        say: Callable[[str], None],
    ) -> None:
        self.progress = ingest.Progress()
        self.page: pages.PageSpec | None = None
        self.pending: dict[int, int] = {}  # in the book, as of each page that a wheel may be on
        self._rows: dict[int, dict[str, int]] = {}  # the same by topic
        self._files = self._page_ms = 0
        self._settings, self._spark, self._admin, self._topic_ids = settings, spark, admin, topic_ids
        self._sources, self._shards, self._stopping, self._say = sources, shards, stopping, say
        self._book = table.Book(settings.book_folder, spark, settings.page_length_ms)
        self._fired = fired.Fired(settings.book_folder, spark, settings.fired_retention_days)
        self._ingest: ingest.Ingest | None = None
        self._offsets: dict[ports.Source, int] = {}  # where the tail begins where the book does not know yet
        self._old: list[pages.PageSpec] = []
        self._query: StreamingQuery | None = None
        self._unfinished = True  # the book lacks most of the log: no page may be made of it
        self._failures = 0
        self._working = threading.RLock()  # one statement on the book's files at a time

    def know(self, topic_ids: dict[str, str], sources: list[ports.Source]) -> None:
        """The topics as they are now; `bring_up_to_date` must follow."""
        with self._working:
            self._topic_ids, self._sources = topic_ids, sources

    def bring_up_to_date(self) -> None:
        """Rule 10: is the book to be trusted? If not it is built again from the log."""
        with self._working:
            starts = tail.beginnings(self._admin, self._sources)
            ends = tail.ends(self._admin, self._sources, IsolationLevel.READ_UNCOMMITTED)
            why = self._distrust(starts, ends)
            self.go_on()
            self._stop_stream()
            self._unfinished = True
            if why is not None:
                self._say(f"Book: building it from Kafka ({why})")
                self._book.drop()
            self._book.create()
            self._book.keep_only(list(self._settings.topics))
            self._fired.open()
            self._ingest = ingest.Ingest(self._book, self._source(), progress=self.progress, gone=self._fired)
            known = self._book.offsets()
            self._offsets = {source: max(known.get(source, 0), start) for source, start in starts.items()}
            lag = sum(max(0, end - self._offsets[source]) for source, end in ends.items())
            if lag > LAG:
                self._catch_up(lag)
            self._unfinished = False
            self._failures = 0

    def _distrust(self, starts: dict[ports.Source, int], ends: dict[ports.Source, int]) -> str | None:
        return self._book.distrust(
            self._topic_ids, starts, ends, topics.delete_retention_ms(self._admin, self._settings.topics)
        )

    def _stop_stream(self) -> None:
        # A merge that is under way would end in the new table: stop() waits for it.
        if self._query is not None:
            self._query.stop()
            self._query = None
        if self._ingest is not None:
            self._ingest.close()

    def _source(self) -> ingest.Source:
        counts: dict[str, int] = {}
        for topic, partition in self._sources:
            counts[topic] = max(counts.get(topic, 0), partition + 1)
        return ingest.Source(
            kafka={key.removeprefix("kafka."): value for key, value in kafka.java(self._settings).items()},
            log=stretch.KafkaLog(kafka.consumer(self._settings)),
            topic_ids=self._topic_ids,
            partitions=counts,
            formats=dict(self._settings.sources),
            merge_delay_s=max(1, self._settings.page_length // 4),
            merge_least=MERGE,
        )

    def _catch_up(self, lag: int) -> None:
        self._say(f"Book: reading {lag:,} records")
        query = self._ready.catch_up()
        begun = said = time.monotonic()
        before = self.progress.rows
        try:
            while not query.awaitTermination(1):
                if self._stopping.is_set():
                    query.stop()
                self.go_on()
                if time.monotonic() - said > 5:
                    said = time.monotonic()
                    done = self.progress.rows - before  # counted by batches, and the first of a new book is all of it
                    self._say(f"Book: {f'{done:,} of ' if done else ''}{lag:,} records, {said - begun:.0f} s so far")
        except (
            StreamingQueryException
        ) as error:  # Kafka went away, or another scheduler writes to the book: go on later
            raise ports.Unavailable(
                f"the schedules topics could not be read into the book: {errors.brief(error)}"
            ) from error

    # Pages

    def write_page(self) -> None:
        """The next page, from the book as it is now."""
        with self._working:
            if self._unfinished:
                raise ports.Unavailable("the book is not built yet")
            begun = time.monotonic()
            horizon = int(time.time() * 1000) + 2 * self._settings.page_length_ms
            number = self.number + 1
            spec = pages.write(
                self._spark, self._book, number, horizon, self._shards, self._settings.topics, self.page_root
            )
            spec = dataclasses.replace(spec, offsets={**self._offsets, **spec.offsets})
            reader = read.Reader(self._book.folder, spec.version)
            self._rows[number] = reader.by_topic()
            self._files = reader.files()
            self.pending[number] = sum(self._rows[number].values())
            self._page_ms += int((time.monotonic() - begun) * 1000)
            if self.page is not None:
                self._old.append(self.page)
            self.page = spec
        self._failures = 0

    @property
    def number(self) -> int:
        """Of the newest page; 0 before the first."""
        return self.page.number if self.page else 0

    def late(self) -> str | None:
        """What of the book or the pages takes too long, if anything does."""
        ahead = (self.page.horizon if self.page else 0) - int(time.time() * 1000)
        if ahead < self._settings.page_length_ms * IN_TIME:  # it reaches two lengths when it is written
            return "the next page is late"
        if (took := self.progress.under_way()) > MERGE_SECONDS:
            return f"a merge takes {took:.0f} s"
        return None

    def has_news(self) -> bool:
        """Does the book know more than the page does?"""
        if self.page is None:
            return True
        return any(self.page.offsets.get(source) != offset for source, offset in self._book.offsets().items())

    def described(self) -> dict[str, Any]:
        """The page as it is announced."""
        if self.page is None:
            raise errors.AlmanacError("there is no page yet")
        described: dict[str, Any] = json.loads(self.page.to_json())
        return described

    def remove_old_pages(self, reached: int) -> None:
        """Those before page `reached`, on which every wheel is."""
        for spec in [spec for spec in self._old if spec.number < reached]:
            pages.remove(spec)
            self._old.remove(spec)
            self.pending.pop(spec.number, None)
            self._rows.pop(spec.number, None)

    def tidy_up_after_others(self) -> None:
        """Pages and checkpoints that earlier runners left behind."""
        pages.remove_others(self.page_root, [self.page] if self.page else [])
        self._ready.remove_other_checkpoints()

    def figures(self) -> Figures:
        """The book and its pages in numbers."""
        return Figures(
            rows=dict(self._rows), files=self._files, pages=self.number, page_ms=self._page_ms,
            page_made=self.page.made if self.page else None, merges=self.progress.batches,
            merge_ms=self.progress.total_ms, merged=self.progress.rows, behind=self.progress.behind,
            following=self.progress.running,
        )  # fmt: skip

    @property
    def page_root(self) -> str:
        """Where the pages are."""
        return f"{self._settings.book_folder}/pages"

    # The stream

    def follow(self) -> None:
        """Feeds the book until the stream ends; the caller calls it again."""
        with self._working:
            if self._unfinished:
                raise ports.Unavailable("the book is not built yet")
            query = self._query = self._ready.start()
        before = self.progress.batches
        while not query.awaitTermination(1):
            self._failures = 0 if self.progress.batches > before else self._failures
            if self._stopping.is_set():
                query.stop()
                return

    def failed(self, error: Exception) -> bool:
        """Something with the book failed. True if it was built again: the wheels need a new page then.

        That Kafka is away, a full disk or a wrong password is not the book's fault: it is looked at, and built again
        only if it is not to be trusted.
        """
        if self._stopping.is_set():
            return False
        with self._working:
            if not self._unfinished:
                if isinstance(error, ports.Unavailable | errors.Unreachable):
                    return False
                self._failures += 1
                if self._failures < FAILURES:
                    return False
                self._failures = 0
                self._fired.open()  # what is wrong may be there
                starts = tail.beginnings(self._admin, self._sources)
                ends = tail.ends(self._admin, self._sources, IsolationLevel.READ_UNCOMMITTED)
                if self._distrust(starts, ends) is None:
                    return False
            self.bring_up_to_date()
        return True

    @property
    def _ready(self) -> ingest.Ingest:
        if self._ingest is None:
            raise errors.AlmanacError("the book was not looked at yet")
        return self._ingest

    def go_on(self) -> None:
        """Raises Stopped if it is time to stop."""
        if self._stopping.is_set():
            raise Stopped
