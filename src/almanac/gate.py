"""The gate: how much may go just now, by what people have told (`controls`). Pure; lineup and ward ask it.

A cap is a bucket that fills evenly, with room for a quarter of a second: no second sees more than a quarter above the
cap. The wheels of a group know nothing of each other, so each takes an equal share of it.
"""

from almanac.controls import Controls

ROOM = 0.25  # seconds of a cap that may go at once
UNBOUNDED = 1 << 60


class Bucket:
    """Fires that may go: `rate` a second."""

    def __init__(self, rate: float, now: int) -> None:
        self.rate = rate
        self._full = max(1.0, rate * ROOM)
        self._left = min(1.0, rate)
        self._filled = now

    def left(self, now: int) -> int:
        """How many may go at this time (ms)."""
        if now > self._filled:
            self._left = min(self._full, self._left + self.rate * (now - self._filled) / 1000)
            self._filled = now
        return int(self._left)

    def spend(self, number: int) -> None:
        """So many go."""
        self._left -= number


class Gate:
    """What the controls leave of what is due. Times in ms."""

    def __init__(self, shards: int = 1) -> None:
        self.controls = Controls()
        self.open = True  # nothing is held back
        self.shut = False  # everything is
        self._shards = shards
        self._paused: frozenset[str] = frozenset()
        self._targets: dict[str, Bucket] = {}
        self._missed: Bucket | None = None

    def steer(self, controls: Controls, now: int) -> None:
        """Obeys these from now on."""
        self.controls = controls
        self.open, self.shut = controls.free, controls.paused
        self._paused = frozenset(controls.paused_targets)
        caps = {target: cap / self._shards for target, cap in controls.target_per_second.items()}
        self._targets = {target: self._bucket(self._targets.get(target), rate, now) for target, rate in caps.items()}
        missed = controls.missed_per_second
        self._missed = None if missed is None else self._bucket(self._missed, missed / self._shards, now)

    @staticmethod
    def _bucket(old: Bucket | None, rate: float, now: int) -> Bucket:
        return old if old is not None and old.rate == rate else Bucket(rate, now)

    def leaves(self, target: str, now: int) -> int:
        """How many may go to that target."""
        if self.shut or target in self._paused:
            return 0
        bucket = self._targets.get(target)
        return UNBOUNDED if bucket is None else bucket.left(now)

    def leaves_missed(self, now: int) -> int:
        """How many may go that are late, of all targets."""
        return UNBOUNDED if self._missed is None else self._missed.left(now)

    def spend(self, target: str, number: int) -> None:
        """So many go to that target."""
        if (bucket := self._targets.get(target)) is not None:
            bucket.spend(number)

    def spend_missed(self, number: int) -> None:
        """So many go that are late."""
        if self._missed is not None:
            self._missed.spend(number)

    def grant(self, target: str, wanted: int, now: int) -> int:
        """How many of so many go to that target; they count as gone."""
        number = max(0, min(wanted, self.leaves(target, now)))
        self.spend(target, number)
        return number
