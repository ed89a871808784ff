"""Reads topics once, from given offsets to where they end now: what people ask about is answered from the log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from almanac import errors, kafka, tail, topics
from almanac.ports import Source, Unavailable
from almanac.record import UNREADABLE, Record
from almanac.settings import Settings

_MOST = 5_000  # records of one look
_WAIT = 20  # ms


def partitions(admin: AdminClient, names: list[str]) -> list[Source]:
    """Every partition of those topics that exist."""
    counts = topics.partition_counts(admin, [name for name in names if name])
    return [(name, partition) for name, count in counts.items() for partition in range(count)]


def ends(admin: AdminClient, sources: list[Source]) -> dict[Source, int]:
    """Up to where committed records can be read now."""
    with _at_once():
        return tail.ends(admin, sources, IsolationLevel.READ_COMMITTED) if sources else {}


def bounds(admin: AdminClient, sources: list[Source]) -> tuple[dict[Source, int], dict[Source, int]]:
    """The first offsets and the high watermarks."""
    with _at_once():
        starts = tail.beginnings(admin, sources) if sources else {}
        return starts, tail.ends(admin, sources, IsolationLevel.READ_UNCOMMITTED) if sources else {}


def highs(admin: AdminClient, sources: list[Source]) -> dict[Source, int]:
    """The high watermarks alone: open transactions lie below them too."""
    with _at_once():
        return tail.ends(admin, sources, IsolationLevel.READ_UNCOMMITTED) if sources else {}


@contextmanager
def _at_once() -> Iterator[None]:
    """A command does not wait for a Kafka that is away."""
    try:
        yield
    except Unavailable as error:
        raise errors.Unreachable(str(error)) from error


def read(
    settings: Settings, starts: Mapping[Source, int], stops: Mapping[Source, int], keep: Callable[[Message], bool]
) -> Iterator[Record]:
    """The committed records between these offsets that `keep` wants, in order within a partition."""
    left = {source for source, stop in stops.items() if stop > max(0, starts.get(source, 0))}
    # An end is told when a request comes back empty, after half a second unless told.
    config = kafka.consumer(
        settings, group_id=f"{settings.group_id}-scan", auto_offset_reset="earliest", fetch_wait_max_ms=_WAIT
    )
    consumer = Consumer(config)
    consumer.assign([TopicPartition(*source, starts.get(source, OFFSET_BEGINNING)) for source in left])
    heard = time.monotonic()
    try:
        while left:
            found = consumer.consume(_MOST, _WAIT / 1000)
            for message in found:
                source = (message.topic() or "", message.partition() or 0)
                offset = message.offset() or 0
                if message.error() is None and source in left and offset < stops[source] and keep(message):
                    yield record(message)
                # A marker of a transaction may be the last thing before the stop: then the end is told instead. An end
                # before the stop is that of a replica which has not heard of all yet.
                reached = offset if kafka.is_end(message) else offset + 1
                if source in left and reached >= stops[source]:
                    left.discard(source)
            if found:
                heard = time.monotonic()  # behind the loop: whoever asked may take their time over a record
            elif time.monotonic() - heard > kafka.ANSWER_SECONDS:
                raise errors.Unreachable(
                    f"reading {', '.join(sorted({topic for topic, _ in left}))}: Kafka went silent"
                )
    finally:
        consumer.close()


def record(message: Message) -> Record:
    place = (message.topic() or "", message.partition() or 0, message.offset() or 0)
    headers: Any
    try:
        headers = message.headers() or []
    except Exception:  # rule 5: a header's name that is not UTF-8 makes the client raise
        headers = [(UNREADABLE, None)]
    return Record(*place, message.timestamp()[1], message.key(), message.value(), headers)
