"""Who gets the processor first on one machine: wheels and Kafka, then the book.

Merges and pages are work of many seconds that nobody waits for. In local mode they run in threads of one JVM, and in
processes that fold a batch and follow it; the wheels are processes of their own. So the JVM's threads step back, once
the wheels have been started (these inherit).

    idle        they run while nothing else wants to: a wheel that wakes up never waits for one of them
    background  they get a small share in any case (nice 15), and a wheel may wait for some milliseconds, at each of the
                twenty or so turns that a transaction takes between the threads of client and broker

Idle is for as long as the book is in time: on a machine that is busy for minutes no page would ever be ready. Linux
lets few come back from there (root, CAP_SYS_NICE, RLIMIT_NICE); who cannot stays in the background.
"""

import functools
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil

log = logging.getLogger("almanac.priority")

BACKGROUND = 15


def step_back(*, idle: bool) -> None:
    """Puts the threads of this process's Spark JVM behind everything else. Does nothing where that is not possible."""
    if sys.platform != "linux":
        return
    policy = os.SCHED_IDLE if idle and can_return() else os.SCHED_OTHER
    done: set[int] = set()
    while new := set(_threads_of_spark()) - done:  # a thread is born where its parent stood then
        for thread in new:
            with suppress(ProcessLookupError, PermissionError):
                if os.getpriority(os.PRIO_PROCESS, thread) < BACKGROUND:
                    os.setpriority(os.PRIO_PROCESS, thread, BACKGROUND)
                os.sched_setscheduler(thread, policy, os.sched_param(0))
        done |= new


def step_forward() -> None:
    """For a wheel whose process a JVM started that had stepped back already. Takes a right that few have."""
    if sys.platform != "linux":
        return
    try:
        if os.sched_getscheduler(0) == os.SCHED_IDLE:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        if os.getpriority(os.PRIO_PROCESS, 0) > 0:
            os.setpriority(os.PRIO_PROCESS, 0, 0)
    except PermissionError:
        log.warning("this wheel runs with the book's priority until the scheduler is restarted")


def follow() -> None:
    """For a process that does the book's work: it stands where the JVM stands that it works for."""
    if sys.platform != "linux":
        return
    with suppress(psutil.Error, OSError):
        for each in psutil.Process().parents():
            if each.name() == "java":
                os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, each.pid))
                os.sched_setscheduler(0, os.sched_getscheduler(each.pid), os.sched_param(0))
                return


@functools.cache
def can_return() -> bool:
    """Whether a thread of this process that steps back as far as idle may step forward again: one tries."""
    told: list[bool] = []
    trial = threading.Thread(target=lambda: told.append(_returns()))
    trial.start()
    trial.join()
    return told == [True]


def _returns() -> bool:
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), BACKGROUND)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    except OSError:
        return False
    return True


def _threads_of_spark() -> Iterator[int]:
    for child in psutil.Process().children():
        with suppress(psutil.Error, OSError):
            if "org.apache.spark.deploy.SparkSubmit" in child.cmdline():
                yield from _threads(child.pid)
                for each in child.children(recursive=True):  # who folds a batch has stepped back with it: `follow`
                    if not each.children() and os.getpriority(os.PRIO_PROCESS, each.pid) >= BACKGROUND:
                        yield from _threads(each.pid)


def _threads(process: int) -> Iterator[int]:
    with suppress(OSError):  # it may have ended
        for thread in Path(f"/proc/{process}/task").iterdir():
            yield int(thread.name)


class Pace:
    """Idle while the book is in time, background while it is not."""

    def __init__(self, late: Callable[[], str | None], step: Callable[[bool], None] | None = None) -> None:
        self._late = late
        self._step = step or (lambda idle: step_back(idle=idle))
        self._idle: bool | None = None

    def look(self) -> None:
        """Steps back or forward, if that is another place than before."""
        why = self._late()
        if (idle := why is None) != self._idle:
            if self._idle is not None:
                log.info("the book %s", f"takes its share of the processor: {why}" if why else "is in time again")
            self._idle = idle
            self._step(idle)

    def end(self) -> None:
        """Whoever stops is waited for."""
        self._step(False)
