"""Who steps back on a shared machine, and when the book takes its share."""

import os
import subprocess
import sys
import threading

import pytest

from almanac import priority

linux = pytest.mark.skipif(sys.platform != "linux", reason="priorities of threads are Linux's")


def test_the_book_idles_while_it_is_in_time_and_only_then() -> None:
    whys: list[str | None] = [None, None, "the next page is late", "the next page is late", None]
    steps: list[bool] = []
    pace = priority.Pace(iter(whys).__next__, steps.append)
    for _ in whys:
        pace.look()
    assert steps == [True, False, True]
    pace.end()  # a stop is waited for
    assert steps[-1] is False


@linux
def test_the_threads_of_spark_step_back_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            monkeypatch.setattr(priority, "_threads_of_spark", lambda: iter([process.pid, 1 << 30]))
            priority.step_back(idle=True)
            returns = priority.can_return()  # few may: then it stays in the background
            assert os.sched_getscheduler(process.pid) == (os.SCHED_IDLE if returns else os.SCHED_OTHER)
            priority.step_back(idle=False)
            assert os.sched_getscheduler(process.pid) == os.SCHED_OTHER
            assert os.getpriority(os.PRIO_PROCESS, process.pid) == priority.BACKGROUND
        finally:
            process.kill()


@linux
def test_who_may_not_come_back_does_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.sched_setscheduler

    def refused(thread: int, policy: int, param: os.sched_param) -> None:
        if policy != os.SCHED_IDLE:
            raise PermissionError
        real(thread, policy, param)

    monkeypatch.setattr(os, "sched_setscheduler", refused)
    priority.can_return.cache_clear()
    try:
        assert not priority.can_return()
    finally:
        priority.can_return.cache_clear()


@linux
def test_to_try_it_changes_nothing_for_others() -> None:
    priority.can_return.cache_clear()
    before = os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    priority.can_return()
    assert (os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, threading.get_native_id())) == before
