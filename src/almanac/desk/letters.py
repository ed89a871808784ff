"""The dead letters, the newest first, straight from their topic; and sending one again.

A page goes on below the offsets at which the one before ended, so the thousandth is as quick as the first. To find rare
ones among many is bounded: after `MOST` records a page ends, perhaps empty, with a cursor to go on from.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from almanac import errors, formats, kafka, scan, words
from almanac.desk.refusals import NotFound, Refused
from almanac.desk.shapes import DeadLetter, DeadQuery, Found
from almanac.ports import Source
from almanac.record import Headers, Record, first
from almanac.settings import Settings

CHUNK = 300  # records of a partition that are read at once
MOST = 20_000  # records that are looked at for one page
NOTES = frozenset(
    f"almanac-{name}" for name in ("reason", "detail", "source", "source-timestamp", "stub")
)  # what the wheel adds, at the end


class Letters:
    """Reads the dead letters topic. Thread-safe; one at a time."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._topic = settings, settings.dead_letters_topic
        self._admin = kafka.admin_client(settings)
        self._lock = threading.Lock()
        self._consumer: Consumer | None = None
        grace = settings.schedule_grace_interval * 1000
        self._forms = {topic: formats.named(name, grace) for topic, name in settings.sources}

    def close(self) -> None:
        with self._lock:
            if self._consumer is not None:
                self._consumer.close()
                self._consumer = None

    def page(self, query: DeadQuery) -> Found[DeadLetter]:
        """A page of them."""
        sources = scan.partitions(self._admin, [self._topic])
        lows, _ = scan.bounds(self._admin, sources)
        ends = scan.ends(self._admin, sources)
        given = _read_cursor(query.cursor)
        ends = {source: min(end, given.get(source[1], end)) for source, end in ends.items()}
        part = query.id_part.encode() if query.id_part else None
        found: list[DeadLetter] = []
        looked = 0
        with self._lock:
            for record in self._backwards(lows, ends):
                if len(found) == query.limit or looked == MOST:
                    return Found(rows=found, cursor=_write_cursor(ends))
                looked += 1
                ends[record.topic, record.partition] = record.offset
                named = first(record.headers)
                if (
                    (part is None or part in (record.key or b""))
                    and (query.reason is None or named.get("almanac-reason") == query.reason.encode())
                    and (query.since is None or record.timestamp >= query.since)
                    and (query.until is None or record.timestamp < query.until)
                ):
                    found.append(self._letter(record))
        return Found(rows=found, cursor=None)

    def one(self, partition: int, offset: int) -> tuple[DeadLetter, words.Word | None, str]:
        """A letter, the schedule in it if it can be read, and the schedules topic it came from. Raises NotFound."""
        source = (self._topic, partition)
        place = f"{partition}/{offset}"
        with self._lock:
            known = source in scan.partitions(self._admin, [self._topic])
            records = self._between({source: (offset, offset + 1)}) if known and offset >= 0 else []
        if not records:
            raise NotFound("dead letter", place, f"is not in {self._topic} (any more)")
        word, topic = self._schedule(records[0])
        return self._letter(records[0]), word, topic

    def _letter(self, record: Record) -> DeadLetter:
        named = first([header for header in record.headers if header[0] in NOTES])
        word, _ = self._schedule(record)
        hide = self._settings.hide_payloads
        return DeadLetter(
            partition=record.partition, offset=record.offset, at=record.timestamp, id=record.key,
            reason=_text(named.get("almanac-reason")), detail=_text(named.get("almanac-detail")),
            source=_text(named.get("almanac-source")), target=word.schedule.target if word is not None else None,
            due=word.schedule.due if word is not None else None, value=None if hide else record.value,
            headers=[(name, None if hide else value) for name, value in original(record.headers)],
            sendable=word is not None, hidden=hide, size=len(record.value or b""),
        )  # fmt: skip

    def _schedule(self, record: Record) -> tuple[words.Word | None, str]:
        """What it was as a schedule."""
        named = first([header for header in record.headers if header[0] in NOTES])
        topic, _, rest = _text(named.get("almanac-source")).rpartition("/")[0].rpartition("/")
        if topic not in self._forms or not rest.isdecimal() or "almanac-stub" in named:
            return None, topic
        stamp = _text(named.get("almanac-source-timestamp"))
        at = int(stamp) if stamp.isdecimal() else record.timestamp
        was = Record(topic, int(rest), 0, at, record.key, record.value, original(record.headers))
        said = words.read(was, self._forms[topic], "")
        return (said if isinstance(said, words.Word) else None), topic

    # Reading

    def _backwards(self, lows: dict[Source, int], ends: dict[Source, int]) -> Iterator[Record]:
        """All below these offsets, the newest first: of each partition's last ones the newest, again and again."""
        left = dict(ends)
        heads: dict[Source, list[Record]] = {source: [] for source in ends}
        while True:
            empty = [source for source, records in heads.items() if not records and left[source] > lows[source]]
            if empty:
                wanted = {source: (max(lows[source], left[source] - CHUNK), left[source]) for source in empty}
                for record in self._between(wanted):
                    heads[record.topic, record.partition].append(record)
                left |= {source: start for source, (start, _) in wanted.items()}
                continue
            best = max(
                (s for s, records in heads.items() if records), key=lambda s: heads[s][-1].timestamp, default=None
            )
            if best is None:
                return
            yield heads[best].pop()

    def _between(self, wanted: dict[Source, tuple[int, int]]) -> list[Record]:
        """The committed records between these offsets."""
        if self._consumer is None:
            name = f"{self._settings.group_id}-letters"
            config = kafka.consumer(self._settings, group_id=name, auto_offset_reset="earliest")
            self._consumer = Consumer(config)
        self._consumer.assign([TopicPartition(*source, start) for source, (start, _) in wanted.items()])
        found: list[Record] = []
        left, until = set(wanted), time.monotonic() + kafka.ANSWER_SECONDS
        try:
            while left:
                for message in self._consumer.consume(1_000, 0.02):
                    source = (message.topic() or "", message.partition() or 0)
                    offset = message.offset() or 0
                    if source in left and message.error() is None and offset < wanted[source][1]:
                        found.append(scan.record(message))
                    if source in left and (kafka.is_end(message) or offset + 1 >= wanted[source][1]):
                        left.discard(source)
                if left and time.monotonic() > until:
                    raise errors.Unreachable(f"reading {self._topic}: Kafka went silent")
        finally:
            self._consumer.unassign()
        return found


def original(headers: Headers) -> Headers:
    """The headers without what the wheel noted on the dead letter."""
    kept = len(headers)
    while kept and headers[kept - 1][0] in NOTES:
        kept -= 1
    return headers[:kept]


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="backslashreplace")


def _write_cursor(ends: dict[Source, int]) -> str:
    places = {str(partition): end for (_, partition), end in sorted(ends.items())}
    return base64.urlsafe_b64encode(json.dumps(places, separators=(",", ":")).encode()).decode().rstrip("=")


def _read_cursor(cursor: str | None) -> dict[int, int]:
    if cursor is None:
        return {}
    try:
        places: Any = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        return {int(partition): int(end) for partition, end in places.items()}
    except (ValueError, TypeError, AttributeError):
        raise Refused("cursor", cursor, "must be the `cursor` of the page before, as it was given") from None
