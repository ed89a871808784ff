"""A lane: what is due from memory and from the page, as one ordered sequence."""

from collections.abc import Iterable

from almanac.agenda import Agenda
from almanac.ledger import Entry
from almanac.page import Cursor


class Lane:
    """The two sorted sources of a wheel, merged."""

    def __init__(self, agenda: Agenda, cursor: Cursor) -> None:
        self.agenda = agenda
        self.cursor = cursor

    def next_due(self) -> int | None:
        """The earliest due time of both."""
        memory, page = self.agenda.next_due(), self.cursor.next_due()
        if memory is None or page is None:
            return page if memory is None else memory
        return min(memory, page)

    def take(self, until: int, limit: int) -> list[Entry]:
        """Up to `limit` living entries due at `until` or before, by (due, version)."""
        memory = self.agenda.take(until, limit)
        page = self.cursor.take(until, limit)
        both = memory or page
        if memory and page:
            both = sorted(memory + page, key=_order)
            for entry in both[limit:]:
                self.agenda.push(entry)
            del both[limit:]
        return [entry for entry in both if entry.ledger.alive(entry)]

    def give_back(self, entries: Iterable[Entry]) -> None:
        """Entries that were taken and did not go out."""
        for entry in entries:
            self.agenda.push(entry)


def _order(entry: Entry) -> tuple[int, int]:
    return entry.due, entry.version
