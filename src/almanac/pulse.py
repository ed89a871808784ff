"""The pulse of what a wheel relies on: its clock (rule 7), and its tail, which must show data or its end (rule 12)."""

from collections.abc import Mapping

from almanac import ports
from almanac.clock import Clock
from almanac.ledger import Ledger

STALLED = 5_000  # ms without a sign of life from a partition
CHECK = 200  # ms between looks


class Pulse:
    """Notes when each partition has shown that it was read to its end, and says what is wrong."""

    def __init__(self, ledgers: Mapping[ports.Source, Ledger], tail: ports.Tail, clock: Clock) -> None:
        self.trouble: str | None = None
        self.shown: dict[ports.Source, float] = {}  # monotonic ms of the last sign of life
        self._ledgers, self._tail, self._clock = ledgers, tail, clock
        self._stable: ports.Stable | None = None
        self._hanging: dict[ports.Source, float] = {}
        self._checked = -1e18

    def felt(self, source: ports.Source, at: float) -> None:
        """The partition was read to the end that it had then."""
        self.shown[source] = max(at, self.shown.get(source, at))

    def look(self, urgent: bool) -> bool:
        """Takes the newest answer for the ends; says whether `trouble` was looked at anew."""
        now = self._clock.monotonic()
        self._ask(now)
        if not urgent and now - self._checked < CHECK:
            return False
        self._checked = now
        self.trouble = self._clock.check() or self._stalled(now)
        return True

    def hanging(self) -> list[list[str | int]]:
        """Partitions on which somebody's transaction has been open for long."""
        now = self._clock.monotonic()
        return [[topic, partition] for (topic, partition), since in self._hanging.items() if now - since > STALLED]

    def _ask(self, now: float) -> None:
        stable = self._tail.stable()
        if stable is None or stable is self._stable:
            return
        self._stable = stable
        for source, ledger in self._ledgers.items():
            end = stable.stable.get(source)
            if end is not None and ledger.position >= end:
                self.felt(source, stable.asked)
            if (end or 0) >= stable.high.get(source, 0):
                self._hanging.pop(source, None)
            else:
                self._hanging.setdefault(source, now)

    def _stalled(self, now: float) -> str | None:
        for source in self._ledgers:
            if now - self.shown.get(source, -1e18) > STALLED:
                return f"{source[0]}/{source[1]} has shown neither data nor its end for {STALLED // 1000} s"
        return None
