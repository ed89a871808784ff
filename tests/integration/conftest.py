"""What the tests with a real Spark share."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from conftest import MakeTopic
from moving import Place
from pyspark.sql import SparkSession

from almanac import jars
from almanac.book import archive, session, table
from almanac.broker import Broker
from almanac.client import Message
from almanac.settings import Settings


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for all tests: to start it takes seconds."""
    settings = Settings(group_id="tests", book_location=str(tmp_path_factory.mktemp("books")))
    started = session.session(settings, 0, jars.spark_jars(), archive.options())
    yield started
    started.stop()


@pytest.fixture
def book(spark: SparkSession, tmp_path: Path) -> table.Book:
    """An empty book."""
    made = table.Book(str(tmp_path / "group"), spark)
    made.create()
    return made


@pytest.fixture
def place(broker: Broker, make_topic: MakeTopic, admin: AdminClient) -> Place:
    name = f"m{uuid.uuid4().hex[:8]}"
    native = make_topic("native", 3, {"cleanup.policy": "compact"})
    peer = make_topic("peer", 2, {"cleanup.policy": "compact"})
    environ = {"BOOTSTRAP_SERVERS": broker.bootstrap_servers, "GROUP_ID": name, "SCHEDULES_TOPICS": native}
    return Place(environ, native, peer, admin)


@pytest.fixture
def write(broker: Broker) -> Iterator[Callable[..., None]]:
    """Writes messages, and returns when Kafka has them."""
    producer = Producer(
        {**broker.client_settings(), "partitioner": "murmur2_random", "linger.ms": 5, "message.max.bytes": 2_000_000}
    )

    def written(*messages: Message, **more: Any) -> None:
        for message in messages:
            producer.produce(**message.arguments(), **more)
            producer.poll(0)
        assert producer.flush(30) == 0

    yield written
    producer.flush(5)
