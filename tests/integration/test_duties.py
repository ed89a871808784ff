"""Bridge and oscillator on a real broker, without Spark: what Kafka itself says of offsets, ids, ends and fences."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions
from engine import Got, Group, now
from typer.testing import CliRunner
from waiting import until

from almanac import kafka, shard, sink, topics
from almanac.broker import Broker
from almanac.cli import app
from almanac.client import Message, timers
from almanac.dial import KafkaDial
from almanac.formats import etf1
from almanac.inbox import KafkaInbox
from almanac.record import first

LATER = 1_900_000_000
AT = datetime.fromtimestamp(LATER, UTC)


@pytest.fixture
def group(broker: Broker, tmp_path: Path) -> Iterator[Group]:
    with Group(broker.bootstrap_servers, tmp_path, shards="1") as made:
        made.tell(
            schedules_topics=f"{made.topic},{made.name}-request=timers", oscillator_topic=f"{made.name}-oscillator"
        )
        topics.ensure(kafka.admin_client(made.settings), made.settings)
        yield made


class Driver:
    """As much of one as a duty needs: a claim, and who listens."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.ownership = shard.Ownership(group.settings, 1)
        self.ownership.look(1)
        self.owner = self.ownership.claim()[0]

    @contextmanager
    def serving(self, duty: str) -> Iterator["Driver"]:
        """The duty in a thread of this process, until the block ends."""
        job = sink.Job(self.group.settings, 0, self.owner, [], {}, 1 << 20, duty)
        ended: list[str] = []
        thread = threading.Thread(target=lambda: ended.append(sink.serve(job)), daemon=True)
        thread.start()
        until(lambda: self.state(duty) in ("bridging", "ticking"), 20, f"the {duty} works")
        try:
            yield self
        finally:
            self.ownership.stop()
            thread.join(20)
            self.ownership.close()
        assert ended in (["stopped"], ["replaced"])

    def state(self, duty: str) -> str:
        self.ownership.listen(0.1)
        return str(self.ownership.duties.get(duty, {}).get("state"))


def ask(group: Group, value: bytes, name: str | None = None, partition: int | None = None) -> None:
    request = timers.schedule(Message(group.target, b"key", value), AT, f"{group.name}-request", name)
    user = Producer(group.client)  # knows nothing of what the topic was before
    user.produce(**replace(request, partition=partition).arguments())
    assert user.flush(20) == 0


def bridged(group: Group, *values: bytes) -> list[Got]:
    """What is in the schedules topic, once these have come."""
    with group.read(group.topic) as reading:
        reading.until(lambda got: {each.value for each in got} >= set(values), 30, f"{values} are bridged")
        return reading.to_the_end()


def test_requests_become_schedules_and_their_offsets_go_with_them(group: Group) -> None:
    ask(group, b"before anybody reads")
    with Driver(group).serving("bridge"):
        ask(group, b"one")
        ask(group, b"two", "chosen")
        group.write(b"soon", b"?", [], topic=f"{group.name}-request", timestamp=now() - 5_000)
        group.flush()
        got = bridged(group, b"one", b"two")
        with group.dead_letters() as reading:
            (letter,) = reading.count(1)
    assert (letter.value, letter.header("almanac-reason")) == (b"?", b"invalid")
    found = {each.value: each for each in got}
    assert set(found) == {b"one", b"two"}
    assert (found[b"one"].key or b"").startswith(f"{group.name}-request/".encode())
    assert found[b"two"].key == b"chosen"
    headers = first(found[b"one"].headers)
    assert headers == {
        etf1.EPOCH: b"%d" % LATER, etf1.TOPIC: group.target.encode(), etf1.KEY: b"key", etf1.REQUEST: found[b"one"].key,
    }  # fmt: skip
    inbox = KafkaInbox(group.settings)
    for partition in inbox.look().values():
        assert partition.mark is not None
        assert (partition.mark.offset, partition.mark.topic_id) == (partition.stable, partition.topic_id)
    inbox.close()
    ask(group, b"while it is down")
    with Driver(group).serving("bridge"):
        assert len(bridged(group, b"while it is down")) == 3


def test_a_topic_that_grows_or_is_made_anew(group: Group) -> None:
    topic = f"{group.name}-request"
    with Driver(group).serving("bridge"):
        ask(group, b"one")
        bridged(group, b"one")
    group.admin.create_partitions([NewPartitions(topic, 6)])[topic].result(10)
    until(lambda: topics.partition_counts(group.admin, [topic]) == {topic: 6}, 10, "it has grown")
    ask(group, b"new", partition=5)
    with Driver(group).serving("bridge"):
        bridged(group, b"new")
    group.admin.delete_topics([topic])[topic].result(10)
    until(lambda: not topics.partition_counts(group.admin, [topic]), 10, "it is gone")
    group.make_topic(topic, 1)
    ask(group, b"anew")
    with Driver(group).serving("bridge"):
        got = bridged(group, b"anew")
    topic_id = topics.topic_ids(group.admin, [topic])[topic]
    assert [each.key for each in got if each.value == b"anew"] == [f"{topic}/{topic_id}/0/0".encode()]
    assert len(got) == 3


def test_a_later_owner_replaces_one_that_works(group: Group) -> None:
    with Driver(group).serving("bridge") as first_one:
        ask(group, b"one")
        bridged(group, b"one")
        with Driver(group).serving("bridge"):
            until(lambda: first_one.state("bridge") == "replaced", 20, "the first one ends")
            ask(group, b"two")
            assert len(bridged(group, b"one", b"two")) == 2


def test_each_second_once(group: Group) -> None:
    assert KafkaDial(group.settings).last() is None
    topic = f"{group.name}-oscillator"
    for _ in range(2):
        with Driver(group).serving("oscillator") as one, group.read(topic) as reading:
            reading.count(len(reading.to_the_end()) + 2)
            with Driver(group).serving("oscillator"):
                until(lambda: one.state("oscillator") == "replaced", 20, "the first one ends")
                reading.count(len(reading.got) + 2)
            got = reading.to_the_end()
    seconds = [int(each.key or b"") for each in got]
    assert seconds == list(range(seconds[0], seconds[0] + len(seconds)))
    assert all(each.timestamp >= 1000 * int(each.key or b"") for each in got)
    assert KafkaDial(group.settings).last() == seconds[-1]


def test_the_last_second_is_found_behind_what_was_aborted(group: Group) -> None:
    """In a peer's topic of two partitions: one has the last second, and a hundred aborted ones behind it."""
    topic = f"{group.name}-two"
    group.make_topic(topic, 2)
    producer = Producer({"bootstrap.servers": group.settings.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(20)
    written = ((range(99, 100), 1, False), (range(100, 101), 0, False), (range(101, 301), 0, True))
    for seconds, partition, aborted in written:
        producer.begin_transaction()
        for second in seconds:
            producer.produce(topic, b"1", b"%d" % second, partition)
        producer.flush(20)
        (producer.abort_transaction if aborted else producer.commit_transaction)(20)
    assert KafkaDial(group.settings.replaced(oscillator_topic=topic)).last() == 100


@pytest.mark.long
def test_doctor_and_config_know_of_them(group: Group) -> None:
    def checks() -> dict[str, tuple[str, str]]:
        told = ["doctor", "--json", "--schedules-topics", f"{group.topic},{group.name}-request=timers"]
        output = CliRunner().invoke(app, told, env=group._environment).stdout
        return {each["name"]: (each["status"], each["found"]) for each in json.loads(output)}

    assert "not read yet" in checks()["bridge"][1]
    with Driver(group).serving("bridge"):
        ask(group, b"one")
        bridged(group, b"one")
    assert checks()["bridge"] == ("ok", f"{group.name}-request to {group.topic}: no request waits")
    ask(group, b"two")
    assert checks()["bridge"][0] == "warn"
    assert checks()["oscillator"][0] == "ok"
    group.write(b"%d" % LATER, b"1", [], topic=f"{group.name}-oscillator")
    group.flush()
    assert checks()["oscillator"][0] == "fail"
    output = CliRunner().invoke(app, ["config", "--json"], env=group._environment).stdout
    assert json.loads(output)["derived"]["bridge"].endswith(f"to {group.topic}, consumer group {group.name}-bridge")
