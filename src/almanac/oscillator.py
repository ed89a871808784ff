"""The oscillator: one record a second, each second once, none left out.

    key 1893456000, value "1"

Which second was the last is read from the topic itself, after the fence. After a pause all seconds since then are
written first, in order. Never early: a second is written when it has begun.
"""

from typing import Any

from almanac import ports
from almanac.clock import Clock
from almanac.outgoing import Outgoing

MOST = 4_000  # seconds a transaction, after a pause
CHECK = 200  # ms between looks at the clock
WAIT = 0.1  # seconds, at most, between two steps


class Oscillator:
    """See the module, and duty.Work."""

    doing = "ticking"

    def __init__(self, dial: ports.Dial, writer: ports.Writer, clock: Clock, topic: str) -> None:
        self.trouble: str | None = None
        self.ticks = 0
        self._dial, self._writer, self._clock, self._topic = dial, writer, clock, topic
        self._next = 0
        self._checked = -1e18

    def begin(self) -> None:
        """See duty.Work."""
        last = self._dial.last()
        self._next = self._clock.now() // 1000 if last is None else last + 1

    def step(self) -> None:
        """See duty.Work."""
        if self._clock.monotonic() - self._checked >= CHECK:
            self._checked = self._clock.monotonic()
            self.trouble = self._clock.check()  # rule 7: whose second is it?
        now = self._clock.now()
        if self.trouble or self._next * 1000 > now:
            left = WAIT if self.trouble else (self._next * 1000 - now) / 1000
            self._clock.sleep(min(WAIT, max(0.001, left)))
            return
        upto = min(now // 1000, self._next + MOST - 1)
        records = [Outgoing(self._topic, -1, b"%d" % each, b"1", []) for each in range(self._next, upto + 1)]
        faults = self._writer.attempt(records)
        if faults:
            raise ports.Unavailable(f"cannot write to {self._topic}: {next(iter(faults.values())).detail}")
        self.ticks += len(records)
        self._next = upto + 1

    def end(self) -> None:
        """See duty.Work."""

    def status(self) -> dict[str, Any]:
        """See duty.Work."""
        behind = max(0, self._clock.now() // 1000 + 1 - self._next) if self._next else 0
        return {"ticks": self.ticks, "second": self._next - 1, "behind": behind}
