"""Wait for a condition, never for a time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

POLL_S = 0.02


def until(condition: Callable[[], T], timeout: float, what: str) -> T:
    """The first true value of `condition`; fails after `timeout` seconds, saying `what` did not happen."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {what} (last: {value!r})")
        time.sleep(POLL_S)
    return value
