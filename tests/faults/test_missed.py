"""What fell due while nobody fired comes first, in due order, and what is due now does not wait for it."""

import itertools
from pathlib import Path

import pytest
from engine import PARTITIONS, Got, Group, Scheduler, now
from waiting import until

from almanac.broker import Broker

LATE_MS = 2_000


@pytest.mark.long
@pytest.mark.parametrize("missed", [20_000, pytest.param(1_000_000, marks=pytest.mark.timeout(400))])
def test_missed_ones_drain_in_order_beside_live_ones(missed: int, broker: Broker, tmp_path: Path) -> None:
    with Group(broker.bootstrap_servers, tmp_path) as group:
        since = now() - 600_000
        for number in range(missed):
            due, partition = since + number * 500_000 // missed, number % PARTITIONS
            # written before it was due, when nobody fired
            group.schedule(b"%d" % number, due, b"%d %d" % (partition, due), partition=partition, timestamp=due - 1_000)
        group.flush(120)
        begun = now()
        scheduler = group.start()
        # From here on their wheels are there: what is due now is live.
        until(lambda: min(_fired(scheduler), default=0) > 0, 150, "each wheel has fired its first missed one")
        up = now()
        lateness = _live_lateness(group, scheduler, missed)
        print(
            f"{missed} missed: first fired after {up - begun} ms, drained {now() - up} ms later; "
            f"{len(lateness)} live ones meanwhile, at most {max(lateness)} ms late"
        )
        scheduler.quiet()
        with group.read() as reading:
            got = reading.to_the_end(120)
    _check_order(got)
    assert len(got) == len({each.header("scheduler-key") for each in got}) == missed
    assert max(lateness) <= LATE_MS


def _fired(scheduler: Scheduler) -> list[int]:
    """By each wheel."""
    scheduler.alive()
    return [status.get("fired", 0) for status in scheduler.statuses().values()]


def _live_lateness(group: Group, scheduler: Scheduler, missed: int) -> list[int]:
    """Feeds schedules due soon, one after the other, until the missed ones are drained; how late each came, in ms."""
    live = group.make_topic(f"{group.name}-live")
    numbers = itertools.count()
    with group.read(live) as reading:

        def drained() -> bool:
            due = now() + 200
            group.schedule(b"live %d" % next(numbers), due, b"%d" % due, live)
            reading.more(0.01)
            return sum(_fired(scheduler)) - len(reading.got) >= missed

        until(drained, 200, f"{missed} missed ones have fired")
        group.flush()
        return [got.at - int(got.value or b"0") for got in reading.count(next(numbers))]


def _check_order(got: list[Got]) -> None:
    """One wheel fires by due time: so must each target partition hold what came from one of them."""
    last: dict[tuple[int, int], int] = {}
    for each in got:
        partition, due = map(int, (each.value or b"").split())
        place = (each.partition, partition % 2)
        assert due >= last.get(place, 0)
        last[place] = due
