"""The examples of the guides, run as they stand there on a real Kafka."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from waiting import until

from almanac import formats, topics, words
from almanac.broker import Broker
from almanac.formats import timers
from almanac.record import Record
from almanac.scan import record

DOCS = Path(__file__).parents[2] / "docs"
BLOCKS = re.compile(r"```python\n(.*?)```", re.DOTALL)
TOPICS = ("schedules", "online-videos", "rails", "expiry", "timer-request")


@pytest.fixture(scope="module", autouse=True)
def _topics(admin: AdminClient) -> None:
    admin.create_topics([NewTopic(name, 3, 1) for name in TOPICS])
    until(lambda: len(topics.partition_counts(admin, TOPICS)) == len(TOPICS), 10, "the topics are known")


def run(guide: str, broker: Broker) -> dict[str, Any]:
    """Every block of the guide, one after the other; the names that they leave behind."""
    names: dict[str, Any] = {}
    for block in BLOCKS.findall((DOCS / guide).read_text(encoding="utf-8")):
        exec(block.replace("localhost:9092", broker.bootstrap_servers), names)
    return names


def written(broker: Broker, topic: str) -> list[Record]:
    consumer = Consumer({**broker.client_settings(), "group.id": "guides", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(3)])
    found, ends = [], 0
    while ends < 3:
        message = consumer.poll(10)
        assert message is not None
        if message.error() is None:
            found.append(record(message))
        else:
            ends += 1
    consumer.close()
    return found


def test_scheduling_from_a_program(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    run("client.md", broker)
    assert re.fullmatch(r"schedules, partition \d, offset \d+\n", capsys.readouterr().out)
    native = written(broker, "schedules")
    again = [each for each in native if each.key == b"vid1-again"]
    assert [each.value for each in again] == [b"video 1", b"video 1", None]
    assert len({each.partition for each in again}) == 1
    assert len([each for each in native if each.key == b"payment-42"]) == 2
    for topic, form, wanted in (
        ("rails", "karafka", {"Word": 2, "Kill": 1}),
        ("expiry", "sky-json", {"Word": 1, "Kill": 1}),
        ("schedules", "etf1", {"Word": 6, "Kill": 2}),
    ):
        said = (words.read(each, formats.named(form), "id") for each in written(broker, topic))
        assert Counter(type(each).__name__ for each in said) == wanted, topic
    assert [timers.read(each).target for each in written(broker, "timer-request")] == ["calls"]


def test_the_guide_for_consumers(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    producer = Producer(broker.client_settings())
    for second in (b"1", b"1", b"2"):  # the first one is read twice
        headers: Any = [("scheduler-topic", b"schedules"), ("scheduler-key", b"vid1"), ("scheduler-timestamp", second)]
        producer.produce("online-videos", b"video %s" % second, b"vid1", headers=headers)
    producer.flush(10)
    guide = run("consumers.md", broker)

    def online() -> list[str]:
        guide["work"]()
        return [video for (video,) in guide["database"].execute("SELECT video FROM online")]

    until(lambda: "video 2" in online(), 30, "all is read")
    assert online() == ["video 1", "video 2"]
    guide["consumer"].close()


def test_the_readme(broker: Broker) -> None:
    text = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    (example,) = [block for block in BLOCKS.findall(text) if "client.Scheduler" in block]
    exec(example.replace("localhost:9092", broker.bootstrap_servers), {})
    assert b"vid1-online" in {each.key for each in written(broker, "schedules")}


def test_giving_a_message_back(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    guide = run("consumers.md", broker)
    producer = Producer(broker.client_settings())
    producer.produce("online-videos", b"broken", b"vid9", partition=2)
    producer.flush(10)
    reader = Consumer({**broker.client_settings(), "group.id": "guides"})
    reader.assign([TopicPartition("online-videos", 2, 0)])
    message = until(lambda: reader.poll(1), 10, "a message")
    guide["try_later"](message)
    (back,) = [each for each in written(broker, "schedules") if (each.key or b"").startswith(b"retry-online-videos-2-")]
    assert dict(back.headers)["retry-attempt"] == b"1"
    reader.close()
    guide["consumer"].close()
