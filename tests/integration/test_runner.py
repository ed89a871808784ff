"""The scheduler from Python, on the session of whoever calls it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from engine import Group, now
from pyspark.sql import SparkSession

import almanac
from almanac import errors
from almanac.broker import Broker
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
        assert [got.value for got in sorted(reading.to_the_end(), key=lambda got: got.at)] == [b"first", b"second"]


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
