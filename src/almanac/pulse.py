"""The pulse of what a wheel relies on: its clock (rule 7), and its tail, which must not be behind (rule 12)."""

from collections.abc import Mapping

from almanac import ports
from almanac.clock import Clock
from almanac.ledger import Ledger

STALLED = 2_500  # ms that the tail of a partition may be behind: it hides cancels for as long
HANGING = 5_000  # ms that somebody's transaction may be open
CHECK = 200  # ms between looks


class Pulse:
    """Notes when each partition has shown that it was read to its end, and says what is wrong."""

    def __init__(self, ledgers: Mapping[ports.Source, Ledger], tail: ports.Tail, clock: Clock) -> None:
        self.trouble: str | None = None
        self.shown: dict[ports.Source, float] = {}  # monotonic ms: all that was there then is read
        self._ledgers, self._tail, self._clock = ledgers, tail, clock
        self._answers: list[ports.Stable] = []  # the last ones, newest first
        self._hanging: dict[ports.Source, float] = {}
        self._checked = -1e18

    def felt(self, source: ports.Source, at: float) -> None:
        """The partition was read to the end that it had then."""
        self.shown[source] = max(at, self.shown.get(source, at))

    def look(self, urgent: bool) -> bool:
        """Takes the newest answer for the ends; says whether `trouble` was looked at anew."""
        now = self._clock.monotonic()
        if not urgent and now - self._checked < CHECK:
            return False
        self._checked = now
        self._ask(now)
        self.trouble = self._clock.check() or self._stalled(now)
        return True

    def hanging(self) -> list[list[str | int]]:
        """Partitions on which somebody's transaction has been open for long."""
        now = self._clock.monotonic()
        return [[topic, partition] for (topic, partition), since in self._hanging.items() if now - since > HANGING]

    def open_ms(self) -> int:
        """For how long the oldest transaction on these partitions has been open, as far as is known; 0: none is."""
        return round(self._clock.monotonic() - min(self._hanging.values())) if self._hanging else 0

    def lag(self) -> int:
        """Records (and marks) between what was read and the ends as they were known last."""
        high = self._answers[0].high if self._answers else {}
        return sum(max(0, high.get(source, 0) - ledger.position) for source, ledger in self._ledgers.items())

    def _ask(self, now: float) -> None:
        stable = self._tail.stable()
        if stable is not None and stable not in self._answers[:1]:
            self._answers = [stable, *self._answers[:9]]
            for source in self._ledgers:
                if stable.stable.get(source, 0) >= stable.high.get(source, 0):
                    self._hanging.pop(source, None)
                else:
                    self._hanging.setdefault(source, now)
        for source, ledger in self._ledgers.items():
            # Records alone prove nothing: a tail that is seconds behind shows them too. Which end has it passed?
            for answer in self._answers:
                if ledger.position >= answer.stable.get(source, 1 << 62):
                    self.felt(source, answer.asked)
                    break

    def _stalled(self, now: float) -> str | None:
        for source, ledger in self._ledgers.items():
            if not ledger.halted and now - self.shown.get(source, -1e18) > STALLED:
                return f"{source[0]}/{source[1]} was not read to its end for {STALLED / 1000:g} s"
        return None
