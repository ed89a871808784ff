"""Aside: the messages of one target that people hold back wait here, so that they hold up nobody else.

No memory of its own: live words are in memory anyway until a page knows them, and the page's rows are read again by a
cursor that goes on only as far as something may go. A page of ten million paused messages costs nothing but that.
"""

from almanac.agenda import Agenda
from almanac.lane import Lane
from almanac.ledger import Entry
from almanac.page import Cursor

SCAN = 2_000  # rows of a page looked through at a time: other targets' are among them


class Aside:
    """What waits of one target, in due order."""

    def __init__(self, target: str, cursor: Cursor, since: int) -> None:
        self.target = target
        self.agenda = Agenda()
        self._lane = Lane(self.agenda, cursor)
        self._since = since  # from this due time on the cursor reads the page's rows

    def put(self, entry: Entry) -> None:
        """Takes an entry that was due elsewhere."""
        if not entry.paged or entry.due < self._since:
            self.agenda.push(entry)

    def next_due(self) -> int | None:
        """Nothing here is due before."""
        return self._lane.next_due()

    def take(self, until: int, limit: int) -> list[Entry]:
        """Up to `limit` living entries due at `until` or before, by (due, version); maybe fewer than there are."""
        taken: list[Entry] = []
        scanned = 0
        while len(taken) < limit and scanned < SCAN:
            due = self._lane.next_due()
            if due is None or due > until:
                break
            room = limit - len(taken)  # no more: what is read and not taken would stay in memory
            taken += [entry for entry in self._lane.take(until, room) if entry.schedule.target == self.target]
            scanned += room
        return taken
