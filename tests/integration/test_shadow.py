"""`almanac run --shadow`: it says what it would fire, and writes nothing to a peer's topics."""

import json
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from applications import almanac
from confluent_kafka import IsolationLevel, Producer
from confluent_kafka.admin import AdminClient
from conftest import MakeTopic
from waiting import until

from almanac import client, scan, tail
from almanac.broker import Broker
from almanac.client import Message


@pytest.mark.long
def test_a_shadow_writes_nothing(broker: Broker, admin: AdminClient, make_topic: MakeTopic, tmp_path: Path) -> None:
    name = f"s{uuid.uuid4().hex[:8]}"
    peer, target = make_topic("peer", 2, {"cleanup.policy": "compact"}), make_topic("target", 1)
    environ = {
        "BOOTSTRAP_SERVERS": broker.bootstrap_servers, "GROUP_ID": name, "SCHEDULES_TOPICS": f"{peer}=sky-json",
        "BOOK_LOCATION": str(tmp_path / "book"), "LOG_JSON": "true", "PAGE_LENGTH": "4s",
    }  # fmt: skip
    producer = Producer({**broker.client_settings(), "partitioner": "murmur2_random"})

    def ends() -> dict[tuple[str, int], int]:
        return tail.ends(admin, scan.partitions(admin, [peer, target]), IsolationLevel.READ_UNCOMMITTED)

    def write(*messages: Message) -> dict[tuple[str, int], int]:
        for message in messages:
            producer.produce(**message.arguments())
        assert producer.flush(10) == 0
        return ends()

    def sky(id: str, seconds: float) -> Message:  # noqa: A002
        at = datetime.now(UTC) + timedelta(seconds=seconds)
        return client.sky.schedule(Message(target, b"k", b"v"), id, at, peer, "json")

    write(sky("missed", -5), sky("later", 3600))
    topics_before = set(admin.list_topics(timeout=10).topics)
    with almanac(environ, tmp_path, "run", "--shadow") as shadow:
        shadow.says("would fire missed")
        begun = time.time() * 1000
        cancelled, garbage = sky("cancelled", 4), Message(peer, b"later", b"garbage")  # which would be disposed of
        after = write(sky("soon", 2), sky("second", 6), cancelled, client.sky.cancel("cancelled", peer), garbage)
        for id in ("soon", "second"):  # noqa: A001
            shadow.says(f"would fire {id}", 30)
        shadow.says("would refuse later", 30)
        tombstone = Message(peer, b"second", None, [("schedule:expired", b"true")])  # the peer fires it too
        after = write(tombstone)
        # Two more pages: what was named is not named again, though nobody has acknowledged it.
        pages = tmp_path / "book" / f"{name}-shadow" / "pages"
        until(lambda: _newest(pages) >= 4, 60, "pages were turned")
        shadow.says("a shadow, which fires nothing")
        assert shadow.end() == 0
        told = [json.loads(line) for line in shadow.lines if "would fire" in line and line.startswith("{")]
    assert sorted(line["id"] for line in told) == ["missed", "second", "soon"]
    soon = next(line for line in told if line["id"] == "soon")
    assert soon["target"] == target
    assert soon["due_ms"] > begun
    assert 0 <= soon["late_ms"] < 2_000
    assert ends() == after, "it wrote to the peer's topics"
    assert set(admin.list_topics(timeout=10).topics) - topics_before == {f"{name}-shadow-shards"}


def _newest(pages: Path) -> int:
    """The number of the newest page there is."""
    numbers = [path.name.partition("-")[0] for path in pages.glob("*")]
    return max((int(number) for number in numbers if number.isdecimal()), default=0)
