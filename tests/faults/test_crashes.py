"""Kill it, stop it, replace it: nothing is lost, nothing comes twice, nothing is left running."""

import os
import shutil
import signal

import pytest
from engine import Group, Scheduler, now, running
from traffic import Traffic
from waiting import until

AHEAD_MS = 12_000  # some of the traffic is due only after the scheduler is back


@pytest.mark.long
@pytest.mark.parametrize("kills", [1, 10])
def test_a_killed_wheel_is_run_again(group: Group, scheduler: Scheduler, kills: int) -> None:
    with Traffic(group, 100, AHEAD_MS) as traffic:
        for number in range(kills):
            _kill_wheel(scheduler, number % 2)
    traffic.settle(scheduler)
    assert scheduler.process.poll() is None


def _kill_wheel(scheduler: Scheduler, shard: int) -> None:
    victim = scheduler.wheels()[shard]
    os.kill(victim, signal.SIGKILL)

    def runs_again() -> bool:
        return scheduler.wheels()[shard] != victim and scheduler.statuses()[shard]["state"] == "firing"

    until(runs_again, 20, f"wheel {shard} runs again")


def test_a_killed_scheduler_leaves_nothing_running_and_goes_on_where_it_was(group: Group, scheduler: Scheduler) -> None:
    with Traffic(group, 100, AHEAD_MS) as traffic:
        with traffic.reading() as reading:
            reading.count(200)
        scheduler.kill()
        scheduler.gone(15)  # JVM and workers end by themselves
        again = group.start().up()
        since = now()
        with traffic.reading() as reading:
            reading.until(lambda got: any(each.timestamp > since for each in got), 20, "something new")
    traffic.settle(again)


@pytest.mark.long  # a later owner: also in test_runner
def test_a_scheduler_that_was_replaced_while_it_was_stopped_fires_nothing_and_ends(
    group: Group, scheduler: Scheduler
) -> None:
    with Traffic(group, 100, AHEAD_MS) as traffic:
        with traffic.reading() as reading:
            reading.count(200)
        scheduler.freeze()
        replacement = group.start(shards="3").up()
        assert len(replacement.statuses()) == 3
        assert all(running(process) for process in scheduler.tree())
        woken = now()
        scheduler.thaw()
        assert scheduler.ended(20) == 3
        print(f"ended {now() - woken} ms after it was woken")
    assert "taken over" in scheduler.output
    assert str(replacement.pid) in scheduler.output, "it says by whom"
    traffic.settle(replacement)
    assert replacement.process.poll() is None


@pytest.mark.long  # test_up has the clean end; what is missed: also in test_missed
def test_sigterm_ends_it_and_what_was_due_meanwhile_comes_with_the_next(group: Group, scheduler: Scheduler) -> None:
    with Traffic(group, 100, AHEAD_MS) as traffic:
        with traffic.reading() as reading:
            reading.count(200)
        since = now()
        assert scheduler.stop() == 0
        print(f"ended after {now() - since} ms")
        assert "Stopped" in scheduler.output
        assert "Traceback" not in scheduler.output
        starting = group.start()
        until(lambda: "Spark: starting" in starting.output, 30, "it starts Spark")
        assert starting.stop() == 0, "also while it starts"
        shutil.rmtree(group.settings.book_folder)
    again = group.start().up()
    assert "building it from Kafka (there is none yet)" in again.output
    traffic.settle(again)


@pytest.mark.long
def test_sigterm_while_the_wheels_take_over(group: Group, scheduler: Scheduler) -> None:
    assert scheduler.stop() == 0
    late = group.start()
    until(lambda: "Wheels: taking over" in late.output, 60, "its wheels take over")
    assert late.stop() == 0
