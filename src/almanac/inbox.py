"""The request topics on Kafka, and how far the bridge's consumer group has read them."""

import logging
from collections.abc import Sequence

from confluent_kafka import Consumer, IsolationLevel, KafkaException, Message, TopicPartition

from almanac import errors, kafka, ports, tail, topics
from almanac.record import Record
from almanac.settings import Settings

log = logging.getLogger("almanac.inbox")

ANSWER = 10.0  # seconds
FULL = 5_000  # records of one poll: they are passed on at once, and full transactions cost less


class KafkaInbox:
    """See ports.Inbox."""

    def __init__(self, settings: Settings) -> None:
        self._topics = settings.request_topics
        self._admin = kafka.admin_client(settings)
        # Partitions are assigned, never subscribed to: who reads is decided by the claim, not by the group.
        self.consumer = Consumer(
            kafka.consumer(
                settings,
                group_id=settings.bridge_group,
                fetch_wait_max_ms=100,
                # A queue that was full is filled again soon: after a second (the default) the bridge would wait for it.
                # It counts values alone, and headers may be large.
                queued_max_messages_kbytes=16_384,
                queued_min_messages=5_000,
                fetch_queue_backoff_ms=5,
            )
        )

    def look(self) -> dict[ports.Source, ports.Partition]:
        """See ports.Inbox."""
        try:
            found = topics.descriptions(self._admin, self._topics)
        except errors.AlmanacError as error:
            raise ports.Unavailable(str(error)) from error
        missing = set(self._topics) - set(found)
        if missing:
            raise ports.Unavailable(f"topic {', '.join(sorted(missing))} does not exist: almanac topics apply")
        sources = [(name, partition.id) for name, topic in found.items() for partition in topic.partitions]
        low = tail.beginnings(self._admin, sources)
        stable = tail.ends(self._admin, sources, IsolationLevel.READ_COMMITTED)
        marks = self._committed(sources)
        return {
            source: ports.Partition(str(found[source[0]].topic_id), low[source], stable[source], marks.get(source))
            for source in sources
        }

    def _committed(self, sources: list[ports.Source]) -> dict[ports.Source, ports.Mark]:
        # A group that reads committed is told what no open transaction can change any more.
        try:
            answers = self.consumer.committed([TopicPartition(*source) for source in sources], timeout=ANSWER)
        except KafkaException as error:
            raise ports.Unavailable(f"Kafka does not say what was bridged: {error.args[0].str()}") from error
        marks = {}
        for answer in answers:
            if answer.error is not None:
                raise ports.Unavailable(f"Kafka does not say what was bridged: {answer.error.str()}")
            if answer.offset >= 0:
                marks[answer.topic, answer.partition] = ports.Mark(answer.offset, answer.metadata or "")
        return marks

    def seek(self, positions: dict[ports.Source, int]) -> None:
        """See ports.Inbox."""
        self.consumer.assign([TopicPartition(*source, offset) for source, offset in positions.items()])

    def poll(self, seconds: float) -> list[Record | ports.End]:
        """See ports.Inbox."""
        # poll() wakes for the first record; consume() would wait until all of them are there
        head = self.consumer.poll(seconds)
        if head is None:
            return []
        messages = [head, *self.consumer.consume(FULL, 0)]
        try:
            read = [tail.said(message) for message in messages]
        except ports.LogLost as error:
            raise ports.Unavailable(str(error)) from error
        if None in read:
            tell(messages)
        return [found for found in read if found is not None]

    def close(self) -> None:
        """Ends reading."""
        self.consumer.close()


def tell(messages: Sequence[Message]) -> None:
    """Raises Unavailable for errors that do not pass by themselves, such as a right to read that is missing."""
    for message in messages:
        error = message.error()
        if error is not None and not kafka.is_end(message):
            explained = kafka.explained(KafkaException(error), f"reading {message.topic() or 'requests'}")
            if not isinstance(explained, errors.Unreachable):
                raise ports.Unavailable(str(explained))
