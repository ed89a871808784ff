"""Work in a process of its own, which ends with it: what it took of the memory goes back to the system.

For tasks of Spark's: their Python processes are used again and again, and would keep as much as they ever needed. A
fork takes some milliseconds, as all that is imported is there. The child stands where the book stands for the
processor (`priority.follow`), which a wheel that comes after it in the same process should not.
"""

import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from almanac import errors, priority

Result = TypeVar("Result")

_LOOK = 0.5  # seconds between two looks whether anybody waits for it


def run(work: Callable[[], Result]) -> Result:
    """What `work` returns, or raises; both must be sendable."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(there, work, os.getpid()), daemon=True)
    child.start()
    there.close()
    try:
        returned, found = here.recv()
    except EOFError:
        child.join()
        raise errors.AlmanacError(f"a process of the book's ended with {child.exitcode}: was memory short?") from None
    finally:
        here.close()
        child.join()
    if not returned:
        raise found
    result: Result = found
    return result


def _child(there: Connection, work: Callable[[], Any], parent: int) -> None:
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    priority.follow()
    try:
        there.send((True, work()))
    except Exception as error:
        try:
            there.send((False, error))
        except Exception:  # Kafka's errors cannot be sent
            there.send((False, _told(error)))
    except BaseException as error:  # what panics in Rust is no Exception
        there.send((False, _told(error)))


def _told(error: BaseException) -> errors.AlmanacError:
    return errors.AlmanacError(f"{type(error).__name__}: {error}")


def _end_with(parent: int) -> None:
    """A task that is cancelled is killed, and cannot say so."""
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os._exit(1)
