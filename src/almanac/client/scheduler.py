"""Schedules and cancels on confluent-kafka, each call acknowledged by Kafka before it returns."""

import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Self

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as Delivered

from almanac import errors
from almanac.client import backoff, etf1, message
from almanac.client.message import Message


class NotAcknowledged(errors.Unreachable):
    """Kafka did not acknowledge the record. It may come or not: the same call again, with the same id, does no harm."""


class NotSent(NotAcknowledged):
    """Kafka does not take the record, and never will as it is: it is too large, or its partition does not exist."""


LEAST, MOST = 0.001, 1_000_000  # seconds that Kafka may take

_NEVER = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError._UNKNOWN_PARTITION)


def _never(error: object) -> bool:
    return isinstance(error, KafkaError) and error.code() in _NEVER


class Written(NamedTuple):
    """Where an acknowledged record is."""

    topic: str
    partition: int
    offset: int


class Scheduler:
    """Writes native schedules to one topic, and records of any format; safe to be used by several threads."""

    def __init__(
        self, configuration: Mapping[str, Any], topic: str = "schedules", seconds: float = 10.0,
        clock: Callable[[], datetime] = message.now,
    ) -> None:  # fmt: skip
        """`configuration` is librdkafka's; `seconds` is how long Kafka may take to acknowledge; `clock` tells the time.

        Raises NoTopic, and ClientError for a configuration that librdkafka refuses.
        """
        if "transactional.id" in configuration:
            raise message.ClientError("transactional.id: each record is acknowledged by itself, in no transaction")
        if not LEAST <= seconds <= MOST:
            raise message.ClientError(f"seconds={seconds!r}: must be from {LEAST} to {MOST:,}")
        self._topic, self._seconds, self._now = message.checked_topic(topic), seconds, clock
        safe = {"enable.idempotence": True, "acks": "all", "partitioner": "murmur2_random", "linger.ms": 0}
        try:
            self._open: Producer | None = Producer({**safe, **configuration, "message.timeout.ms": int(seconds * 1000)})
        except KafkaException as refused:
            raise message.ClientError(f"the configuration is refused: {errors.brief(refused)}") from refused

    def schedule(
        self, content: Message, id: str | bytes, *, at: datetime | None = None, after: timedelta | None = None
    ) -> Written:
        """At a time or after a while, one of them. Raises what `etf1.schedule` does, NoTime and NotAcknowledged."""
        now = self._now()
        if after is not None and at is None:
            try:
                at = now + after
            except OverflowError:
                raise (message.TooFarAhead if after > timedelta() else message.InThePast)(f"after={after!r}") from None
        elif at is None or after is not None:
            raise message.NoTime
        return self.send(etf1.schedule(content, id, at, self._topic, now))

    def retry(self, failed: Message, id: str | bytes, wait: backoff.Backoff | None = None) -> Written:
        """Once more, later each time. Raises what `etf1.retry` does, and NotAcknowledged."""
        return self.send(etf1.retry(failed, id, self._topic, wait, self._now()))

    def cancel(self, id: str | bytes) -> Written:
        """What is pending under the id is not delivered. Raises NoId, NotAcknowledged."""
        return self.send(etf1.cancel(id, self._topic))

    def send(self, built: Message) -> Written:
        """A record that any of the formats built. Raises NoTopic, NotSent, NotAcknowledged."""
        producer = self._producer
        message.checked_topic(built.topic)
        answers: list[tuple[KafkaError | None, Delivered]] = []
        deadline = time.monotonic() + self._seconds + 1  # librdkafka says so itself a little later
        try:
            if built.partition_key is not None:
                built = built.placed(self._partitions(built.topic))
            producer.produce(**built.arguments(), on_delivery=lambda error, told: answers.append((error, told)))
        except (KafkaException, BufferError) as refused:
            reason = f"{built.topic}: it was not sent: {errors.brief(refused)}"
            raise (NotSent if _never(refused.args[0]) else NotAcknowledged)(reason) from refused
        while not answers and time.monotonic() < deadline:
            producer.poll(0.05)
        error, told = answers[0] if answers else (None, None)
        if told is None or error is not None:
            reason = error.str() if error is not None else f"no answer within {self._seconds:g} s"
            if _never(error):
                raise NotSent(f"{built.topic}: {reason}")
            raise NotAcknowledged(f"{built.topic}: {reason}. It may come or not: the same again does no harm")
        return Written(built.topic, told.partition() or 0, told.offset() or 0)

    def close(self) -> None:
        """Waits for what other threads may still be sending, and lets Kafka go. Safe to call twice."""
        producer, self._open = self._open, None
        if producer is not None:
            producer.flush(self._seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _producer(self) -> Producer:
        if self._open is None:
            raise message.ClientError("this scheduler is closed: make another")
        return self._open

    def _partitions(self, topic: str) -> int:
        found = self._producer.list_topics(topic, timeout=self._seconds).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        return len(found.partitions)
