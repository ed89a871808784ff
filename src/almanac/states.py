"""What karafka's users see of their partitions: a record of each one's state in `<topic>_states`, every few seconds.

It tells how many schedules are due on each day (UTC). These counts are exact, cancels included, for the log up to
`offsets.high`: they are the book's, corrected by what the log has said since the book last read it.
"""

import json
import logging
import time
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from almanac import kafka, listing, scan
from almanac.book import read
from almanac.ports import Source
from almanac.settings import Settings

log = logging.getLogger("almanac.states")

INTERVAL = 15.0  # seconds between records of a state that stays
# Where the log has said more than that since the book read it, the counts are those of the book's offsets.
MOST_RECORDS, MOST_KEYS = 100_000, 5_000
DAY = 86_400_000  # ms
_STATES = {"starting": "loading", "fencing": "loading", "catching-up": "loading", "firing": "loaded"}


@dataclass(frozen=True)
class Count:
    """How many schedules of a partition are due on each day, by its log from `low` to `high`, both included."""

    low: int
    high: int
    daily: Mapping[str, int]


Booked = Mapping[tuple[int, bytes], tuple[int, int]]  # partition and id -> version and due time
Since = Mapping[tuple[int, bytes], listing.Since]


def corrected(days: Mapping[tuple[int, int], int], rows: Booked, since: Since) -> dict[int, dict[str, int]]:
    """Counts by partition and date; `days` are the book's, by partition and day since 1970.

    `since` is what the log has said behind the book, `rows` what the book has of the same ids.
    """
    counts = Counter(days)
    for key, said in since.items():
        version, due = rows.get(key, (-1, 0))
        if version >= 0 and said.hides(version):
            counts[key[0], due // DAY] -= 1
        word = said.pending()
        if word is not None and word.version > version:
            counts[key[0], word.schedule.due // DAY] += 1
    found: dict[int, dict[str, int]] = {}
    for (partition, day), number in sorted(counts.items()):
        if number:
            found.setdefault(partition, {})[_date(day)] = number
    return found


def state(source: Source, status: Mapping[str, Any]) -> str:
    """The partition's, from the report of its wheel: `loading`, `loaded`, or one of ours."""
    if any((topic, partition) == source for topic, partition, _ in status.get("halted", ())):
        return "incompatible"
    said = str(status.get("state", "starting"))
    return _STATES.get(said, said)


def record(state: str, count: Count, started: float, reloads: int, now: float) -> tuple[bytes, bytes]:
    """Key and value as the peer writes them; times in epoch seconds."""
    said = {
        "schema_version": "1.0.0", "dispatched_at": now, "state": state,
        "offsets": {"low": count.low, "high": count.high}, "daily": dict(count.daily),
        "started_at": int(started), "reloads": reloads,
    }  # fmt: skip
    return f"{state}_state".encode(), zlib.compress(json.dumps(said).encode())


class Reporter:
    """Writes the states of one scheduler's karafka topics: call `look` about once a second, at the end `close`."""

    def __init__(self, settings: Settings, admin: AdminClient) -> None:
        self._settings, self._admin = settings, admin
        self._producer = Producer(kafka.producer(settings, linger_ms=50, message_timeout_ms=10_000))
        self._started = time.time()
        self._told: dict[Source, str] = {}
        self._counts: dict[Source, Count] = {}
        self._starts: dict[Source, set[object]] = {}  # of its wheel
        self._books: dict[str, tuple[int, dict[tuple[int, int], int]]] = {}  # by topic: the book's version, its counts
        self._counted = -INTERVAL

    def look(self, sources: Mapping[Source, Mapping[str, Any]], topic_ids: Mapping[str, str]) -> None:
        """Tells what is new of these partitions, each with the report of its wheel; all of them if it is time."""
        states = {source: state(source, status) for source, status in sources.items()}
        for source, status in sources.items():
            self._starts.setdefault(source, set()).add(status.get("start"))
        due = time.monotonic() - self._counted >= INTERVAL
        if due or states != self._told:
            self._counted = time.monotonic()
            for topic in {topic for topic, _ in sources}:
                self._counts |= self._count(topic, topic_ids[topic])
            self._tell({source: each for source, each in states.items() if due or self._told.get(source) != each})
        self._producer.poll(0)

    def close(self) -> None:
        """Tells that all of them are stopped."""
        self._tell(dict.fromkeys(self._told, "stopped"))
        self._producer.flush(1)

    def _tell(self, states: Mapping[Source, str]) -> None:
        for source, said in states.items():
            self._told[source] = said
            reloads = len(self._starts[source] - {None})
            count = self._counts.get(source, Count(-1, -1, {}))
            key, value = record(said, count, self._started, reloads, time.time())
            topic, partition = self._settings.states_topics[source[0]], source[1]
            try:
                self._producer.produce(topic, value, key, partition, headers=[("zlib", b"true")])
            except (BufferError, KafkaException) as error:
                log.info("%s/%d: its state was not written: %s", topic, partition, error)

    def _count(self, topic: str, topic_id: str) -> dict[Source, Count]:
        book = read.Reader(self._settings.book_folder)
        known = {source: offset for source, offset in book.offsets().items() if source[0] == topic}
        sources = scan.partitions(self._admin, [topic])
        lows, _ = scan.bounds(self._admin, sources)
        starts = {source: known.get(source, lows[source]) for source in sources}
        ends, since = self._since(starts, topic, topic_id)
        rows = book.versions(topic, [key for _, key in since]) if since else {}
        if self._books.get(topic, (-1,))[0] != book.version:
            self._books[topic] = book.version, book.daily(topic)
        days = corrected(self._books[topic][1], rows, since)
        return {source: Count(lows[source], ends[source] - 1, days.get(source[1], {})) for source in sources}

    def _since(self, starts: dict[Source, int], topic: str, topic_id: str) -> tuple[dict[Source, int], Since]:
        """Up to where the log has been read, and what it said behind the book; nothing if that is too much."""
        stops = scan.ends(self._admin, list(starts))
        if sum(stop - starts[source] for source, stop in stops.items()) <= MOST_RECORDS:
            heard, ends = listing.since(self._settings, starts, stops, {topic: topic_id})
            if len(heard) <= MOST_KEYS:
                return ends, {(partition, key): said for (_, partition, key), said in heard.items()}
        return starts, {}


def _date(day: int) -> str:
    return datetime.fromtimestamp(day * DAY / 1000, UTC).date().isoformat()
