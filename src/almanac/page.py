"""A page: what falls due before a horizon, sorted by due time, read lazily by the wheel of one shard.

Its rows are the records as users wrote them, so the wheel decodes them with the same code as its tail. They come in
small batches and only as far as needed: a page of ten million rows costs no more memory than one of ten. Where they
come from is the page's own business: `parquet` reads the files that Spark wrote; without a book the page is empty.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from almanac import formats
from almanac.ledger import Entry, Ledger
from almanac.record import Record
from almanac.words import Garbage

READY_ROWS, READY_BYTES = 60_000, 16 << 20  # decoded ahead in idle time; a decoded row takes a KB and its payload

Ledgers = dict[tuple[str, int], Ledger]
Bury = Callable[[Entry, str, str], None]  # entry, reason, detail


@dataclass(frozen=True)
class Mark:
    """A row that a wheel must know at once: adrift (rule 4) or garbage (rule 5)."""

    record: Record
    version: int  # of the word; of a row that is over: up to where it is
    pending: bool
    garbage: str | None  # why it is garbage


Row = tuple[str | None, str | None, bool, int, Record]  # mark, why it is garbage, pending, version, record


class Batch(NamedTuple):
    """Rows that are read at once."""

    rows: Iterable[Row]
    each: int  # bytes of a row


class Page:
    """One shard's part of a page. This one is empty; others say in `batches` what is in them."""

    def batches(self, since: int) -> Iterator[Batch]:
        """The marked rows, then those due from `since` on, in order; some that are due earlier may be among them."""
        return iter(())

    def marks(self) -> Iterator[Mark]:
        """The marked rows; they stand first."""
        for batch in self.batches(0):
            for mark, reason, pending, version, record in batch.rows:
                if mark is None:
                    return
                yield Mark(record, version, pending, (reason or "unreadable") if mark == "garbage" else None)

    def cursor(self, ledgers: Ledgers, bury: Bury, since: int = 0) -> "Cursor":
        """The rows due from `since` on, as entries; `bury` takes what is none."""
        return Cursor(self.batches(since), ledgers, bury, since)


class Cursor:
    """Reads rows as entries, in order, a batch at a time."""

    def __init__(self, batches: Iterator[Batch], ledgers: Ledgers, bury: Bury, since: int) -> None:
        self._batches = batches
        self._ledgers, self._bury = ledgers, bury
        self._since = since
        self._until: int | None = None
        self._ready: deque[Entry] = deque()
        self._each = 0  # bytes of a row, as the last batch had them
        self._done = False

    def next_due(self) -> int | None:
        """The due time of the next row."""
        while not self._ready and not self._done:
            self._read()
        return self._ready[0].due if self._ready else None

    def take(self, until: int, limit: int) -> list[Entry]:
        """Up to `limit` entries due at `until` or before."""
        taken: list[Entry] = []
        while len(taken) < limit:
            due = self.next_due()
            if due is None or due > until:
                break
            ready = self._ready
            while ready and len(taken) < limit and ready[0].due <= until:
                taken.append(ready.popleft())
        return taken

    def bound(self, until: int) -> None:
        """Nothing due at `until` or later is read any more."""
        self._until = until
        while self._ready and self._ready[-1].due >= until:
            self._ready.pop()
            self._done = True

    def prepare(self, until: int) -> bool:
        """Reads one batch ahead if there is room for more that is due before `until`. Says whether it did."""
        ready = len(self._ready)
        full = ready >= READY_ROWS or ready * self._each >= READY_BYTES
        if self._done or full or (ready and self._ready[-1].due > until):
            return False
        self._read()
        return True

    def _read(self) -> None:
        batch = next(self._batches, None)
        if batch is None:
            self._done = True
            return
        self._each = batch.each
        for mark, _, _, version, record in batch.rows:
            ledger = self._ledgers.get((record.topic, record.partition))
            if mark is not None or ledger is None:
                continue  # marked rows are taken at the page's turn; a topic may have left the settings
            try:
                schedule = formats.schedule(record, ledger.format)
            except formats.Invalid as error:
                self._bury(unreadable(ledger, version, record), "invalid", str(error))
                continue
            if schedule.due < self._since:
                continue
            if self._until is not None and schedule.due >= self._until:
                self._done = True
                return
            self._ready.append(Entry(ledger, version, record, schedule, paged=True))


def adopt(page: Page, ledgers: Ledgers, keep: Callable[[Entry], bool], bury: Bury) -> None:
    """The ledgers learn of the marked rows."""
    for mark in page.marks():
        ledger = ledgers.get((mark.record.topic, mark.record.partition))
        if ledger is None:
            continue
        if mark.garbage is not None:
            ledger.adopt_garbage(Garbage(mark.record, mark.garbage))
        elif mark.pending:
            try:
                word = Entry(ledger, mark.version, mark.record, formats.schedule(mark.record, ledger.format))
            except formats.Invalid as error:
                bury(unreadable(ledger, mark.version, mark.record), "invalid", str(error))
            else:
                ledger.adopt(word, keep)
        else:
            ledger.adopt_cancel(mark.record.key or b"", mark.version)


def unreadable(ledger: Ledger, version: int, record: Record) -> Entry:
    """A row on which book and wheel disagree: to be buried, neither a crash nor a schedule that is forgotten."""
    nothing = formats.Schedule(0, "", None, -1, None, [], None, form=ledger.format)
    return Entry(ledger, version, record, nothing, paged=True)
