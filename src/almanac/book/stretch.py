"""A stretch of one partition's log, and who reads it: a task of Spark's, with the client that the wheels have."""

import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from almanac import errors
from almanac.record import Record

Partition = tuple[str, int]
Offsets = Mapping[Partition, int]

BEGINNING = OFFSET_BEGINNING  # where a stretch starts that begins with the log itself

RECORDS = 5_000  # of one look
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
        from almanac import tail  # in the task: what it loads is not for the driver alone

        if self._consumer is None:  # never before a fork
            self._consumer = Consumer({**self._config, "group.id": f"{self._config['group.id']}-book"})
        consumer, end = self._consumer, stretch.end
        consumer.assign([TopicPartition(stretch.topic, stretch.partition, stretch.start)])
        heard = time.monotonic()
        while True:
            found = consumer.consume(RECORDS, 0.2)
            records, done = [], False
            for message in found:
                offset = message.offset()
                error = message.error()
                if error is not None:
                    # A transaction's marker may be the last thing before the end: then the end is told instead.
                    done = done or (error.code() == KafkaError._PARTITION_EOF and (offset or 0) >= end)
                    tail.said(message)  # raises if the log no longer reaches back to the start
                elif offset is not None and offset < end:
                    records.append(tail.said(message))
                done = done or (offset is not None and offset + 1 >= end)
            if records:
                yield records  # type: ignore[misc]  # no ends among them
            if done:
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
