"""The live tail: the schedules partitions of one shard, committed records only, and where they end."""

import logging
import threading
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from almanac import kafka, ports
from almanac.record import UNREADABLE, Record
from almanac.settings import Settings

log = logging.getLogger("almanac.tail")

ASK = 1.0  # seconds between questions for the ends
ANSWER, LOOK = 5.0, 1.0  # seconds

_new = tuple.__new__  # of every record there is: what a named tuple does on top of it would be felt


class KafkaTail:
    """See ports.Tail."""

    def __init__(self, settings: Settings, sources: Sequence[ports.Source], fetch_wait_ms: int = 100) -> None:
        self._sources = list(sources)
        self._consumer = Consumer(
            kafka.consumer(
                settings,
                group_id=f"{settings.group_id}-wheel",
                fetch_wait_max_ms=fetch_wait_ms,
                fetch_min_bytes=1,
                # A short queue, and it is filled again soon: after a second (the default) cancels would wait.
                queued_max_messages_kbytes=8_192,
                queued_min_messages=5_000,
                fetch_queue_backoff_ms=20,
            )
        )
        self._admin = AdminClient(kafka.admin(settings))
        self._stable: ports.Stable | None = None
        self._closed = threading.Event()
        self._asking = threading.Thread(target=self._ask, name="ends", daemon=True)

    def seek(self, positions: dict[ports.Source, int]) -> None:
        """See ports.Tail."""
        self._consumer.assign([TopicPartition(t, p, offset) for (t, p), offset in positions.items()])
        if not self._asking.is_alive():
            self._asking.start()

    def poll(self, seconds: float) -> list[Record | ports.End]:
        """See ports.Tail."""
        # poll() wakes for the first record; consume() would wait until all of them are there
        head = self._consumer.poll(seconds)
        if head is None:
            return []
        return [
            found for message in (head, *self._consumer.consume(ports.FULL, 0)) if (found := said(message)) is not None
        ]

    def high(self) -> dict[ports.Source, int]:
        """See ports.Tail."""
        return ends(self._admin, self._sources, IsolationLevel.READ_UNCOMMITTED)

    def stable(self) -> ports.Stable | None:
        """See ports.Tail."""
        return self._stable

    def close(self) -> None:
        """Ends reading."""
        self._closed.set()
        self._consumer.close()

    def _ask(self) -> None:
        while not self._closed.wait(ASK if self._stable is not None else 0.05):
            asked = time.monotonic() * 1000
            try:
                high = ends(self._admin, self._sources, IsolationLevel.READ_UNCOMMITTED)
                stable = ends(self._admin, self._sources, IsolationLevel.READ_COMMITTED)
                self._stable = ports.Stable(asked, stable, high)
            except ports.Unavailable as error:
                log.debug("%s", error)


def ends(admin: AdminClient, sources: Sequence[ports.Source], level: IsolationLevel) -> dict[ports.Source, int]:
    """Where the partitions end: high watermarks, or (READ_COMMITTED) last stable offsets."""
    return _offsets(admin, sources, OffsetSpec.latest(), level)  # type: ignore[no-untyped-call]  # not typed there


def beginnings(admin: AdminClient, sources: Sequence[ports.Source]) -> dict[ports.Source, int]:
    """Where the partitions begin."""
    spec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # not typed there
    return _offsets(admin, sources, spec, IsolationLevel.READ_UNCOMMITTED)


def _offsets(
    admin: AdminClient, sources: Sequence[ports.Source], spec: OffsetSpec, level: IsolationLevel
) -> dict[ports.Source, int]:
    asked = {TopicPartition(topic, partition): spec for topic, partition in sources}

    def answer() -> dict[ports.Source, int]:
        futures = admin.list_offsets(asked, isolation_level=level, request_timeout=ANSWER)
        return {(place.topic, place.partition): future.result(ANSWER + 1).offset for place, future in futures.items()}

    try:
        try:
            return answer()
        except KafkaException:
            # Partitions that were given another leader, or the same again: the client asks with what it remembers of
            # them, for minutes (FENCED_LEADER_EPOCH), unless it is made to look.
            for topic in {topic for topic, _ in sources}:
                admin.list_topics(topic, timeout=LOOK)
            return answer()
    except (KafkaException, TimeoutError) as error:
        raise ports.Unavailable(f"Kafka does not say where the schedules topics end: {error}") from error


def said(message: Any) -> Record | ports.End | None:
    """A message as the wheel understands it; None for an error that passes."""
    error = message.error()
    topic, partition, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
    if error is None:
        try:
            headers: Any = message.headers() or []
        except Exception:  # rule 5: a header's name that is not UTF-8 makes the client raise
            headers = [(UNREADABLE, None)]
        return _new(Record, (topic, partition, offset, message.timestamp()[1], message.key(), message.value(), headers))
    if error.code() == KafkaError._PARTITION_EOF:
        return ports.End(topic, partition, offset)
    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        raise ports.LogLost(f"{topic}/{partition} no longer holds the offsets that the page ends at: {error.str()}")
    log.debug("tail: %s", error.str())
    return None
