"""Kafka goes away and comes back: the scheduler waits, says so, and goes on at once."""

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from conftest import small_config
from engine import Group, Scheduler, now
from waiting import until

from almanac import errors
from almanac.broker import Broker

BACK_MS = 5_000  # from Kafka's return to the first fire


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """That these tests may hurt."""
    with Broker(small_config(tmp_path_factory.mktemp("away") / "kafka")) as started:
        started.start()
        yield started


@pytest.fixture(scope="module")
def group(own_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    with Group(own_broker.bootstrap_servers, tmp_path_factory.mktemp("group"), page_length="10s") as made:
        yield made


def _leave(broker: Broker, how: str) -> None:
    if how == "stopped":
        broker.stop()
    else:
        assert broker.pid is not None
        os.kill(broker.pid, signal.SIGSTOP)


def _return(broker: Broker, how: str) -> None:
    if how == "stopped":
        broker.start()
    else:
        assert broker.pid is not None
        os.kill(broker.pid, signal.SIGCONT)


def _answers(group: Group) -> bool:
    try:
        return bool(group.ends(group.settings.topics))
    except errors.Unreachable:
        return False


@pytest.mark.long
@pytest.mark.parametrize(
    ("how", "seconds"),
    [
        ("frozen", 20),
        ("stopped", 20),
        pytest.param("frozen", 600, marks=pytest.mark.timeout(900)),
        pytest.param("stopped", 600, marks=pytest.mark.timeout(900)),
    ],
)
def test_kafka_away(how: str, seconds: int, own_broker: Broker, group: Group, scheduler: Scheduler) -> None:
    target = group.make_topic(f"{group.name}-{how}-{seconds}")
    first, last = now(), now() + (seconds + 10) * 1000
    asked = Counter(b"%s %d %d" % (how.encode(), seconds, number) for number in range(2_000))
    for number, key in enumerate(asked):
        group.schedule(key, first + number * (last - first) // len(asked), key, target)
    group.flush()
    with group.read(target) as reading:
        reading.count(50, 60)
        _leave(own_broker, how)
        end = time.monotonic() + seconds
        try:
            said = len(scheduler.output)
            until(lambda: "waiting" in scheduler.output[said:], seconds, "the scheduler says that it waits")
            until(lambda: time.monotonic() > end, seconds + 1, "the time is over")
            reading.more()
            scheduler.alive()
            before = len(reading.got)
        finally:
            _return(own_broker, how)
        back = now()
        reading.until(lambda got: len(got) > before, 60, "the first fire after Kafka's return")
        took = reading.got[before].at - back
        print(f"{how} for {seconds} s: first fire {took} ms after the return")
        reading.count(len(asked), 60)
        until(lambda: _answers(group), 60, "the tests' own client finds Kafka too")
        scheduler.quiet(last, 90)  # what reads the reports must find Kafka again too
        assert Counter(got.value for got in reading.to_the_end()) == asked
    assert took <= BACK_MS
    assert scheduler.process.poll() is None
