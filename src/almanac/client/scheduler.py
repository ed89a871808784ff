"""Schedules and cancels on confluent-kafka, each call acknowledged by Kafka before it returns."""

from datetime import datetime, timedelta
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as Delivered

from almanac.client import etf1, message
from almanac.client.message import Message


class Scheduler:
    """Writes native schedules to one topic; closed, or left by its `with` block, it has sent everything."""

    def __init__(self, configuration: dict[str, Any], topic: str = "schedules", seconds: float = 10.0) -> None:
        """`configuration` is librdkafka's; `seconds` is how long Kafka may take to acknowledge."""
        safe = {"enable.idempotence": True, "acks": "all", "partitioner": "murmur2_random"}
        self._producer = Producer({**safe, **configuration, "message.timeout.ms": int(seconds * 1000)})
        self._topic, self._seconds = topic, seconds

    def schedule(
        self, content: Message, id: str | bytes, *, at: datetime | None = None, after: timedelta | None = None
    ) -> tuple[int, int]:
        """At a time or after a while, one of them. Returns partition and offset of the acknowledged record."""
        if (at is None) == (after is None):
            raise message.ClientError("give one of at=datetime(...) and after=timedelta(...)")
        due = at if at is not None else message.now() + (after or timedelta())
        return self._send(etf1.schedule(content, id, due, self._topic))

    def cancel(self, id: str | bytes) -> tuple[int, int]:
        """What is pending under the id is not delivered. Returns partition and offset of the acknowledged record."""
        return self._send(etf1.cancel(id, self._topic))

    def close(self) -> None:
        """Sends what is left."""
        self._producer.flush(self._seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, built: Message) -> tuple[int, int]:
        answers: list[tuple[KafkaError | None, Delivered]] = []
        self._producer.produce(**built.arguments(), on_delivery=lambda error, told: answers.append((error, told)))
        self._producer.flush(self._seconds)
        if not answers:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "Kafka did not acknowledge it; it may come or not"))
        error, told = answers[0]
        if error is not None:
            raise KafkaException(error)
        return told.partition() or 0, told.offset() or 0
