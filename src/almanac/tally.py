"""What a wheel has done: counts and lateness, cheap to add to."""

import bisect
from collections import Counter
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from almanac.ledger import Entry

BOUNDS = (1, 2, 5, 10, 15, 20, 30, 50, 75, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 60_000, 3_600_000)  # ms
MISSED = 1_000  # ms late: from here on it counts as missed
TARGETS = 100  # that a report names

_target = attrgetter("schedule.target")


class Tally:
    """Counts of one wheel since its start."""

    def __init__(self) -> None:
        self.fired = 0
        self.transactions = 0
        self.aborted = 0
        self.letters: Counter[str] = Counter()
        self.repeats = 0
        self.targets: Counter[str] = Counter()
        self.transaction = [0] * (len(BOUNDS) + 1)
        self.late = [0] * (len(BOUNDS) + 1)
        self.late_max = 0
        self._recent = [0] * (len(BOUNDS) + 1)
        self._recent_max = 0

    def add(self, entries: Sequence[Entry], now: int) -> None:
        """These were committed now. Neighbours mostly share their due time: counted by run."""
        self.fired += len(entries)
        self.targets.update(map(_target, entries))
        run, due = 0, -1
        for entry in entries:
            if entry.due == due:
                run += 1
                continue
            self._count(due, run, now)
            run, due = 1, entry.due
        self._count(due, run, now)

    def took(self, ms: float) -> None:
        """A commit took that long."""
        self.transaction[bisect.bisect_left(BOUNDS, ms)] += 1

    def _count(self, due: int, number: int, now: int) -> None:
        if number:
            late = max(0, now - due)
            at = bisect.bisect_left(BOUNDS, late)
            self.late[at] += number
            self._recent[at] += number
            self.late_max = max(self.late_max, late)
            self._recent_max = max(self._recent_max, late)

    def report(self) -> dict[str, Any]:
        """Counts so far, and the lateness since the last report."""
        recent, self._recent = self._recent, [0] * (len(BOUNDS) + 1)
        top, self._recent_max = self._recent_max, 0
        return {
            "fired": self.fired,
            "missed_total": sum(self.late[bisect.bisect_right(BOUNDS, MISSED) :]),
            "targets": dict(self.targets.most_common(TARGETS)),
            "transactions": self.transactions,
            "transaction_ms": self.transaction,
            "aborted": self.aborted,
            "dead_letters": dict(self.letters),
            "repeats": self.repeats,
            "late": self.late,
            "late_max": self.late_max,
            "recent": recent,
            "recent_max": top,
        }


def quantile(counts: Sequence[int], q: float) -> int | None:
    """An upper bound of the quantile in ms, from counts by BOUNDS; None if there are none."""
    total = sum(counts)
    if not total:
        return None
    reached = 0
    for bound, count in zip((*BOUNDS, 10 * BOUNDS[-1]), counts, strict=True):
        reached += count
        if reached >= q * total:
            return bound
    return None
