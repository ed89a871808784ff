"""How long to wait before a failed message is tried again."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from almanac.client.message import TooManyAttempts


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """Twice as long each time, between bounds; `jitter` spreads those that failed together."""

    least: float = 5.0  # seconds
    most: float = 3600.0
    factor: float = 2.0
    jitter: float = 0.0  # up to this part of the delay is taken off at random
    attempts: int = 50
    chance: Callable[[], float] = random.random

    def delay(self, attempt: int) -> float:
        """Seconds before that attempt (1 is the first). Raises TooManyAttempts."""
        if attempt > self.attempts:
            raise TooManyAttempts(f"{self.attempts} attempts were made, which is all that is allowed")
        delay = self.most
        if attempt * self.factor < 1_000:  # beyond, a float would overflow, and the bound is long reached
            delay = min(self.most, self.least * self.factor ** (attempt - 1))
        return delay * (1 - self.jitter * self.chance())
