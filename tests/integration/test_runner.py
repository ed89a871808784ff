"""The scheduler from Python, on the session of whoever calls it."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions
from engine import Group, now
from pyspark.sql import SparkSession
from waiting import until

import almanac
from almanac import errors
from almanac.broker import Broker
from almanac.record import Headers
from almanac.runner import Replaced, Runner


@pytest.fixture
def group(broker: Broker, tmp_path: Path) -> Iterator[Group]:
    with Group(broker.bootstrap_servers, tmp_path, shards="1", page_length="10s") as made:  # the session has two cores
        yield made


def fire_one(group: Group, key: bytes) -> None:
    with group.read() as reading:
        group.schedule(key, now() + 300, key)
        group.flush()
        reading.until(lambda got: key in [each.value for each in got], 30, f"{key!r} fires")


def test_it_has_the_name_that_people_are_told() -> None:
    assert almanac.Runner is Runner


@pytest.mark.long
def test_on_a_callers_session_which_stays_open(group: Group, spark: SparkSession) -> None:
    said: list[str] = []
    runner = Runner(group.settings, spark, progress=said.append)
    assert runner.start() is runner
    assert {status["state"] for status in runner.statuses.values()} <= {"firing", "paused"}
    assert runner.shards == 1
    assert "Wheels: taking over" in said
    fire_one(group, b"first")
    assert not runner.wait(0)
    runner.close()
    runner.close()
    assert runner.wait(0)
    assert runner.failure is None
    assert spark.range(5).count() == 5, "the session is the caller's"
    with Runner(group.settings, spark):
        fire_one(group, b"second")
    assert not [query for query in spark.streams.active if (query.name or "").startswith("almanac")]
    with group.read() as reading:
        assert sorted(got.value or b"" for got in reading.to_the_end()) == [b"first", b"second"]


def test_a_later_owner_ends_a_runner(group: Group, spark: SparkSession) -> None:
    with Runner(group.settings, spark) as first:
        with Runner(group.settings, spark) as second:
            assert first.wait(20)
            assert isinstance(first.failure, Replaced)
            assert "taken over" in str(first.failure)
            first.close()
            fire_one(group, b"by the second")
            assert second.failure is None
        assert not second.statuses


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.sql.execution.pyspark.udf.killOnIdleTimeout", "true"),
        ("spark.sql.extensions", "none.at.all"),
    ],
)
def test_a_session_that_would_break_a_guarantee_is_refused(
    key: str, value: str, group: Group, spark: SparkSession
) -> None:
    hostile = spark.newSession()
    try:
        hostile.conf.set(key, value)
    except Exception:
        pytest.skip(f"{key} cannot be changed in a session that runs")
    with pytest.raises(errors.UsageError, match=key):
        Runner(group.settings, hostile).start()
    assert spark.range(5).count() == 5


def test_too_few_slots_are_refused(broker: Broker, tmp_path: Path, spark: SparkSession) -> None:
    slots = spark.sparkContext.defaultParallelism
    refused = pytest.raises(errors.UsageError, match=f"{slots + 1} are needed")
    with Group(broker.bootstrap_servers, tmp_path, shards=str(slots)) as group, refused:
        Runner(group.settings, spark).start()


@pytest.mark.long
def test_partitions_that_are_added_are_read(group: Group, spark: SparkSession) -> None:
    with Runner(group.settings, spark) as runner:
        fire_one(group, b"before")
        more = 1 + max(partition for topic, partition in runner._sources if topic == group.topic) + 1
        group.admin.create_partitions([NewPartitions(group.topic, more)])[group.topic].result(10)
        user = Producer(group.client)
        until(lambda: len(user.list_topics(group.topic).topics[group.topic].partitions) == more, 10, "they are there")
        with group.read() as reading:
            headers: Headers = [
                ("scheduler-epoch-ms", b"%d" % (now() + 300)),
                ("scheduler-target-topic", group.target.encode()),
            ]
            user.produce(group.topic, b"new", b"new", more - 1, headers=list(headers))
            user.flush(10)
            reading.until(lambda got: b"new" in [each.value for each in got], 60, "the new partition is read")
        fire_one(group, b"after")


def test_a_predecessor_goes_on_while_somebodys_transaction_would_hold_its_successor_up(
    group: Group, spark: SparkSession
) -> None:
    with Runner(group.settings, spark) as first:
        stranger = Producer({**group.client, "transactional.id": f"{group.name}-stranger"})
        stranger.init_transactions(10)
        stranger.begin_transaction()
        stranger.produce(group.topic, b"?", b"stranger", 0)
        stranger.flush(10)
        said: list[str] = []
        second = Runner(group.settings, spark, progress=said.append)
        starting = threading.Thread(target=second.start, daemon=True)
        starting.start()
        until(lambda: any("another producer holds open" in text for text in said), 60, "the second waits")
        with group.read() as reading:
            group.schedule(b"first", now() + 300, b"by the first", partition=1)
            group.flush()
            reading.until(lambda got: len(got) > 0, 10, "the first still fires")
        assert not first.wait(0)
        stranger.abort_transaction(10)
        assert first.wait(60)
        assert isinstance(first.failure, Replaced)
        first.close()
        starting.join(60)
        fire_one(group, b"second")
        second.close()
