"""What all wheels of a runner have done so far, from what each reports of itself.

A wheel counts from its start on. It may be started again at any time (Spark's retry, new partitions), and then counts
from 0: here each start is added up, so that a counter never goes back.

    wheel 0, start 17   fired 100 ... 250 |  (killed)
    wheel 0, start 93                     |  fired 0 ... 40         fired in all: 290

What a process that was killed did after its last report, a second at most, is not counted.
"""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

Name = tuple[str, ...]  # the field, and what it is counted by: ("fired",), ("dead_letters", "invalid"), ("late", "3")

NUMBERS = (
    "fired", "transactions", "aborted", "repeats", "missed_total", "cancelled", "planned", "late_sum",
    "transaction_sum", "bridged", "ticks", "lost",
)  # fmt: skip
BY_NAME = ("dead_letters", "targets")
HISTOGRAMS = ("late", "transaction_ms")
STARTS = 4  # of one wheel that are told apart: one that was replaced may report once more
MOST_TARGETS = 1_000  # kept of starts that are over


class Totals:
    """Thread-safe: the runner's listener tells it what it hears, others ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._over: Counter[Name] = Counter()  # of starts that report no more
        self._running: dict[int | str, dict[int, Counter[Name]]] = {}  # by shard or duty, by start
        self._starts: Counter[int | str] = Counter()

    def hear(self, work: int | str, status: Mapping[str, Any]) -> None:
        """A wheel (by its shard) or a duty (by its name) has reported."""
        start, counts = int(status.get("start", 0)), _counts(status)
        with self._lock:
            starts = self._running.setdefault(work, {})
            if start not in starts:
                if len(starts) == STARTS and start < min(starts):
                    return  # from long ago, and counted already
                self._starts[work] += 1
            for name, before in starts.get(start, {}).items():
                if counts[name] < before and name[0] != "targets":  # what goes back began anew
                    self._over[name] += before
            starts[start] = counts
            if len(starts) > STARTS:
                self._end(starts.pop(min(starts)))

    def _end(self, counts: Counter[Name]) -> None:
        self._over.update(counts)
        targets = [name for name in self._over if name[0] == "targets"]
        for name in sorted(targets, key=lambda name: -self._over[name])[MOST_TARGETS:]:
            del self._over[name]

    def counts(self) -> Counter[Name]:
        """Everything so far."""
        with self._lock:
            found = Counter(self._over)
            for starts in self._running.values():
                for counts in starts.values():
                    found.update(counts)
        return found

    def starts(self) -> dict[int | str, int]:
        """How often each wheel and duty was started."""
        with self._lock:
            return dict(self._starts)


def histogram(counts: Mapping[Name, int], field: str, bounds: Sequence[int]) -> list[int]:
    """How many lie at or below each bound, and at last all."""
    found, reached = [], 0
    for index in range(len(bounds) + 1):
        reached += counts.get((field, str(index)), 0)
        found.append(reached)
    return found


def _counts(status: Mapping[str, Any]) -> Counter[Name]:
    found: Counter[Name] = Counter({(name,): status[name] for name in NUMBERS if name in status})
    for field in BY_NAME:
        found.update({(field, str(name)): number for name, number in (status.get(field) or {}).items()})
    for field in HISTOGRAMS:
        found.update({(field, str(index)): number for index, number in enumerate(status.get(field) or ())})
    return found
