"""What the examples share: a scheduler to ask, and a reader of what arrives. Kafka is at BOOTSTRAP_SERVERS."""

import os
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from almanac.client import Message, Scheduler

KAFKA: dict[str, Any] = {"bootstrap.servers": os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")}


def scheduler() -> Scheduler:
    """Writes to the topic `schedules`, where `almanac up` reads."""
    return Scheduler(KAFKA)


class Arrivals:
    """The messages of a topic from now on. Committed ones only: so each is delivered once."""

    def __init__(self, topic: str) -> None:
        admin = AdminClient(KAFKA)
        try:
            admin.create_topics([NewTopic(topic, 1)])[topic].result(10)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        self._consumer = Consumer({**KAFKA, "group.id": "examples", "isolation.level": "read_committed"})
        while not (numbers := self._consumer.list_topics(topic, timeout=10).topics[topic].partitions):
            time.sleep(0.1)  # a topic that was just made
        partitions = [TopicPartition(topic, number) for number in numbers]
        for each in partitions:
            _, each.offset = self._consumer.get_watermark_offsets(each, timeout=10)
        self._consumer.assign(partitions)

    def next(self, seconds: float = 30) -> Message:
        """The next message; TimeoutError if none comes."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = self._consumer.poll(0.2)
            if found is None:
                continue
            if found.error() is not None:
                raise KafkaException(found.error())
            headers: Any = found.headers() or []
            return Message(found.topic() or "", found.key(), found.value(), headers)
        raise TimeoutError(f"nothing came within {seconds:g} s: does the scheduler run?")
