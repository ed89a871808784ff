"""A clock that runs with the machine's, ahead of it by what it was told."""

from almanac.clock import Clock


class MovableClock(Clock):
    """For one process with everything in it: there is nobody whose clock could differ, so it never pauses firing."""

    def __init__(self) -> None:
        self._ahead = 0.0  # ms
        super().__init__()

    def wall(self) -> float:
        """The machine's wall clock and what it was moved by, ms."""
        return super().wall() + self._ahead

    def now(self) -> int:
        """Epoch ms. What only measures how long something takes (`monotonic`) is not moved."""
        return int(self.wall())

    def check(self) -> str | None:
        """Never finds a difference."""
        return None

    def move(self, ms: float) -> None:
        """Ahead by that much."""
        self._ahead += ms
