"""Metrics and commands on a running scheduler, one for all of these tests."""

import base64
import json
import os
import re
import signal
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import deployed
import pytest
from engine import Group, Scheduler, now
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner, Result
from waiting import until

from almanac.broker import Broker
from almanac.cli import app

HOUR = 3_600_000
ANY_PORT = "127.0.0.1:0"
Scrape = dict[tuple[str, ...], float]


@pytest.fixture(scope="module")
def group(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    folder = tmp_path_factory.mktemp("tools")
    with Group(broker.bootstrap_servers, folder, page_length="8s") as made:
        made.tell(oscillator_topic=f"{made.name}-oscillator", metrics_http_addr=ANY_PORT, server_addr=ANY_PORT)
        yield made


@pytest.fixture(scope="module")
def scheduler(group: Group) -> Scheduler:
    return group.start().up()


def address(scheduler: Scheduler, what: str) -> str:
    """Where it says that it serves it."""
    said = until(lambda: re.findall(rf"^{what}: (http\S+)", scheduler.output, re.MULTILINE), 30, f"it serves {what}")
    return str(said[0])


@pytest.fixture(scope="module")
def environment(group: Group, scheduler: Scheduler) -> dict[str, str]:
    return {**group.environment, "COLUMNS": "200"}


Run = Callable[..., Result]


@pytest.fixture(scope="module", params=["Kafka", "API"])
def run(request: pytest.FixtureRequest, scheduler: Scheduler, environment: dict[str, str]) -> Run:
    """A command, straight on Kafka and the book or over the API."""
    asked = {"ALMANAC_API": address(scheduler, "Serving")} if request.param == "API" else {}
    return lambda *arguments, code=0: ran([*arguments], environment | asked, code)


def ran(arguments: list[str], environment: dict[str, str], code: int = 0) -> Result:
    result = CliRunner().invoke(app, arguments, env=environment)
    assert result.exit_code == code, result.output
    return result


def told(result: Result) -> Any:
    return json.loads(result.stdout)


# Metrics


def scrape(scheduler: Scheduler) -> Scrape:
    """Samples by name and labels."""
    with urllib.request.urlopen(address(scheduler, "Metrics"), timeout=10) as answer:
        text = answer.read().decode()
    return {
        (sample.name, *(f"{name}={value}" for name, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def events(scheduler: Scheduler) -> dict[str, float]:
    found = scrape(scheduler).items()
    start = "type=kafka_scheduler_"
    return {key[1].removeprefix(start).removesuffix("_schedule"): value for key, value in found
            if key[0] == "kafka_scheduler_event_total"}  # fmt: skip


def test_what_happens_is_counted(group: Group, scheduler: Scheduler) -> None:
    before = events(scheduler)
    for number in range(50):
        group.schedule(b"m%d" % number, now() + 500)
    group.schedule(b"kept", now() + HOUR)
    group.schedule(b"dropped", now() + HOUR)
    group.cancel(b"dropped")
    group.write(b"wrong", b"", [("scheduler-epoch", b"soon"), ("scheduler-target-topic", group.target.encode())])
    group.flush()
    wanted = {"triggered": 50, "planned": 52, "deleted": 1, "invalid": 1, "missed": 0}

    def counted() -> bool:
        found = events(scheduler)
        return {kind: found[kind] - before[kind] for kind in found} == wanted

    until(counted, 20, f"{wanted} more than {before}; now {events(scheduler)}")
    found = scrape(scheduler)
    fired = found["almanac_fired_total", f"target={group.target}"]
    assert fired == found["almanac_lateness_seconds_count",] == events(scheduler)["triggered"]
    assert 0 < found["almanac_lateness_seconds_sum",] < fired
    assert found["almanac_dead_letters_total", "reason=invalid"] >= 1
    # what fired counts as pending until its tombstone is read back
    until(lambda: scrape(scheduler)["almanac_pending", f"topic={group.topic}"] == 1, 10, "one waits")
    assert found["almanac_transaction_seconds_count",] >= 1
    assert found["almanac_oscillator_age_seconds",] < 5
    assert found["almanac_shard_state", "shard=1", "state=firing"] == 1
    memory = {key[1].removeprefix("process="): value for key, value in found.items()
              if key[0] == "almanac_resident_memory_bytes"}  # fmt: skip
    assert {"driver", "jvm", "wheel-0", "wheel-1"} <= set(memory)
    assert min(memory.values()) > 10 << 20
    ends = group.ends([group.topic])
    until(
        lambda: all(
            scrape(scheduler)["almanac_partition_position", f"partition={p}", f"topic={topic}"] >= end
            for (topic, p), end in ends.items()
        ),
        20,
        "the wheels' positions are shown",
    )


def test_what_deploy_speaks_of_is_there(group: Group, scheduler: Scheduler) -> None:
    group.schedule(b"soon", now() + 12_000)  # so that something is due soon
    group.flush()
    wanted = deployed.metrics()
    # Shown only while there is such a thing: a cap, a bridge, a target that cannot be written.
    absent = {"almanac_cap_per_second", "almanac_bridge_behind", "almanac_set_apart"}

    def missing() -> list[str]:
        labels: dict[str, set[str]] = {}
        for name, *given in scrape(scheduler):
            labels.setdefault(name, set()).update(label.partition("=")[0] for label in given)
        return [f"{name} {asked}" for name, asked in sorted(wanted.items())
                if name not in absent and (name not in labels or asked - deployed.SCRAPED - labels[name])]  # fmt: skip

    try:
        until(lambda: not missing(), 11, "everything is there")
    except AssertionError:
        assert missing() == []
        raise
    text = urllib.request.urlopen(address(scheduler, "Metrics"), timeout=10).read().decode()
    assert all(f"# TYPE {name} " in text for name in absent)


def test_a_wheel_that_is_started_again_goes_on_counting(group: Group, scheduler: Scheduler) -> None:
    before = scrape(scheduler)
    os.kill(scheduler.wheels()[0], signal.SIGKILL)
    starts = ("almanac_starts_total", "work=wheel-0")
    seen = [events(scheduler)["triggered"]]

    def again() -> bool:
        seen.append(events(scheduler)["triggered"])
        return scrape(scheduler)[starts] > before[starts]

    until(again, 60, "the wheel is started again")
    group.schedule(b"after", now() + 300)
    group.flush()
    until(lambda: events(scheduler)["triggered"] > seen[0], 30, "it fires, and what it fired before is still counted")
    assert seen == sorted(seen)
    scheduler.up()


# Commands


def test_a_schedule_is_listed_shown_moved_and_cancelled(group: Group, run: Run) -> None:
    id, headers = f"a-{now()}", [("kind", b"news"), ("raw", b"\xff")]  # noqa: A001
    group.schedule(id.encode(), now() + HOUR, b'{"video": 1}', headers=headers)
    group.flush()
    (row,) = told(run("ls", "--id", id, "--json"))
    assert (row["id"], row["target_topic"], base64.b64decode(row["value"])) == (id, group.target, b'{"video": 1}')
    (row,) = told(run("show", id, "--json"))
    assert {"name": "kind", "value": base64.b64encode(b"news").decode()} in row["headers"]
    text = run("show", id).stdout
    assert '{"video": 1}' in text
    assert "news" in text
    moved = told(run("reschedule", id, "--at", "2040-01-01T00:00:00Z", "--json"))
    assert moved["due_ms"] == 2_208_988_800_000
    (row,) = told(run("ls", "--id", id, "--from", "2039-12-31 00:00", "--json"))
    assert (row["due_ms"], base64.b64decode(row["value"])) == (2_208_988_800_000, b'{"video": 1}')
    answer = told(run("cancel", id, "--json"))
    assert answer["answer"] == "cancelled"
    assert answer["partition"] == row["partition"]
    assert told(run("ls", "--id", id, "--json")) == []
    assert told(run("show", id, "--json", code=1)) == []
    assert "not-found" in run("cancel", id, code=1).stdout
    assert "nothing is pending" in run("reschedule", id, "--at", "+1h", code=2).stderr


def test_what_fired_is_told(group: Group, run: Run) -> None:
    id = f"f-{now()}"  # noqa: A001
    group.schedule(id.encode(), now() + 300)
    group.flush()
    with group.read() as reading:
        reading.until(lambda got: id.encode() in [each.header("scheduler-key") for each in got], 30, "it fires")
    (row,) = until(lambda: told(run("history", "--id", id, "--json")), 30, "the book has it")
    assert (row["id"], row["outcome"], row["target_topic"]) == (id, "fired", group.target)
    assert 0 <= row["lateness_ms"] < 5_000
    assert id in run("history", "--since", "-1h", "--target", group.target).stdout
    assert "already-fired" in run("cancel", id, code=1).stdout or "not-found" in run("cancel", id, code=1).stdout

    def counted() -> int:
        counts = told(run("stats", "--fired", "--by", "day", "--from", "-2d", "--json"))
        return sum(each["count"] for each in counts if each["target_topic"] == group.target)

    until(counted, 60, "the book has counted it")  # unlike the list, the counts are the book's


def test_what_waits_is_counted(group: Group, run: Run) -> None:
    target = group.make_topic(f"{group.name}-counted-{now()}", 1)
    due = 2_000_000_000_000
    for number in range(3):
        group.schedule(b"%s-%d" % (target.encode(), number), due + number * HOUR, target=target)
    group.flush()
    found = told(run("stats", "--target", target, "--json"))
    assert [each["count"] for each in found] == [1, 1, 1]
    (day,) = told(run("stats", "--by", "day", "--target", target, "--json"))
    assert (day["count"], day["start"]) == (3, "2033-05-18 00:00:00+00:00")
    assert "3 in all" in run("stats", "--by", "day", "--target", target).stdout


def test_dead_letters_are_listed_and_sent_again(group: Group, run: Run) -> None:
    id, target = f"d-{now()}", f"{group.name}-later-{now()}"  # noqa: A001
    group.schedule(id.encode(), now() - HOUR, b"late")  # long past when it was written
    group.flush()

    def listed() -> Any:
        return told(run("dead-letters", "--id", id, "--json"))

    (letter,) = until(listed, 30, "it is a dead letter")
    assert (letter["reason"], letter["sendable"]) == ("outdated", True)
    assert target not in run("dead-letters", "--reason", "outdated").stdout
    place = f"{letter['partition']}/{letter['offset']}"
    sent = told(run("dead-letters", "--send-again", place, "--json"))
    assert sent["id"] == id
    with group.read() as reading:
        reading.until(lambda got: id.encode() in [each.header("scheduler-key") for each in got], 30, "it fires")
    assert "must be PARTITION/OFFSET" in run("dead-letters", "--send-again", "x", code=2).stderr


def test_a_target_is_paused_and_resumed(group: Group, scheduler: Scheduler, run: Run) -> None:
    assert told(run("pause", group.target, "--json"))["paused_targets"] == [group.target]
    paused = ("almanac_paused", f"target={group.target}")
    try:
        until(lambda: scrape(scheduler).get(paused) == 1, 10, "the wheels have heard it")
        assert f"paused: {group.target}" in run("top", "--once").stdout
        assert "at most 7 a second" in run("cap", "7", "--target", group.target).stdout
        until(lambda: ("almanac_cap_per_second", paused[1]) in scrape(scheduler), 10, "the cap is shown")
    finally:
        run("cap", "none", "--target", group.target)
        said = run("resume", group.target)
    assert "nothing is held back" in said.stdout
    until(lambda: paused not in scrape(scheduler), 10, "the wheels go on")


def test_the_overview(group: Group, run: Run) -> None:
    text = run("top", "--once", "--every", "0.3").stdout
    assert f"group {group.name}" in text
    assert f"{group.topic}/3" in text
    assert "firing" in text
    found = told(run("top", "--json", "--every", "0.3"))
    assert [shard["state"] for shard in found["shards"]] == ["firing", "firing"]
    assert {each["partition"] for each in found["partitions"]} == {0, 1, 2, 3}
    assert found["pending"] >= 1
