"""Timer requests and the oscillator under `almanac run`: killed, stopped and replaced, each of them comes once."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from engine import Got, Group, Scheduler, now
from waiting import until

from almanac import kafka, topics
from almanac.broker import Broker
from almanac.client import Message, timers
from almanac.inbox import KafkaInbox

pytestmark = pytest.mark.long  # the duties themselves: integration/test_duties

COUNT = 20_000
BAD = 1_000  # every so many
MANY_YEARS = datetime(2099, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def group(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    """With a topic of requests and an oscillator; small transactions, so that there is a middle to be killed in."""
    folder = tmp_path_factory.mktemp("bridge")
    with Group(broker.bootstrap_servers, folder, shards="1", page_length="20s", fires_per_transaction="100") as made:
        made.tell(
            schedules_topics=f"{made.topic},{made.name}-request=timers", oscillator_topic=f"{made.name}-oscillator"
        )
        topics.ensure(kafka.admin_client(made.settings), made.settings)
        yield made


def ask(group: Group, value: bytes, at: datetime, name: str | None = None) -> None:
    request = timers.schedule(Message(group.target, b"key", value), at, f"{group.name}-request", name)
    group.write(request.key, request.value, request.headers, topic=request.topic)


def works(scheduler: Scheduler, duty: str, state: str) -> None:
    until(lambda: scheduler.duty(duty)["state"] == state, 60, f"the {duty} is {state}")


def test_a_callback_comes_at_its_second_and_one_that_was_cancelled_does_not(group: Group, scheduler: Scheduler) -> None:
    works(scheduler, "bridge", "bridging")
    second = now() // 1000 + 6
    at = datetime.fromtimestamp(second, UTC)
    ask(group, b"on time", at)
    ask(group, b"cancelled", at, "call-7")
    ask(group, b"long ago", datetime.fromtimestamp(1, UTC))
    group.flush()
    with group.read(group.topic) as reading:
        reading.count(3)
    group.cancel(timers.cancel("call-7").key or b"")
    group.flush()
    with group.read() as reading:
        reading.until(lambda got: b"on time" in [each.value for each in got], 30, "the callback comes")
        scheduler.quiet(1000 * second)
        got = {each.value: each for each in reading.to_the_end()}
    assert set(got) == {b"on time", b"long ago"}
    assert got[b"on time"].key == b"key"
    assert got[b"on time"].timestamp >= 1000 * second


def test_requests_come_once_though_worker_and_scheduler_are_killed_in_the_middle(
    group: Group, scheduler: Scheduler
) -> None:
    works(scheduler, "bridge", "bridging")
    bad = set(range(0, COUNT, BAD))

    def feed(numbers: range) -> None:
        for number in numbers:
            if number in bad:
                group.write(b"soon", b"%d" % number, [], topic=f"{group.name}-request")
            else:
                ask(group, b"%d" % number, MANY_YEARS)

    feed(range(COUNT // 2))
    with group.read(group.topic) as reading:
        reading.until(lambda got: _numbers(got).total() >= 500, 30, "some are bridged")
        victim = scheduler.duty("bridge")["pid"]
        os.kill(victim, signal.SIGKILL)
        before = _numbers(reading.to_the_end()).total()
        assert before < COUNT // 2 - len(bad), "it was killed in the middle"
        feed(range(COUNT // 2, COUNT))
        until(lambda: scheduler.duty("bridge")["pid"] not in (0, victim), 60, "another process goes on")
        reading.until(lambda got: _numbers(got).total() >= before + 500, 60, "more are bridged")
        scheduler.kill()
        middle = _numbers(reading.to_the_end()).total()
        assert middle < COUNT - len(bad), "it was killed in the middle"
        scheduler.gone(15)
        print(f"worker killed after {before}, scheduler after {middle}")
        group.flush()
        again = group.start().up()
        reading.until(lambda got: _numbers(got).total() >= COUNT - len(bad), 90, "all are bridged")
        until(lambda: again.duty("bridge").get("behind") == 0, 30, "no request waits")
        came = _numbers(reading.to_the_end())
    assert set(came.values()) == {1}, f"twice: {[n for n, times in came.items() if times > 1][:10]}"
    assert set(came) == set(range(COUNT)) - bad
    with group.read(f"{group.name}-oscillator") as ticks:
        seconds = [int(each.key or b"") for each in ticks.to_the_end()]
    assert seconds == list(range(seconds[0], seconds[0] + len(seconds))), "no second came twice or was left out"
    with group.dead_letters() as letters:
        assert Counter(int(each.value or b"-1") for each in letters.to_the_end()) == Counter(bad)
    inbox = KafkaInbox(group.settings)
    marks = {source: (each.mark and each.mark.offset, each.stable) for source, each in inbox.look().items()}
    inbox.close()
    assert all(offset == end for offset, end in marks.values()), marks


def _numbers(got: list[Got]) -> Counter[int]:
    """Of the requests of this test; others, tombstones among them, are left out."""
    return Counter(int(each.value) for each in got if each.value and each.value.isdigit())


def test_each_second_comes_once_though_worker_and_scheduler_are_replaced(group: Group, scheduler: Scheduler) -> None:
    works(scheduler, "oscillator", "ticking")
    with group.read(f"{group.name}-oscillator") as reading:
        reading.to_the_end()
        victim = scheduler.duty("oscillator")["pid"]
        os.kill(victim, signal.SIGKILL)
        until(lambda: scheduler.duty("oscillator")["pid"] not in (0, victim), 60, "another process goes on")
        scheduler.freeze()
        replacement = group.start().up()
        works(replacement, "oscillator", "ticking")
        scheduler.thaw()
        assert scheduler.ended(20) == 3
        came = len(reading.to_the_end())
        got = reading.count(came + 3)
    seconds = [int(each.key or b"") for each in got]
    print(f"{len(seconds)} seconds")
    assert seconds == list(range(seconds[0], seconds[0] + len(seconds))), "twice, left out, or out of order"
    assert all(each.timestamp >= 1000 * int(each.key or b"") for each in got), "early"
    assert "bridge: bridging" in replacement.output
    assert "oscillator: ticking" in replacement.output
