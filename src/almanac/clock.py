"""Time for the wheel: monotonic, anchored to the wall, and honest about its doubts (rule 7)."""

import time

TOLERANCE = 250  # ms that wall, broker and wheel may differ
SLEW = 5  # ms a check: how fast a small drift of the wall is followed


class Clock:
    """Epoch ms that neither jump nor run ahead of the wall."""

    def __init__(self) -> None:
        self._anchor = self.wall() - self.monotonic()
        self._jumped = False
        self._broker: float | None = None  # broker minus wall, ms

    def wall(self) -> float:
        """The machine's wall clock, ms."""
        return time.time() * 1000

    def monotonic(self) -> float:
        """Ms that only go forward."""
        return time.monotonic() * 1000

    def now(self) -> int:
        """The time to fire by: whichever of wall and wheel is behind, so that nobody sees a message early."""
        return int(min(self.wall(), self.monotonic() + self._anchor))

    def sleep(self, seconds: float) -> None:
        """Waits."""
        time.sleep(seconds)

    def hear_broker(self, timestamp: float, sent: float, received: float) -> None:
        """The broker stamped a record `timestamp` that was sent and acknowledged at these wall times (ms)."""
        if timestamp < sent:
            self._broker = timestamp - sent
        else:
            self._broker = max(0.0, timestamp - received)

    @property
    def broker_ms(self) -> int | None:
        """The broker's clock minus this machine's, as heard last; None if it was not yet."""
        return None if self._broker is None else round(self._broker)

    def check(self) -> str | None:
        """To be called about once a second: follows a small drift, names a large difference."""
        drift = self.wall() - self.monotonic() - self._anchor
        if abs(drift) > TOLERANCE and not self._jumped:
            self._jumped, self._broker = True, None  # what was heard before the jump says nothing about it
        if abs(drift) <= TOLERANCE:
            self._jumped = False
            self._anchor += max(-SLEW, min(SLEW, drift))
        elif self._broker is not None and abs(self._broker) <= TOLERANCE:
            # The wall was set and the broker agrees with it: two against one.
            self._anchor += drift
            self._jumped = False
            return f"the wall clock jumped by {drift:+.0f} ms; following it, as the broker agrees"
        else:
            return f"the wall clock differs from the wheel's by {drift:+.0f} ms"
        if self._broker is not None and abs(self._broker) > TOLERANCE:
            return f"the broker's clock differs from this machine's by {self._broker:+.0f} ms; check NTP on both"
        return None
