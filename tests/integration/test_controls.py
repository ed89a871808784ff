"""What people tell the wheels, and ask them, on a real Kafka: one scheduler with two wheels for all tests."""

import dataclasses
import statistics
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from engine import Group, Reading, Scheduler, now
from waiting import until

from almanac import asks, controls, shard
from almanac.broker import Broker
from almanac.controls import Controls

pytestmark = pytest.mark.long  # pause and resume through the REST interface: test_api
FREE = Controls(by="tests")


@pytest.fixture(scope="module")
def group(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    folder = tmp_path_factory.mktemp("controls")
    with Group(broker.bootstrap_servers, folder, page_length="3s", shards="2", targets_deny="*-secret") as made:
        made.start().up()
        yield made


@pytest.fixture
def scheduler(group: Group) -> Iterator[Scheduler]:
    group.schedulers[0].alive()
    yield group.schedulers[0]
    tell(group, FREE)


@pytest.fixture
def target(group: Group, request: pytest.FixtureRequest) -> Iterator[Reading]:
    """A topic to deliver to that no other test uses."""
    with group.read(group.make_topic(f"{group.name}-{abs(hash(request.node.name))}")) as reading:
        yield reading


@pytest.fixture
def other(group: Group, request: pytest.FixtureRequest) -> Iterator[Reading]:
    with group.read(group.make_topic(f"{group.name}-{abs(hash(request.node.name))}-other")) as reading:
        yield reading


def tell(group: Group, told: Controls) -> int:
    """Returns when every wheel says that it obeys; how many ms that took, a second between reports included."""
    told, begun = dataclasses.replace(told, at=now()), now()
    controls.write(group.settings, told)
    group.schedulers[0].reports(lambda status: status["controls"]["at"] >= told.at, 5, "the wheels obey")
    return now() - begun


def test_pause_and_resume_everything(group: Group, scheduler: Scheduler, target: Reading) -> None:
    assert controls.read(group.settings) == Controls()
    took = tell(group, Controls(paused=True, by="Ada"))
    assert took < 2_200, "obeyed within a second, and reported within another"
    since = now()
    for number in range(40):
        group.schedule(b"p%d" % number, since + 200 + 10 * number, b"%d" % number, target.topic)
    group.flush()
    scheduler.reports(lambda status: status["state"] == "paused" and "Ada" in status["why"], 5, "paused")
    assert all(status["rss"] > 1 << 20 for status in scheduler.statuses().values())
    page = scheduler.page()
    until(lambda: scheduler.page() > page, 20, "a page turns while paused")
    assert controls.read(group.settings).by == "Ada"
    assert target.to_the_end() == []
    group.cancel(b"p7")
    group.flush()
    tell(group, FREE)
    target.count(39)
    scheduler.quiet()
    assert sorted(int(each.value or b"") for each in target.to_the_end()) == [n for n in range(40) if n != 7]


def test_a_paused_target_waits_and_others_are_in_time(
    group: Group, scheduler: Scheduler, target: Reading, other: Reading
) -> None:
    tell(group, Controls(paused_targets=(target.topic,)))
    since = now() + 300
    for number in range(60):
        for topic in (target.topic, other.topic):
            group.schedule(b"%s %d" % (topic.encode(), number), since + 50 * number, b"%d" % number, topic)
    group.flush()
    got = other.count(60)
    assert statistics.quantiles([each.timestamp - int(each.header("scheduler-epoch-ms") or 0) for each in got])[2] < 300
    assert target.to_the_end() == []
    tell(group, FREE)
    assert len(target.count(60)) == 60
    scheduler.quiet()
    assert len(target.to_the_end()) == len(other.to_the_end()) == 60


def test_a_cap(group: Group, scheduler: Scheduler, target: Reading) -> None:
    tell(group, Controls(target_per_second={target.topic: 40}))
    since = now() + 200
    for number in range(160):
        group.schedule(b"c%d" % number, since, b"v", target.topic)
    group.flush()
    stamps = sorted(each.timestamp for each in target.count(100))
    assert max(sum(start <= at < start + 1_000 for at in stamps) for start in stamps) <= 52, "the cap and a quarter"
    tell(group, FREE)
    target.count(160)
    scheduler.quiet()
    assert len(target.to_the_end()) == 160


def test_a_forbidden_target_ends_in_the_dead_letters(group: Group, scheduler: Scheduler) -> None:
    secret = group.make_topic(f"{group.name}-secret")
    group.schedule(b"x", now() + 100, b"not for you", secret)
    group.flush()
    with group.read(group.settings.dead_letters_topic) as letters, group.read(secret) as reading:
        (letter,) = letters.count(1)
        assert letter.header("almanac-reason") == b"forbidden"
        assert b"TARGETS_DENY" in (letter.header("almanac-detail") or b"")
        assert reading.to_the_end() == []


def cancelled(producer: Producer, topic: str, key: bytes) -> tuple[str, int, int]:
    """Writes a cancel; where it stands."""
    places: list[tuple[str, int, int]] = []

    def told(_: KafkaError | None, message: Message) -> None:
        places.append((message.topic() or "", message.partition() or 0, message.offset() or 0))

    producer.produce(topic, None, key, on_delivery=told)
    producer.flush(10)
    return places[0]


def test_an_ask_is_answered_soon(group: Group, scheduler: Scheduler) -> None:
    asker, producer = asks.Asker(group.settings), Producer({**group.client, "linger.ms": 0})
    asker.open()
    took = []
    try:
        for number in range(60):
            topic, partition, offset = cancelled(producer, group.topic, b"nothing %d" % number)
            begun = time.monotonic()
            assert asker.passed(topic, partition, offset, 5)
            took.append((time.monotonic() - begun) * 1000)
        assert not asker.passed(topic, partition, offset + 1_000, 0.3), "what is not there is not passed"
        assert not asker.passed("another topic", partition, 0, 0.3)
    finally:
        asker.close()
    print(f"asks: p50 {statistics.median(took):.0f} ms, most {max(took):.0f} ms")
    assert sorted(took)[56] < 500


def test_the_groups_offsets_are_the_wheels_positions(group: Group, scheduler: Scheduler) -> None:
    group.schedule(b"far", now() + 3_600_000, b"v", group.name)
    group.flush()
    ends = group.ends(group.settings.topics)
    consumer = Consumer({**group.client, "group.id": group.settings.group_id})

    def committed() -> bool:
        found = consumer.committed([TopicPartition(*source) for source in ends], 5)
        return all(each.offset >= ends[each.topic, each.partition] for each in found)

    until(committed, 10, "every partition's position is committed")
    consumer.close()


def test_controls_that_reached_one_partition_reach_all(group: Group, scheduler: Scheduler) -> None:
    told = Controls(missed_per_second=7, at=now())
    shard.Journal(group.settings).write(0, controls.SAID, told.fields())  # who told it died then
    scheduler.reports(lambda status: status["controls"]["missed_per_second"] == 7, 10, "the other wheel hears it too")
    assert controls.read(group.settings) == told
