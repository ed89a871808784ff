"""What one version of the book has of the ids that the live tail speaks of, asked once and remembered.

While a thousand schedules a second fire, the book still holds those that fired since it was written: the first ones by
due time. To find the first that still waits, and to take them out of a count, their rows are looked up by due time in
one question (`reach`), and only those that were cancelled or moved by their ids.
"""

from __future__ import annotations

import itertools
from collections import Counter

from almanac.book import glance, search
from almanac.live import Heard, Key

HOUR = 3_600_000  # ms
KEYS = 5_000  # ids in one question to the book
AHEAD = 30_000  # ms that are looked at on top
MOST = 200_000  # rows that are looked at for one question


class Front:
    """Of one version of the book."""

    def __init__(self, book: search.Book) -> None:
        self.book = book
        self._until = 0  # every row due before then has been looked at
        self._rows: dict[Key, glance.Glance] = {}
        self._waiting: list[tuple[int, Key, int]] = []  # due, key, version of those that were not over when looked at
        self._passed = 0  # so many of these were over when looked at last
        self._asked: set[Key] = set()  # ids that were looked up, found or not
        self._heard_to = (-1, 0)  # the changes that were looked at: their epoch, and how many
        self.unknown: set[Key] = set()  # ids that `learn` must be told of before it is clear what they replace
        self.gone: dict[Key, glance.Glance] = {}  # what is over by what the tail has said; once over, over for good
        self.hours: Counter[tuple[int, str]] = Counter()  # of these: how many by hour (its number) and target

    def reach(self, now: int) -> None:
        """Looks at all rows due before now, and some more: each look reads the first files of the book."""
        if now <= self._until:
            return
        until = now + AHEAD
        rows = glance.due(self.book, self._until, until, MOST)
        if len(rows) == MOST:  # after a long time without a scheduler; further another time
            until = rows[-1].due
            rows = [row for row in rows if row.due < until]
        found = {(row.topic, row.partition, row.id): row for row in rows}
        self._rows |= found
        waiting = self._waiting[self._passed :] + [(row.due, key, row.version) for key, row in found.items()]
        self._waiting, self._passed = sorted(waiting), 0
        self._until = until

    def bound(self, heard: dict[Key, Heard]) -> int:
        """Nothing that the book has below this due time is still pending."""
        for due, key, version in itertools.islice(self._waiting, self._passed, None):
            if not (said := heard.get(key)) or not said.hides(version):
                return due
            self._passed += 1
        return self._until

    def learn(self, keys: list[Key]) -> None:
        """Looks these ids up."""
        for start in range(0, len(keys), KEYS):
            part = keys[start : start + KEYS]
            for row in glance.of(self.book, [key[2] for key in part]):
                self._rows[row.topic, row.partition, row.id] = row
            self._asked.update(part)

    def hear(self, heard: dict[Key, Heard], changes: list[Key], epoch: int) -> None:
        """Brings `gone` and `unknown` up to date. Only what was heard of since the last time is looked at."""
        begin = self._heard_to[1] if self._heard_to[0] == epoch else 0
        asked, self.unknown = self.unknown.union(itertools.islice(changes, begin, None)), set()
        self._heard_to = (epoch, len(changes))
        for key in asked:
            row, said = self._rows.get(key), heard.get(key)
            if said is None or key in self.gone:
                continue
            if row is None:
                if key not in self._asked:
                    self.unknown.add(key)
            elif said.hides(row.version):
                self.gone[key] = row
                self.hours[row.due // HOUR, row.target] += 1

    def row(self, key: Key) -> glance.Glance | None:
        """What the book has of the id, if it is pending there."""
        return self._rows.get(key)
