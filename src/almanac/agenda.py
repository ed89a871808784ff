"""What is due when, in memory: a bucket per due time, and a heap of the due times.

Most schedules share their due time with many others (whole seconds), so a bucket is opened once and taken as a slice;
a heap of entries would pay a dozen comparisons for each.
"""

import heapq
from collections.abc import Callable

from almanac.ledger import Entry


class Agenda:
    """Entries ordered by (due, version)."""

    def __init__(self) -> None:
        self._dues: list[int] = []
        self._buckets: dict[int, list[Entry]] = {}
        self._open: int | None = None  # the due time whose bucket is sorted, last first

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def push(self, entry: Entry) -> None:
        """Adds an entry."""
        bucket = self._buckets.get(entry.due)
        if bucket is None:
            self._buckets[entry.due] = [entry]
            heapq.heappush(self._dues, entry.due)
        else:
            bucket.append(entry)
            if self._open == entry.due:
                self._open = None

    def next_due(self) -> int | None:
        """The earliest due time."""
        return self._dues[0] if self._dues else None

    def take(self, until: int, limit: int) -> list[Entry]:
        """Up to `limit` entries due at `until` or before, in order."""
        taken: list[Entry] = []
        while self._dues and self._dues[0] <= until and len(taken) < limit:
            due = self._dues[0]
            bucket = self._buckets[due]
            if self._open != due:
                bucket.sort(key=_version, reverse=True)
                self._open = due
            room = limit - len(taken)
            if len(bucket) <= room:
                taken += bucket[::-1]
                del self._buckets[heapq.heappop(self._dues)]
                self._open = None
            else:
                taken += bucket[: -room - 1 : -1]
                del bucket[-room:]
        return taken

    def keep(self, condition: Callable[[Entry], bool]) -> None:
        """Drops the entries that do not meet the condition."""
        kept = ((due, [e for e in bucket if condition(e)]) for due, bucket in self._buckets.items())
        self._buckets = {due: bucket for due, bucket in kept if bucket}
        self._dues = list(self._buckets)
        heapq.heapify(self._dues)
        self._open = None

    def split(self, due: int) -> "Agenda":
        """Takes out everything due before `due`, as an agenda of its own."""
        early = Agenda()
        early._buckets = {d: b for d, b in self._buckets.items() if d < due}
        early._dues = sorted(early._buckets)
        self._buckets = {d: b for d, b in self._buckets.items() if d >= due}
        self._dues = sorted(self._buckets)
        self._open = None
        return early


def _version(entry: Entry) -> int:
    return entry.version
