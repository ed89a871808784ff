"""The three measures, each with the machine's own limit taken right before it.

burst    many schedules due in one whole second: fires a second, over the limit's
steady   as many due at each whole second: p50 and p99 of the lateness, over the floor's
live     schedules due a moment after they are written: p99, over the floor's
"""

import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from confluent_kafka import IsolationLevel
from confluent_kafka.admin import NewTopic

from almanac import errors, kafka, tail, topics
from almanac.bench import PARTITIONS, Progress, feed, limit, report, scheduler, watch
from almanac.book import read
from almanac.settings import Settings

PATIENCE = 60.0  # seconds after the last due time in which everything must have come
LIMIT_FIRES = 40_000  # at least: fewer measure the first seconds of a producer
FLOOR_PER_SECOND = 1_000
FLOOR_SECONDS = 30  # at most: enough seconds for a p99


class Bench:
    """Measures one scheduler: that of the settings, or the embedded one that is given."""

    def __init__(self, settings: Settings, progress: Progress, embedded: scheduler.Embedded | None = None) -> None:
        self._settings = settings
        self._progress = progress
        self._embedded = embedded
        self._admin = kafka.admin_client(settings)
        self._source = settings.topics[0]

    def burst(self, count: int, lead: int, from_book: bool = False) -> report.Figures:
        """`count` schedules due in one whole second, `lead` seconds from now; live, or from a book after a restart."""
        most = self.most_fires(max(2 * count, LIMIT_FIRES))
        with self._target() as target:
            seen = watch.Watch(self._settings, target, PARTITIONS)
            due = (int(time.time()) + lead) * 1000
            self._feed(target, feed.together(due, count), count)
            if from_book:
                self._restart(due)
            self._in_time(due)
            came = seen.until(count, due / 1000 + PATIENCE, self._progress)
        return report.Figures(measure="burst", source="book" if from_book else "live", seen=came, limit=most)

    def steady(self, per_second: int, seconds: int, lead: int) -> report.Figures:
        """`per_second` schedules due at each of `seconds` whole seconds, the first `lead` seconds from now."""
        floor = self._floor(per_second, seconds)
        count = per_second * seconds
        with self._target() as target:
            seen = watch.Watch(self._settings, target, PARTITIONS)
            first = (int(time.time()) + lead) * 1000
            self._feed(target, feed.by_second(first, per_second, seconds), count)
            self._in_time(first)
            came = seen.until(count, first / 1000 + seconds + PATIENCE, self._progress)
        return report.Figures(measure="steady", source="live", seen=came, floor=floor)

    def live(self, per_second: int, seconds: int, ahead: int) -> report.Figures:
        """`per_second` schedules written each second for `seconds`, each due `ahead` ms after it is written."""
        floor = self._floor(FLOOR_PER_SECOND, seconds)
        count = per_second * seconds
        with self._target() as target, ThreadPoolExecutor(1) as pool:
            seen = watch.Watch(self._settings, target, PARTITIONS)
            dues = feed.live(per_second, seconds, ahead)
            feeding = pool.submit(feed.write, self._settings, self._source, target, dues, count, lambda *_: None)
            came = seen.until(count, time.time() + seconds + ahead / 1000 + PATIENCE, self._progress)
            feeding.result()
        return report.Figures(measure="live", source="live", seen=came, floor=floor)

    def most_fires(self, fires: int) -> int:
        """The most fires a second that bare producers write on this machine, now."""
        with self._limit_topics() as places:
            return round(limit.throughput(self._settings, places, fires, self._progress))

    # Steps

    def _feed(self, target: str, dues: Iterator[int], count: int) -> None:
        feed.write(self._settings, self._source, target, dues, count, self._progress)

    def _floor(self, per_second: int, seconds: int) -> watch.Seen:
        with self._limit_topics() as places:
            return limit.floor(self._settings, places, per_second, min(seconds, FLOOR_SECONDS), self._progress)

    def _in_time(self, due: int) -> None:
        if time.time() * 1000 > due:
            raise errors.AlmanacError(
                "the schedules were due before all was ready for them: give more time with --lead"
            )

    def _restart(self, due: int) -> None:
        """When the book has read what was fed, and before it is due: then it comes from there."""
        if self._embedded is None:
            raise errors.UsageError("--from-book restarts the scheduler, and so needs one of its own: add --up")
        sources = [(self._source, number) for number in range(PARTITIONS)]
        ends = tail.ends(self._admin, sources, IsolationLevel.READ_COMMITTED)
        behind = sum(ends.values())
        while behind:
            self._progress("waiting for the book", sum(ends.values()) - behind, sum(ends.values()))
            self._in_time(due)
            time.sleep(0.5)
            known = read.Reader(self._settings.book_folder).position().offsets
            behind = sum(max(0, end - known.get(source, 0)) for source, end in ends.items())
        self._progress("restarting the scheduler", 0, 0)
        self._embedded.stop()
        self._embedded.start()

    # Topics of the bench's own, which go afterwards

    @contextmanager
    def _target(self) -> Iterator[str]:
        with self._topics("target") as (target,):
            yield target

    @contextmanager
    def _limit_topics(self) -> Iterator[limit.Places]:
        with self._topics("limit-target", "limit-history", "limit-schedules") as names:
            yield limit.Places(*names)

    @contextmanager
    def _topics(self, *purposes: str) -> Iterator[list[str]]:
        run = uuid.uuid4().hex[:8]
        names = [f"{self._settings.group_id}-bench-{purpose}-{run}" for purpose in purposes]
        replicas = self._settings.replication_factor or -1
        for name, future in self._admin.create_topics([NewTopic(name, PARTITIONS, replicas) for name in names]).items():
            kafka.answer(future, f"creating topic {name}")
        while len(topics.descriptions(self._admin, names)) < len(names):
            time.sleep(0.05)  # just created: the brokers tell each other first
        try:
            yield names
        finally:
            for name, future in self._admin.delete_topics(names).items():
                kafka.answer(future, f"removing topic {name}")
