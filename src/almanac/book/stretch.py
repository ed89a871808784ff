"""A stretch of one partition's log, and who reads it: a task of Spark's, with the client that the wheels have."""

import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from almanac import errors, kafka, tail
from almanac.record import Record

Partition = tuple[str, int]
Offsets = Mapping[Partition, int]

BEGINNING = OFFSET_BEGINNING  # where a stretch starts that begins with the log itself

RECORDS = 2_000  # of one look
_MEMORY = {"queued.max.messages.kbytes": 8_192, "queued.min.messages": 10_000, "fetch.queue.backoff.ms": 5}
PATIENCE = 30.0  # seconds in which Kafka says something


class Stretch(NamedTuple):
    """From `start` to before `end`, and how its records are read."""

    topic: str
    partition: int
    start: int
    end: int
    complete: int  # of versions below it the book knows all there is to know: see `table`
    topic_id: str
    form: str  # the wire format's name


class Log(Protocol):
    """Where records are. It is sent to the tasks, and must not be used before."""

    def read(self, stretch: Stretch) -> Iterator[list[Record]]:
        """The stretch's committed records, in order, some at a time."""

    def close(self) -> None:
        """Ends reading."""


class KafkaLog:
    """The real one. `config` is a consumer's, as `kafka.consumer` makes it, without what cannot be sent."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = {name: value for name, value in config.items() if name not in ("error_cb", "logger")}
        self._consumer: Consumer | None = None

    def read(self, stretch: Stretch) -> Iterator[list[Record]]:
        """See Log."""
        if self._consumer is None:  # never before a fork
            self._consumer = Consumer({**self._config, **_MEMORY, "group.id": f"{self._config['group.id']}-book"})
        consumer, end = self._consumer, stretch.end
        consumer.assign([TopicPartition(stretch.topic, stretch.partition, stretch.start)])
        heard = time.monotonic()
        while True:
            found = consumer.consume(RECORDS, 0.2)
            records = [record for message in found if (record := _record(message, stretch)) is not None]
            while records and records[-1].offset >= end:
                records.pop()
            yield records
            # A transaction's marker may be the last thing before the end: then the end is told instead.
            if found and (found[-1].offset() or 0) + (not kafka.is_end(found[-1])) >= end:
                return
            if found:
                heard = time.monotonic()
            elif time.monotonic() - heard > PATIENCE:
                raise errors.Unreachable(f"reading {stretch.topic}/{stretch.partition}: Kafka went silent")

    def close(self) -> None:
        """See Log."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


def _record(message: Any, stretch: Stretch) -> Record | None:
    """As `tail.said`, of which place is known: it is done for every record there is."""
    if message.error() is not None:
        said = tail.said(message)  # raises if the log no longer reaches back to the start
        return said if isinstance(said, Record) else None
    try:
        headers: Any = message.headers() or []
    except Exception:  # rule 5: a header's name that is not UTF-8 makes the client raise
        headers = [("\ufffd", None)]
    fields = (
        stretch.topic, stretch.partition, message.offset(), message.timestamp()[1], message.key(), message.value(),
        headers,
    )  # fmt: skip
    return _new(Record, fields)


_new = tuple.__new__  # what a named tuple does on top of it would be felt
