"""Stretches of a real Kafka's log, one after the other through one client, as a task reads them."""

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from almanac import errors, kafka, ports
from almanac.book import stretch
from almanac.broker import Broker
from almanac.settings import Settings

MakeTopic = Callable[..., str]


@pytest.fixture
def log(broker: Broker) -> Iterator[stretch.KafkaLog]:
    servers = str(broker.client_settings()["bootstrap.servers"])
    made = stretch.KafkaLog(kafka.consumer(Settings(bootstrap_servers=servers)))
    yield made
    made.close()


@pytest.fixture
def topic(broker: Broker, make_topic: MakeTopic) -> str:
    """Two partitions: three records and a marker, two aborted ones and a marker, two records and a marker."""
    name = make_topic("schedules", 2)
    producer = Producer({**broker.client_settings(), "transactional.id": f"stretch-{name}"})
    producer.init_transactions(30)
    for part, count, abort in (("a", 3, False), ("b", 2, True), ("c", 2, False)):
        producer.begin_transaction()
        for partition in (0, 1):
            for n in range(count):
                producer.produce(name, f"{partition}", f"{part}{n}", partition=partition, headers={"h": b"v"})
        producer.flush(30)
        producer.abort_transaction(30) if abort else producer.commit_transaction(30)
    return name


def read(log: stretch.KafkaLog, topic: str, partition: int, start: int, end: int) -> list[tuple[str, int]]:
    found = []
    for records in log.read(stretch.Stretch(topic, partition, start, end, -1, "-", "etf1")):
        for each in records:
            assert (each.topic, each.partition, each.value) == (topic, partition, b"%d" % partition)
            assert each.headers == [("h", b"v")]
            found.append(((each.key or b"").decode(), each.offset))
    return found


ALL = [("a0", 0), ("a1", 1), ("a2", 2), ("c0", 7), ("c1", 8)]


def test_stretches_end_where_they_should(log: stretch.KafkaLog, topic: str) -> None:
    assert read(log, topic, 0, stretch.BEGINNING, 10) == ALL, "the end is behind the last marker"
    assert read(log, topic, 1, 0, 2) == ALL[:2], "in the middle of a transaction"
    assert read(log, topic, 0, 1, 7) == ALL[1:3], "behind a marker and what was aborted"
    assert read(log, topic, 1, 4, 6) == [], "nothing but what was aborted"
    assert read(log, topic, 0, 8, 9) == ALL[4:]


def test_a_log_that_no_longer_reaches_back_is_told(log: stretch.KafkaLog, topic: str, admin: AdminClient) -> None:
    (gone,) = admin.delete_records([TopicPartition(topic, 0, 2)]).values()
    gone.result(10)
    assert read(log, topic, 0, stretch.BEGINNING, 10) == ALL[2:]
    with pytest.raises(ports.LogLost, match=topic):
        read(log, topic, 0, 1, 10)


def test_a_kafka_that_is_silent_is_told(topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretch, "PATIENCE", 1.0)
    log = stretch.KafkaLog(kafka.consumer(Settings(bootstrap_servers="127.0.0.1:1")))
    with pytest.raises(errors.Unreachable, match=f"{topic}.*at 0"):
        read(log, topic, 0, 0, 10)
    log.close()
