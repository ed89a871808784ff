"""A failed message once more, later each time."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from almanac.client import message
from almanac.client.message import Message
from almanac.record import first

ATTEMPT, SINCE = "retry-attempt", "retry-original-timestamp"


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """Twice as long each time, between bounds; `jitter` spreads those that failed together.

    >>> [Backoff().delay(attempt) for attempt in (1, 2, 3, 20)]
    [5.0, 10.0, 20.0, 3600.0]
    """

    least: float = 5.0  # seconds
    most: float = 3600.0
    factor: float = 2.0
    jitter: float = 0.0  # up to this part of the delay is taken off at random
    attempts: int = 50
    chance: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        good = self.least >= 0 and self.most >= 0 and self.factor >= 1 and 0 <= self.jitter <= 1 and self.attempts >= 0
        if not good:  # nor if one of them is no number
            raise message.ClientError(
                f"{self}: it must be least >= 0, most >= 0, factor >= 1, 0 <= jitter <= 1 and attempts >= 0"
            )

    def delay(self, attempt: int) -> float:
        """Seconds before that attempt (1 is the first). Raises TooManyAttempts."""
        if attempt > self.attempts:
            raise message.TooManyAttempts(f"{self.attempts} attempts were made, which is all that is allowed")
        try:
            delay = min(self.most, self.least * self.factor ** (attempt - 1))
        except OverflowError:
            delay = self.most
        return delay * (1 - self.jitter * self.chance())


def retried(failed: Message, backoff: Backoff | None = None, now: datetime | None = None) -> tuple[Message, datetime]:
    """The content of the next attempt, and when: to be given to the `schedule` of any format that carries headers.

    Counts in the header `retry-attempt`, remembers in `retry-original-timestamp` (seconds) when the first one was.
    Raises TooManyAttempts, TooFarAhead.
    """
    moment = now or message.now()
    named = first(failed.headers)
    attempt = _number(named.get(ATTEMPT)) + 1
    since = named.get(SINCE) or b"%d" % (message.checked_due(moment) // 1000)
    kept = [header for header in failed.headers if header[0] not in (ATTEMPT, SINCE)]
    content = replace(failed, headers=[*kept, (ATTEMPT, b"%d" % attempt), (SINCE, since)])
    delay = (backoff or Backoff()).delay(attempt)
    try:
        # In UTC: a zone's own clock jumps, and 5 s later may be an hour ago on it.
        return content, moment.astimezone(UTC) + timedelta(seconds=delay)
    except OverflowError:
        raise message.TooFarAhead(f"attempt {attempt} would be made {delay:g} s from now") from None


def _number(text: bytes | None) -> int:
    return int(text) if text and text.isdigit() and len(text) < 10 else 0
