"""Who gets the processor first on one machine: wheels and Kafka, then the book.

Merges and pages are work of many seconds that nobody waits for. In local mode they run in threads of one JVM; the
wheels are processes of their own. So the JVM's threads step back, once the wheels have been started (these inherit).
"""

import logging
import os
import sys
from contextlib import suppress
from pathlib import Path

import psutil

log = logging.getLogger("almanac.priority")

# Not Linux's SCHED_IDLE: a machine that is busy with other things might never get a page ready.
BACKGROUND = 15


def step_back() -> None:
    """Puts the threads of this process's Spark JVM behind everything else. Does nothing where that is not possible."""
    if sys.platform != "linux":
        return
    for child in psutil.Process().children():
        with suppress(psutil.Error, OSError):
            if "org.apache.spark.deploy.SparkSubmit" in child.cmdline():
                for thread in Path(f"/proc/{child.pid}/task").iterdir():
                    with suppress(ProcessLookupError):
                        os.setpriority(os.PRIO_PROCESS, int(thread.name), BACKGROUND)


def step_forward() -> None:
    """For a wheel whose process a JVM started that had stepped back already. Takes a right that few have."""
    if os.getpriority(os.PRIO_PROCESS, 0) > 0:
        try:
            os.setpriority(os.PRIO_PROCESS, 0, 0)
        except PermissionError:
            log.warning("this wheel runs with the book's priority until the scheduler is restarted")
