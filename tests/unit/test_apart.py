"""Work in a process of its own: what it returns and raises, and that it ends with whoever waits for it."""

import multiprocessing
import os
import signal
from pathlib import Path

import psutil
import pytest
from waiting import until

from almanac import errors, ports
from almanac.book import apart


def test_it_returns_and_raises_what_the_work_does() -> None:
    assert apart.run(os.getpid) != os.getpid()

    def fail() -> None:
        raise ports.LogLost("it no longer reaches back")

    with pytest.raises(ports.LogLost, match="no longer reaches back"):
        apart.run(fail)


def test_a_process_that_is_killed_is_told() -> None:
    with pytest.raises(errors.AlmanacError, match="ended with -9"):
        apart.run(lambda: os.kill(os.getpid(), signal.SIGKILL))


def test_it_ends_with_the_task_that_is_killed(tmp_path: Path) -> None:
    told = tmp_path / "pid"

    def work() -> None:
        told.write_text(str(os.getpid()))
        signal.pause()

    task = multiprocessing.get_context("fork").Process(target=apart.run, args=(work,))
    task.start()
    until(lambda: told.exists() and told.read_text(), 10, "the work has begun")
    child = psutil.Process(int(told.read_text()))
    task.kill()
    task.join()
    until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, 10, "the work has ended too")
