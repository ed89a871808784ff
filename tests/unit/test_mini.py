"""`almanac mini` and the fixtures of `almanac.testing`; what it delivers is tried in integration/test_behaviour.py."""

import gc
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer
from memory import TOPIC, Rig
from waiting import until

from almanac import client, errors, ports, settings, wheel
from almanac.mini import Mini
from almanac.settings import Settings
from almanac.testing import mini as mini_settings

pytest_plugins = ["almanac.testing", "pytester"]

HOUR = timedelta(hours=1)
HEAVY = ("pyspark", "pyarrow", "delta", "deltalake", "pandas", "psutil")


@pytest.fixture
def scheduler(almanac_mini: Mini) -> Iterator[client.Scheduler]:
    with client.Scheduler({"bootstrap.servers": almanac_mini.bootstrap_servers}) as made:
        yield made


def reminder(value: bytes, topic: str = "reminders") -> client.Message:
    return client.Message(topic, b"k", value)


def values(mini: Mini, topic: str = "reminders") -> list[bytes | None]:
    return [record.value for record in mini.records(topic)]


# The clock


def test_nothing_comes_before_its_time_and_all_of_it_then(almanac_mini: Mini, scheduler: client.Scheduler) -> None:
    begun = almanac_mini.now
    for hours in (3, 1, 2):
        scheduler.schedule(reminder(b"%d" % hours), f"in {hours} h", at=begun + hours * HOUR)
    almanac_mini.advance(HOUR - timedelta(seconds=30))
    assert values(almanac_mini) == []
    almanac_mini.advance_to(begun + 2 * HOUR)
    assert values(almanac_mini) == [b"1", b"2"]
    assert begun + 2 * HOUR <= almanac_mini.now < begun + 2 * HOUR + timedelta(minutes=1)
    almanac_mini.advance(HOUR)
    assert values(almanac_mini) == [b"1", b"2", b"3"]
    assert almanac_mini.fired == 3


def test_what_was_said_before_the_clock_moved_is_heeded(almanac_mini: Mini, scheduler: client.Scheduler) -> None:
    """However short the time between: a cancel that is in the log is read before the clock jumps over the due time."""
    for number in range(30):
        scheduler.schedule(reminder(b"never"), f"id {number}", at=almanac_mini.now + HOUR)
        scheduler.cancel(f"id {number}")
        almanac_mini.advance(2 * HOUR)
    assert values(almanac_mini) == []


def test_all_that_is_pending_stays_in_memory(almanac_mini: Mini, scheduler: client.Scheduler) -> None:
    """There is no book that would bring what is due behind a page's horizon."""
    scheduler.schedule(reminder(b"far"), "far", after=timedelta(days=36_000))
    almanac_mini.advance(timedelta(days=35_999))
    assert values(almanac_mini) == []
    almanac_mini.advance(timedelta(days=1))
    assert values(almanac_mini) == [b"far"]


def test_the_clock_runs_by_itself_too(almanac_mini: Mini, scheduler: client.Scheduler) -> None:
    scheduler.schedule(reminder(b"soon"), "soon", after=timedelta(milliseconds=300))
    assert until(lambda: values(almanac_mini), 10, "it comes without anybody moving the clock") == [b"soon"]


def test_a_delivery_is_stamped_with_the_clock_it_was_due_by(almanac_mini: Mini, scheduler: client.Scheduler) -> None:
    due = almanac_mini.now + HOUR
    scheduler.schedule(reminder(b"v"), "stamped", at=due)
    almanac_mini.advance(2 * HOUR)
    (record,) = almanac_mini.records("reminders")
    assert due + HOUR <= datetime.fromtimestamp(record.timestamp / 1000, UTC) < due + HOUR + timedelta(minutes=1)


def test_what_follows_from_a_delivery_is_done_too() -> None:
    """A message that is a schedule itself, on another wheel; one that cannot be read, and its dead letter."""
    with (
        Mini(Settings.model_validate({"schedules_topics": "schedules,expiry=sky-json", "shards": 4})) as mini,
        client.Scheduler({"bootstrap.servers": mini.bootstrap_servers}) as scheduler,
    ):
        for number in range(20):
            due = mini.now + HOUR
            inner = client.sky.schedule(reminder(b"%d" % number), "-", due, "-", "json").value
            scheduler.schedule(client.Message("expiry", b"good %d" % number, inner), f"good {number}", at=due)
            scheduler.schedule(client.Message("expiry", b"bad %d" % number, b"no JSON"), f"bad {number}", at=due)
            mini.advance(HOUR)
            assert mini.fired == 3 * (number + 1)
            assert len(values(mini)) == len(values(mini, "dead-letters")) == number + 1


def test_a_topic_of_timer_requests_is_left_alone() -> None:
    told = Settings.model_validate({"schedules_topics": "timer-request=timers,schedules", "shards": 2})
    with Mini(told) as mini, client.Scheduler({"bootstrap.servers": mini.bootstrap_servers}) as scheduler:
        scheduler.schedule(reminder(b"v"), "id", at=mini.now + HOUR)
        mini.advance(HOUR)
        assert values(mini) == [b"v"]


def test_a_wheel_is_idle_when_nothing_is_left_to_read_to_do_and_to_fire() -> None:
    rig = Rig()
    turning = rig.wheel().begin()
    turning.run_for(100)
    assert turning.wheel.idle()
    events: tuple[Callable[[], int], ...] = (
        lambda: rig.kafka.schedule(b"due", int(rig.clock.wall()) + 1),
        lambda: rig.kafka.write(TOPIC, b"garbage", b"v"),
        lambda: rig.kafka.schedule(b"missed", int(rig.clock.wall()) - 1_500),
    )
    for happens in events:
        happens()
        idle = [False]
        while not idle[-1]:
            turning.step_or_recover()
            rig.clock.time += 1
            idle.append(turning.wheel.idle())
        assert False in idle[1:]
    assert rig.kafka.read("dead-letters")[0].key == b"garbage"
    assert len(rig.kafka.fired()) == 2


def test_a_clock_does_not_go_back(almanac_mini: Mini) -> None:
    with pytest.raises(errors.TimeRefused, match="cannot go back"):
        almanac_mini.advance(-HOUR)
    before = almanac_mini.now
    almanac_mini.advance_to(before - HOUR)
    assert almanac_mini.now >= before
    with pytest.raises(errors.TimeRefused, match="time zone"):
        almanac_mini.advance_to(datetime(2040, 1, 1))  # noqa: DTZ001 (that is the point)


# Its life


def test_records_that_the_mock_cluster_has_dropped_are_told(almanac_mini: Mini, scheduler: client.Scheduler) -> None:
    at = almanac_mini.now + HOUR
    for number in range(8):
        scheduler.schedule(reminder(bytes(900_000), "big"), f"id {number}", at=at)
        almanac_mini.settle()
    almanac_mini.advance(HOUR)
    assert almanac_mini.fired == 8
    with pytest.raises(errors.AlmanacError, match="has dropped the 3 oldest"):
        almanac_mini.records("big")


def test_what_cannot_be_meant(almanac_mini: Mini) -> None:
    ways: list[Callable[[], None]] = [
        lambda: almanac_mini.advance(timedelta.max),
        lambda: almanac_mini.advance_to(datetime.max.replace(tzinfo=UTC)),
    ]
    for way in ways:
        with pytest.raises(errors.TimeRefused, match="9999"):
            way()
    assert almanac_mini.now.year < 9999
    for name in ("a b", "", "x" * 250):
        with pytest.raises(errors.UsageError, match="no topic's name"):
            almanac_mini.make_topic(name)
    with pytest.raises(errors.AlmanacError, match="started already"):
        almanac_mini.start()


def test_what_can_never_be_sent_is_told_apart(almanac_mini: Mini, scheduler: client.Scheduler) -> None:
    with pytest.raises(client.NotSent, match="too large"):
        scheduler.schedule(reminder(bytes(2_000_000)), "a", after=HOUR)
    with pytest.raises(client.NotSent, match="partition"):
        scheduler.send(client.Message("reminders", b"k", b"v", partition=99))
    assert scheduler.schedule(reminder(b"good"), "a", after=HOUR).topic == "schedules"


def test_back_off_on_the_moved_clock(almanac_mini: Mini) -> None:
    with client.Scheduler(
        {"bootstrap.servers": almanac_mini.bootstrap_servers}, clock=lambda: almanac_mini.now
    ) as moved:
        almanac_mini.advance(HOUR)
        moved.retry(reminder(b"again"), "a", client.Backoff(least=600))
        moved.schedule(reminder(b"after"), "b", after=timedelta(minutes=20))
        for minutes, fired in ((9, 0), (1, 1), (9, 1), (1, 2)):
            almanac_mini.advance(timedelta(minutes=minutes))
            assert almanac_mini.fired == fired


@pytest.fixture
def uncollected() -> Iterator[None]:
    """What is held in cycles goes later, if at all."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("shards", [1, 3, 9])
def test_it_leaves_nothing_behind(shards: int) -> None:
    before, process = set(threading.enumerate()), psutil.Process()
    gc.collect()
    threads = process.num_threads()
    mini = mini_settings(shards=shards, schedules_topics="schedules, timer-request=timers").start()
    with client.Scheduler({"bootstrap.servers": mini.bootstrap_servers}) as scheduler:
        for number in range(20):
            scheduler.schedule(reminder(b"%d" % number), f"id {number}", after=HOUR)
    mini.advance(HOUR)
    assert sorted(int(value or b"-1") for value in values(mini)) == list(range(20))
    mini.close()
    mini.close()
    del scheduler
    until(lambda: set(threading.enumerate()) <= before, 5, "its threads end")
    until(lambda: process.num_threads() <= threads, 5, "those of Kafka's client, too")
    with pytest.raises(errors.AlmanacError, match="closed"):
        mini.records("reminders")


def test_a_wheel_that_ends_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with Mini() as mini:
        monkeypatch.setattr(wheel.Wheel, "step", lambda self: 1 / 0)
        with pytest.raises(errors.AlmanacError, match="ZeroDivisionError"):
            until(lambda: mini.settle(), 5, "it is noticed")


def test_another_kafkas_settings_do_not_count() -> None:
    told = Settings(bootstrap_servers="far:1", kafka_common={"security.protocol": "SASL_SSL"})
    with Mini(told) as mini:
        assert mini.settings.bootstrap_servers == mini.bootstrap_servers != "far:1"
        assert mini.settings.kafka_common == {}


def test_light_and_up_in_under_a_second() -> None:
    """Without Spark, Java and their like. What it takes of a processor is measured: the machine may be busy."""
    program = f"""
import sys, time
from almanac.mini import Mini
with Mini():
    print(time.process_time())
    print([name for name in {HEAVY} if name in sys.modules])
"""
    ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    taken, heavy = ended.stdout.splitlines()
    print(f"processor time to be up: {float(taken):.2f} s")
    assert float(taken) < 1
    assert heavy == "[]"


def test_what_karafka_had_delivered_waits_when_it_is_scheduled_again(
    almanac_mini: Mini, scheduler: client.Scheduler
) -> None:
    scheduler.send(client.karafka.schedule(reminder(b"v"), almanac_mini.now, "schedules", "first"))
    almanac_mini.advance(timedelta(seconds=2))
    (came,) = almanac_mini.records("reminders")
    scheduler.schedule(client.Message("reminders", came.key, b"again", came.headers), "second", after=HOUR)
    almanac_mini.advance(HOUR - timedelta(seconds=10))
    assert values(almanac_mini) == [b"v"]
    almanac_mini.advance(timedelta(seconds=20))
    assert values(almanac_mini) == [b"v", b"again"]


def test_it_says_what_was_too_much_for_it() -> None:
    with Mini() as mini:
        mini._wheels[0].failure = ports.LogLost("schedules/0 no longer holds the offsets")
        with pytest.raises(errors.AlmanacError, match="5 MB"):
            mini.check()


def test_a_bridge_that_was_in_doubt_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    with mini_settings(schedules_topics="schedules, asked=timers") as mini:
        with client.Scheduler({"bootstrap.servers": mini.bootstrap_servers}) as made:
            made.send(client.timers.schedule(reminder(b"one"), mini.now + HOUR, "asked"))
            mini.settle()
            writer = mini._bridging._bridge._writer  # type: ignore[union-attr]  # it is there, with timers
            commit, doubts = writer.commit, list[bool]()

            def doubtful(*arguments: Any) -> None:
                if not doubts:
                    doubts.append(True)
                    raise ports.Unavailable("once")
                commit(*arguments)

            monkeypatch.setattr(writer, "commit", doubtful)
            made.send(client.timers.schedule(reminder(b"two"), mini.now + HOUR, "asked"))
            mini.advance(2 * HOUR)
        assert doubts
        assert sorted(each or b"" for each in values(mini)) == [b"one", b"two"]
        mini._bridging._bridge.lost = 1  # type: ignore[union-attr]
        with pytest.raises(errors.AlmanacError, match="5 MB"):
            mini.check()


def test_how_many_it_delivered_is_known_when_it_has_ended() -> None:
    with Mini() as mini, client.Scheduler({"bootstrap.servers": mini.bootstrap_servers}) as made:
        made.schedule(reminder(b"v"), "id", after=HOUR)
        mini.advance(HOUR)
    assert mini.fired == 1


# The command


class Command:
    """`almanac mini` as a process."""

    def __init__(self, *arguments: str, **told: str) -> None:
        ours = {variable for name in settings.NAMES for variable in settings.environment(name)}
        environment = {name: value for name, value in os.environ.items() if name not in ours} | told
        self.process = subprocess.Popen(
            [sys.executable, "-m", "almanac", "mini", *arguments],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def end(self, number: int = signal.SIGTERM) -> tuple[str, str]:
        self.process.send_signal(number)
        return self.process.communicate(timeout=20)

    def __enter__(self) -> "Command":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def test_the_command_says_where_it_is_and_ends_when_told(tmp_path: Path) -> None:
    file = tmp_path / "kafka.address"
    file.write_text("of one that was killed")
    with Command("--json", "--topics", "reminders, mails", "--address-file", str(file)) as command:
        said: dict[str, Any] = json.loads(command.line())
        assert file.read_text() == said["bootstrap_servers"] + "\n"
        assert (said["topics"], said["pid"]) == (["reminders", "mails"], command.process.pid)
        assert said["schedules_topics"] == {"schedules": "auto"}
        taken = sum(psutil.Process(command.process.pid).cpu_times()[:2])
        print(f"processor time of the command to be up: {taken:.2f} s")
        assert taken < 1
        producer = Producer({"bootstrap.servers": said["bootstrap_servers"]})
        assert {"reminders", "mails", "schedules", "history", "dead-letters"} <= set(producer.list_topics().topics)
        command.end()
        assert command.process.returncode == 0
        assert not file.exists()
    with Command("--address-file", str(file)) as command:
        until(file.exists, 20, "it is up")
        file.write_text("of another that was started since")
        command.end()
        assert file.exists()


def test_other_commands_schedule_and_cancel_there() -> None:
    with Command(SCHEDULES_TOPICS="alarms") as command:
        address = command.line().split()[1]
        told = {**os.environ, "BOOTSTRAP_SERVERS": address, "SCHEDULES_TOPICS": "alarms"}
        for line in (
            "schedule --at +1ms --past --topic out --value hello --id 1",
            "schedule --at +1h --topic out --value never --id 2",
            "cancel 2 --no-wait",
        ):
            subprocess.run([sys.executable, "-m", "almanac", *line.split()], env=told, check=True, capture_output=True)
        out, _ = command.end(signal.SIGINT)
        assert command.process.returncode == 0
        assert "Stopped. Messages delivered: 1" in out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--topics", "a/b"], "'a/b' is no topic's name"),
        (["--address-file", "/nowhere/at/all"], "--address-file '/nowhere/at/all' cannot be written"),
        (["--schedules-topics", "a=avro"], "--schedules-topics='a=avro'"),
    ],
)
def test_what_cannot_work_is_refused(arguments: list[str], complaint: str) -> None:
    with Command(*arguments) as command:
        _, error = command.process.communicate(timeout=20)
        assert command.process.returncode == 2
        assert complaint in error


def test_a_kafka_that_is_told_is_not_used_and_that_is_said() -> None:
    with Command("--json", BOOTSTRAP_SERVERS="far:9092") as command:
        assert json.loads(command.line())["bootstrap_servers"].startswith("127.0.0.1:")
        _, error = command.end()
        assert "BOOTSTRAP_SERVERS is not used" in error


# The fixtures, in somebody else's tests

THEIRS = """
from datetime import timedelta
import pytest
from almanac import client, testing

@pytest.fixture
def almanac_settings():
    return {"schedules_topics": "rails=karafka", "history_topic": ""}

def test_with_settings(almanac_mini):
    assert almanac_mini.settings.topics == ("rails",)

@pytest.fixture(scope="module")
def shared():
    with testing.mini() as started:
        yield started

@pytest.mark.parametrize("number", [1, 2])
def test_shared(shared, number):
    with client.Scheduler({"bootstrap.servers": shared.bootstrap_servers}) as scheduler:
        scheduler.schedule(client.Message("out", value=b"v"), "id", after=timedelta(minutes=1))
    shared.advance(timedelta(minutes=1))
    assert len(shared.records("out")) == number
"""


def test_the_fixtures_in_a_project_of_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(THEIRS)
    pytester.runpytest_subprocess("-p", "almanac.testing", "-p", "no:cacheprovider").assert_outcomes(passed=3)


def test_the_examples_of_the_documentation(pytester: pytest.Pytester) -> None:
    text = (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(examples) == 3
    pytester.makepyfile(**{f"test_{number}": example for number, example in enumerate(examples)})
    pytester.runpytest_subprocess("-p", "almanac.testing", "-p", "no:cacheprovider").assert_outcomes(passed=3)


def test_pytest_finds_them_by_itself() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert '[project.entry-points.pytest11]\n"almanac.testing" = "almanac.testing"\n' in project


def test_the_plugin_loads_nothing_that_is_not_asked_for() -> None:
    program = (
        "import sys, almanac.testing; assert not {'confluent_kafka', 'pydantic', 'almanac.mini'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
