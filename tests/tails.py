"""Records of a schedules topic for a live tail without a broker."""

from __future__ import annotations

from collections.abc import Sequence

from almanac import live, ports, words
from almanac.record import Headers, Record

TOPIC, ID = "schedules", "topic-id"
SOURCE = (TOPIC, 0)


def schedule(offset: int, key: bytes, due: int = 1) -> Record:
    headers: Headers = [("scheduler-epoch", b"%d" % due), ("scheduler-target-topic", b"target")]
    return Record(TOPIC, 0, offset, 1000, key, b"payload", headers)


def cancel(offset: int, key: bytes) -> Record:
    return Record(TOPIC, 0, offset, 1000, key, None, [])


def tombstone(offset: int, key: bytes, version: int, reason: bytes | None = None) -> Record:
    headers = words.acknowledgement(version, ID)
    if reason is not None:
        headers = [*headers, (words.REASON, reason)]
    return Record(TOPIC, 0, offset, 2000, key, None, headers)


def take(made: live.Live, told: Sequence[Record | ports.End]) -> None:
    """As its thread does."""
    with made.changed:
        made._take(list(told))
