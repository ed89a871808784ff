"""Memory does not grow with what is pending: the book has it, on disk."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from engine import Group, Scheduler, now, running
from waiting import until

from almanac.broker import Broker

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

MB = 1 << 20
YEAR_MS = 365 * 86_400_000
WITHIN = 0.10
GROWTH_MB = 150


@pytest.fixture
def make_group(broker: Broker, tmp_path: Path) -> Iterator[Callable[..., Group]]:
    made: list[Group] = []

    def make(**told: str) -> Group:
        made.append(Group(broker.bootstrap_servers, tmp_path, **told))
        return made[-1]

    yield make
    for group in made:
        group.close()


def resident(scheduler: Scheduler) -> dict[str, int]:
    """MB by part: driver, JVM, wheels, and the other Python processes."""
    wheels = set(scheduler.wheels().values())
    found = {"driver": 0, "jvm": 0, "wheels": 0, "others": 0}
    for process in scheduler.tree():
        jvm = process.name() == "java"
        part = (
            "driver"
            if process.pid == scheduler.pid
            else "jvm"
            if jvm
            else "wheels"
            if process.pid in wheels
            else "others"
        )
        found[part] += process.memory_info().rss // MB
    return {**found, "all": sum(found.values())}


def feed(group: Group, numbers: range, due: Callable[[int], int]) -> None:
    payload = b"x" * 200
    for number in numbers:
        group.schedule(b"key %d" % number, due(number), payload)
    group.flush(180)


def test_resident_memory_does_not_depend_on_how_much_is_pending(make_group: Callable[..., Group]) -> None:
    group = make_group(page_length="60s")
    scheduler = group.start().up()
    seen = {0: settled(group, scheduler)}
    processes = len(scheduler.tree())
    fed = 0
    for million in (1, 3):
        feed(group, range(fed, million * 1_000_000), lambda number: now() + YEAR_MS + number)
        fed = million * 1_000_000
        settled(group, scheduler)
        until(lambda: len(scheduler.tree()) <= processes, 180, "who folded batches has ended, after an idle minute")
        seen[million] = resident(scheduler)
    print(json.dumps({f"{million} M pending": parts for million, parts in seen.items()}, indent=1))
    totals = [parts["all"] for parts in seen.values()]
    assert max(totals) <= min(totals) * (1 + WITHIN), seen


def settled(group: Group, scheduler: Scheduler) -> dict[str, int]:
    """After the book has taken everything in and the wheels have turned to a page that knows of it."""
    group.booked(300)
    page = scheduler.page()
    until(lambda: scheduler.page() >= page + 2, 240, "two pages turned")
    return resident(scheduler)


def test_a_page_of_three_million_costs_a_worker_little(make_group: Callable[..., Group]) -> None:
    number = 3_000_000
    group = make_group()
    due = now() + 240_000
    feed(group, range(number), lambda _: due)
    scheduler = group.start().up(230)
    assert now() < due, "the book was built before they are due"
    wheels = {pid: psutil.Process(pid) for pid in scheduler.wheels().values()}
    before = {pid: wheel.memory_info().rss for pid, wheel in wheels.items()}
    most = dict(before)

    def done() -> bool:
        for pid, wheel in wheels.items():
            assert running(wheel)
            most[pid] = max(most[pid], wheel.memory_info().rss)
        return bool(sum(status["fired"] for status in scheduler.statuses().values()) >= number)

    until(done, 420, "all have fired")
    growth = [(most[pid] - before[pid]) / MB for pid in wheels]
    print(
        f"fired in {(now() - due) / 1000:.0f} s; workers: {[rss // MB for rss in before.values()]} MB, grew by {growth}"
    )
    assert max(growth) < GROWTH_MB
