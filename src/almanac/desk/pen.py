"""Writes to the schedules topics, each record acknowledged by Kafka before the call returns."""

from __future__ import annotations

import threading

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from almanac import errors, kafka
from almanac.record import Headers
from almanac.settings import Settings

_LARGEST = 100_000_000  # the broker's limit is the one that counts, and its answer the clearer one


class Unsure(errors.Unreachable):
    """Kafka did not say whether it has the record: it may be written or not. The same again does no harm."""


class Pen:
    """One producer, made at the first record. Thread-safe."""

    def __init__(self, settings: Settings, seconds: float = kafka.ANSWER_SECONDS) -> None:
        self._settings, self._seconds = settings, seconds
        self._lock = threading.Lock()
        self._producer: Producer | None = None

    def open(self) -> Producer:
        """Connects; without it the first record does."""
        with self._lock:
            if self._producer is None:
                config = kafka.producer(
                    self._settings, linger_ms=0, message_max_bytes=_LARGEST,
                    delivery_timeout_ms=int(self._seconds * 1000),
                )  # fmt: skip
                self._producer = Producer(config)
            return self._producer

    def write(
        self,
        topic: str,
        id: bytes,
        value: bytes | None,
        headers: Headers,
        partition: int | None = None,
    ) -> tuple[int, int]:
        """Partition and offset of the record. Raises Unsure, errors.AlmanacError."""
        producer, done = self.open(), threading.Event()
        answers: list[tuple[KafkaError | None, Message]] = []

        def told(error: KafkaError | None, message: Message) -> None:
            answers.append((error, message))
            done.set()

        place = -1 if partition is None else partition
        try:
            producer.produce(topic, value, id, partition=place, headers=list(headers), on_delivery=told)
        except (KafkaException, BufferError) as error:
            raise errors.AlmanacError(f"{topic}: it was not sent: {errors.brief(error)}") from error
        shown = id.decode(errors="backslashreplace")
        # Whoever polls serves all who wait: the deliveries of other threads set their events too.
        waited = 0.0
        while not done.is_set() and waited < self._seconds + 1:
            producer.poll(0.02)
            waited += 0 if done.wait(0) else 0.02
        if not answers:
            raise Unsure(f"writing {shown} to {topic}: Kafka did not answer. It may be written or not")
        refused, message = answers[0]
        if refused is None:
            return message.partition() or 0, message.offset() or 0
        if refused.code() == KafkaError._MSG_TIMED_OUT:
            raise Unsure(f"writing {shown} to {topic}: {refused.str()}. It may be written or not")
        raise kafka.explained(KafkaException(refused), f"writing {shown} to {topic}")

    def close(self) -> None:
        if self._producer is not None:
            self._producer.flush(2)
