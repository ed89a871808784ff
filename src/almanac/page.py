"""A page: what falls due before a horizon, sorted by due time, read lazily by the wheel of one shard.

Its rows are the records as users wrote them, so the wheel decodes them with the same code as its tail. They are read in
small batches and only as far as needed: a page of ten million rows costs no more memory than one of ten.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from almanac import formats
from almanac.book import places
from almanac.ledger import Entry, Ledger
from almanac.record import Headers, Record

BATCH_ROWS = 512
BATCH_BYTES = 4 << 20  # payloads may be large: a batch is bounded by bytes too
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


class Page:
    """One shard's part of a page, as files in a folder; a shard without rows has none."""

    def __init__(self, folder: str | None) -> None:
        self._files: list[pq.ParquetFile] = []
        self.rows = 0
        if folder is None:
            return
        files, path = places.at(folder)
        page = pyarrow.fs.FileSelector(path.rpartition("/")[0])  # not there at all: the page was removed
        if path not in [found.path for found in files.get_file_info(page)]:
            return
        for found in sorted(files.get_file_info(pyarrow.fs.FileSelector(path)), key=lambda found: found.path):
            if not found.path.endswith(".parquet"):
                continue
            file = pq.ParquetFile(files.open_input_file(found.path), pre_buffer=False)
            self._files.append(file)
            self.rows += file.metadata.num_rows

    def marks(self) -> Iterator[Mark]:
        """The marked rows; they stand first."""
        for batch in self._batches(0):
            for mark, reason, pending, version, record in _rows(batch):
                if mark is None:
                    return
                yield Mark(record, version, pending, (reason or "unreadable") if mark == "garbage" else None)

    def cursor(self, ledgers: Ledgers, bury: Bury, since: int = 0) -> "Cursor":
        """The rows due from `since` on, as entries; `bury` takes what is none."""
        return Cursor(self._batches(since), ledgers, bury, since)

    def _batches(self, since: int) -> Iterator[pa.RecordBatch]:
        for file in self._files:
            for group in range(file.metadata.num_row_groups):
                last = _last_due(file, group)
                if group and last is not None and last < since:  # the first also holds the marked rows
                    continue
                size = file.metadata.row_group(group)
                each = max(1, size.total_byte_size // max(1, size.num_rows))
                rows = max(1, min(BATCH_ROWS, BATCH_BYTES // each))
                yield from file.iter_batches(batch_size=rows, row_groups=[group], use_threads=False)


class Cursor:
    """Reads rows as entries, in order, a batch at a time."""

    def __init__(self, batches: Iterator[pa.RecordBatch], ledgers: Ledgers, bury: Bury, since: int) -> None:
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
        self._each = batch.nbytes // max(1, batch.num_rows)
        for mark, _, _, version, record in _rows(batch):
            ledger = self._ledgers.get((record.topic, record.partition))
            if mark is not None or ledger is None:
                continue  # marked rows are taken at the page's turn; a topic may have left the settings
            try:
                schedule = ledger.format.decode(record)
            except formats.Invalid as error:
                self._bury(unreadable(ledger, version, record), "invalid", str(error))
                continue
            if schedule.due < self._since:
                continue
            if self._until is not None and schedule.due >= self._until:
                self._done = True
                return
            self._ready.append(Entry(ledger, version, record, schedule, paged=True))


def entry(mark: Mark, ledger: Ledger) -> Entry:
    """A marked row's word, to be kept in memory."""
    return Entry(ledger, mark.version, mark.record, ledger.format.decode(mark.record))


def unreadable(ledger: Ledger, version: int, record: Record) -> Entry:
    """A row on which book and wheel disagree: to be buried, neither a crash nor a schedule that is forgotten."""
    return Entry(ledger, version, record, formats.Schedule(0, "", None, -1, None, [], None), paged=True)


_Row = tuple[str | None, str | None, bool, int, Record]


def _rows(batch: pa.RecordBatch) -> Iterator[_Row]:
    def column(name: str) -> list[Any]:
        values: list[Any] = batch.column(name).to_pylist()
        return values

    columns = zip(
        column("mark"), column("reason"), column("pending"), column("version"), column("kill"), column("slot"),
        column("topic"), column("partition"), column("timestamp"), column("key"), column("value"),
        _headers(batch.column("headers")), strict=True,
    )  # fmt: skip
    for mark, reason, pending, version, kill, slot, topic, partition, timestamp, key, value, headers in columns:
        offset = slot if slot >= 0 else version
        said = version if pending else kill
        yield mark, reason, bool(pending), said, Record(topic, partition, offset, timestamp, key, value, headers)


def _headers(column: pa.ListArray) -> list[Headers]:
    # to_pylist() of a list of structs makes a dict per header; this makes one tuple per different header
    flat = column.flatten()
    names = flat.field(0).dictionary_encode()
    texts = names.dictionary.to_pylist()
    known: dict[tuple[str, bytes | None], tuple[str, bytes | None]] = {}
    found = zip([texts[i] for i in names.indices.to_pylist()], flat.field(1).to_pylist(), strict=True)
    pairs = [known.setdefault(pair, pair) for pair in found]
    lengths = column.value_lengths().to_pylist()
    result, at = [], 0
    for length in lengths:
        end = at + (length or 0)
        result.append(pairs[at:end])
        at = end
    return result


def _last_due(file: pq.ParquetFile, group: int) -> int | None:
    leaf = [file.schema.column(i).path for i in range(len(file.schema))].index("due")
    statistics = file.metadata.row_group(group).column(leaf).statistics
    return statistics.max if statistics is not None and statistics.has_min_max else None
