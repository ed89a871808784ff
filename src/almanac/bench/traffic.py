"""What stands in a topic of any format: schedules, updates, cancels and tombstones of ours; timer requests."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from almanac import client, words
from almanac.bench import PAYLOAD
from almanac.client import etf1, karafka, sky, timers
from almanac.client.message import Message
from almanac.record import Headers

NEW = 0.5  # of all records, unless told
UPDATES, CANCELS = 0.4, 0.3  # of the others; the rest of them are tombstones of what fired
FIRST_DUE = datetime(2098, 1, 1, tzinfo=UTC)
DAYS = 365


class Traffic:
    """The log of one partition that nobody else writes to: a record's place in it is its offset."""

    def __init__(self, form: str, topic: str, topic_id: str, partition: int, new: float = NEW) -> None:
        self._form, self._topic, self._topic_id, self._partition = form, topic, topic_id, partition
        self._new = new
        self._chance = random.Random(partition)
        self._waiting: list[tuple[bytes, int]] = []  # id and version
        self._offset = 0
        self._ids = 0

    @property
    def pending(self) -> int:
        """How many schedules wait after what was said so far."""
        return len(self._waiting)

    def records(self, count: int) -> Iterator[Message]:
        """The next ones."""
        for _ in range(count):
            yield self._next()
            self._offset += 1

    def _next(self) -> Message:
        if not self._waiting or self._chance.random() < self._new:
            key = b"%d-%d" % (self._partition, self._ids)
            self._ids += 1
            self._waiting.append((key, self._offset))
            return self._schedule(key)
        at = self._chance.randrange(len(self._waiting))
        key, version = self._waiting[at]
        roll = self._chance.random()
        if roll < UPDATES:
            self._waiting[at] = (key, self._offset)
            return self._schedule(key)
        self._waiting[at] = self._waiting[-1]
        self._waiting.pop()
        ours: Headers = [] if roll < UPDATES + CANCELS else words.acknowledgement(version, self._topic_id)
        return Message(self._topic, key, None, ours)

    def _schedule(self, key: bytes) -> Message:
        content = client.Message("target", key=b"key-%d" % self._offset, value=PAYLOAD, headers=[("trace", b"bench")])
        due = _due(self._chance)
        form = self._form
        if form == "auto":
            form = "karafka" if self._offset % 2 else "etf1"
        if form == "etf1":
            return etf1.schedule(content, key, due, self._topic)
        if form == "karafka":
            return karafka.schedule(content, due, self._topic, key)
        return sky.schedule(content, key, due, self._topic, "avro" if form == "sky-avro" else "json")


class Requests:
    """Timer requests: all are new, and each becomes a schedule."""

    def __init__(self, topic: str, partition: int) -> None:
        self.pending = 0
        self._topic, self._chance = topic, random.Random(partition)

    def records(self, count: int) -> Iterator[Message]:
        """The next ones."""
        for _ in range(count):
            content = client.Message("target", key=b"key-%d" % self.pending, value=PAYLOAD)
            self.pending += 1
            yield timers.schedule(content, _due(self._chance), self._topic)


def _due(chance: random.Random) -> datetime:
    return FIRST_DUE + timedelta(seconds=chance.randrange(DAYS * 86_400))
