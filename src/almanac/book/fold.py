"""What a stretch of one partition's log says about each key: rules 3 to 5, read by the very code that the wheels use.

    records   in the order of the log
      v  words.read   what each of them says (S R C T X D G, see `almanac.words`)
      v  Fold         one row per key: the highest version, the highest kill, the last record;
                      one row per garbage record (rule 5)
    news      Parquet, of which Spark makes the book's rows; and `gone`: what fired

All records of a key are in one partition, so partitions are folded one by one, each in a task of its own, and nothing
is shuffled. Python reads a record and appends it to columns; all else is Arrow's. Payloads wait in a file: what a
stretch takes of the memory are a few numbers and the key of each record, whatever its size.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from almanac import formats, words
from almanac.book import columns
from almanac.book.stretch import Stretch
from almanac.record import Record

# Which row of a key (or of a partition) it is: the book's `slot` column. 0 and above: the garbage at that offset.
WORD, OFFSET = -1, -2

NONE = -1  # a version, a kill or an offset that there is not

NEWS = pa.schema([
    ("topic", pa.string()), ("partition", pa.int32()), ("key", pa.binary()), ("slot", pa.int64()),
    ("version", pa.int64()), ("kill", pa.int64()), ("due", pa.int64()), ("timestamp", pa.int64()),
    ("value", pa.binary()), ("headers", columns.HEADERS), ("target", pa.string()), ("reason", pa.string()),
    ("last_offset", pa.int64()), ("last_kind", pa.string()), ("last_version", pa.int64()),
    ("met", pa.bool_()),  # of words: the book has a row in its place
])  # fmt: skip

# What fired: our tombstones, each with what the stretch or the book has of the word that it acknowledges.
GONE = pa.schema([
    ("topic", pa.string()), ("partition", pa.int32()), ("id", pa.binary()), ("version", pa.int64()),
    ("offset", pa.int64()), ("fired_at", pa.int64()), ("reason", pa.string()),
    ("due", pa.int64()), ("target", pa.string()),
])  # fmt: skip

_KINDS = pa.array("SRCTXGDR")
_S, _R, _C, _T, _X, _G, _D, _PAST = range(len(_KINDS))  # the last: a repeat of what the book has read past

# Of each record: `number` is the version that it says or kills, `row` the number of its payload.
_EVENTS = pa.schema([
    ("key", pa.binary()), ("offset", pa.int64()), ("kind", pa.int8()), ("number", pa.int64()), ("row", pa.int32()),
])  # fmt: skip
_PAYLOAD = pa.schema([NEWS.field(name) for name in ("due", "timestamp", "value", "headers", "target", "reason")])
_GARBAGE = pa.schema([("key", pa.binary()), ("offset", pa.int64()), ("row", pa.int32())])
_TOMBS = pa.schema([
    ("key", pa.binary()), ("acks", pa.int64()), ("offset", pa.int64()), ("at", pa.int64()), ("reason", pa.string()),
])  # fmt: skip


class Fold:
    """One stretch. `take` its records, then write the `news`."""

    def __init__(self, stretch: Stretch) -> None:
        self._stretch = stretch
        self._form = formats.Brief(formats.named(stretch.form))
        self.records = 0
        self.gone = GONE.empty_table()  # with `news`
        self.halt: int | None = None  # where a record of the future is: the stretch ends there
        self._row = 0  # of the next payload
        self._events, self._tombs = columns.Columns(_EVENTS), columns.Columns(_TOMBS)
        self._garbage = columns.Columns(_GARBAGE)
        self._payloads = columns.Filed(_PAYLOAD)
        self._fired = _TOMBS.empty_table()  # with `keys`
        self._repeats = False
        self._disposed: dict[tuple[bytes, int], int] = {}  # garbage of before the stretch -> by which offset
        self._over: set[int] = set()  # garbage of this very stretch that is disposed of: offsets

    def take(self, records: Sequence[Record]) -> bool:
        """Reads some; False: no more of them, the partition halts."""
        stretch, form, topic_id, read = self._stretch, self._form, self._stretch.topic_id, words.read
        events: list[columns.Row] = []
        tombs: list[columns.Row] = []
        garbage: list[columns.Row] = []
        payloads: list[columns.Row] = []
        event, payload, row = events.append, payloads.append, self._row
        for record in records:
            said = read(record, form, topic_id)
            offset, key = record.offset, record.key or b""
            if isinstance(said, words.Word):
                version, original, (due, target, *_), ours = said
                kind = _S
                if ours:  # a repeat of what the book has read past is no word: it may be over
                    kind = _R if version >= stretch.complete else _PAST
                    self._repeats = True
                event((key, offset, kind, version, row))
                payload((due, original.timestamp, original.value, original.headers, target, None))
                row += 1
            elif isinstance(said, words.Kill):
                if not said.ours:
                    event((key, offset, _C, said.version, NONE))
                elif words.acknowledges(record):
                    event((key, offset, _T, said.version, NONE))
                    tombs.append((key, said.version, offset, record.timestamp, words.reason(record)))
                else:
                    event((key, offset, _X, said.version, NONE))
            elif isinstance(said, words.Garbage):
                event((key, offset, _G, NONE, NONE))
                garbage.append((record.key, offset, row))
                payload((None, record.timestamp, record.value, record.headers, None, said.reason))
                row += 1
            elif isinstance(said, words.Disposal):
                event((key, offset, _D, NONE, NONE))
                if said.of < stretch.start:
                    self._disposed[key, said.of] = offset
                else:
                    self._over.add(said.of)
            else:
                self.halt = offset
                break
        self._row = row
        self.records += len(events)
        self._events.add(events)
        self._tombs.add(tombs)
        self._garbage.add(garbage)
        self._payloads.add(payloads)
        return self.halt is None

    def keys(self) -> pa.Table:
        """When all is taken: a row for each key, without payload. `decided`: by a word or a kill of this stretch."""
        events = self._events.table()
        keys, self._fired = _by_key(events, self._repeats), _words_of(self._tombs.table(), events)
        newest = pc.max_element_wise(keys["version"], keys["kill"])
        return keys.append_column("decided", pc.greater_equal(newest, max(0, self._stretch.start)))

    def news(self, keys: pa.Table, found: pa.Table | None = None) -> Iterator[pa.RecordBatch]:
        """The rows, as NEWS has them. `found`: what the book has of the keys. After the last one `gone` is known."""
        try:
            yield from self._news(keys, found)
        finally:
            self._payloads.close()

    def _news(self, keys: pa.Table, found: pa.Table | None) -> Iterator[pa.RecordBatch]:
        met = pa.repeat(False, keys.num_rows) if found is None else pc.is_valid(found["pending"])
        live = pc.greater(keys["version"], keys["kill"])
        pending, told = _Sorted(keys.append_column("met", met).filter(live)), _Sorted(self._fired)
        gone, garbage = [self._of_book(told.before(0), keys["key"], found)], _Sorted(self._lasting())
        for first, chunk in self._payloads.chunks():
            end = first + chunk.num_rows
            if (some := pending.before(end)).num_rows == chunk.num_rows:
                yield self._rows(some, chunk)
            elif some.num_rows:
                yield self._rows(some, chunk.take(_within(some, first)))
            if (some := told.before(end)).num_rows:
                word = chunk.select(["due", "target"]).take(_within(some, first))
                gone.append(self._gone(some, word["due"], word["target"]))
            if (some := garbage.before(end)).num_rows:
                yield self._unread(some, chunk.take(_within(some, first)))
        self.gone = pa.concat_tables(gone)
        over = keys.append_column("met", met).filter(pc.invert(live))
        if over.num_rows:
            yield self._rows(over, None)
        if self._disposed:
            yield self._disposals()

    def _of_book(self, told: pa.Table, keys: pa.ChunkedArray, found: pa.Table | None) -> pa.Table:
        """Those whose words came before the stretch."""
        count = told.num_rows
        if found is None:
            return self._gone(told, pa.nulls(count, pa.int64()), pa.nulls(count, pa.string()))
        word = found.take(pc.index_in(told["key"], value_set=keys.combine_chunks()))
        same = pc.and_(word["pending"], pc.equal(word["version"], told["acks"]))
        due, target = (pc.if_else(same, word[name], pa.scalar(None, word[name].type)) for name in ("due", "target"))
        return self._gone(told, due, target)

    def _gone(self, told: pa.Table, due: pa.Array | pa.ChunkedArray, target: pa.Array | pa.ChunkedArray) -> pa.Table:
        count = told.num_rows
        columns = {
            "topic": pa.repeat(self._stretch.topic, count), "partition": [self._stretch.partition] * count,
            "id": told["key"], "version": told["acks"], "offset": told["offset"], "fired_at": told["at"],
            "reason": told["reason"], "due": due, "target": target,
        }  # fmt: skip
        return pa.table(columns, GONE)

    def _rows(self, keys: pa.Table, payload: pa.RecordBatch | None) -> pa.RecordBatch:
        columns = {name: keys[name] for name in ("key", "version", "kill", "met")}
        columns |= {f"last_{name}": keys[f"last_{name}"] for name in ("offset", "kind", "version")}
        if payload is not None:
            columns |= {name: payload[name] for name in _PAYLOAD.names}
        return self._batch(keys.num_rows, slot=pa.repeat(WORD, keys.num_rows), **columns)

    def _lasting(self) -> pa.Table:
        """The garbage that nobody has disposed of."""
        garbage = self._garbage.table()
        if self._over and garbage.num_rows:
            over = pa.array(list(self._over), pa.int64())
            garbage = garbage.filter(pc.invert(pc.is_in(garbage["offset"], value_set=over)))
        return garbage

    def _unread(self, garbage: pa.Table, payload: pa.RecordBatch) -> pa.RecordBatch:
        offset, count = garbage["offset"], garbage.num_rows
        return self._batch(
            count, key=garbage["key"], slot=offset, version=offset, kill=pa.repeat(NONE, count),
            last_offset=offset, last_kind=pa.repeat("G", count), **{name: payload[name] for name in _PAYLOAD.names},
        )  # fmt: skip

    def _disposals(self) -> pa.RecordBatch:
        count = len(self._disposed)
        return self._batch(
            count, key=[key for key, _ in self._disposed], slot=[of for _, of in self._disposed],
            version=[NONE] * count, kill=[NONE] * count, last_offset=list(self._disposed.values()),
            last_kind=["D"] * count,
        )  # fmt: skip

    def _batch(self, count: int, **columns: Any) -> pa.RecordBatch:
        columns |= {"topic": pa.repeat(self._stretch.topic, count), "partition": [self._stretch.partition] * count}
        arrays = []
        for field in NEWS:
            column = columns.get(field.name)
            if column is None:
                empty = field.name == "headers"  # a list is never null: readers need not ask
                column = pa.array([[]] * count, field.type) if empty else pa.nulls(count, field.type)
            elif isinstance(column, list):
                column = pa.array(column, field.type)
            elif isinstance(column, pa.ChunkedArray):
                column = column.combine_chunks()
            arrays.append(column if column.type == field.type else column.cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=NEWS)


class _Sorted:
    """Rows by the number of their payload, taken from the front."""

    def __init__(self, table: pa.Table) -> None:
        self._rest = table.sort_by("row")

    def before(self, row: int) -> pa.Table:
        count = pc.sum(pc.less(self._rest["row"], row)).as_py() or 0
        some, self._rest = self._rest.slice(0, count), self._rest.slice(count)
        return some


def _within(some: pa.Table, first: int) -> pa.Array:
    return pc.subtract(some["row"], pa.scalar(first, pa.int32())).combine_chunks()


def _by_key(events: pa.Table, repeats: bool) -> pa.Table:
    """One row per key: key, version and kill (rule 3), the winner's `row` of payloads, and last_*."""
    events = events.append_column("index", _count(events.num_rows))
    version = pc.if_else(_is(events, _S, _R, _PAST), events["number"], NONE)
    events = events.append_column("version", version)
    events = events.append_column("kill", pc.if_else(_is(events, _C, _T, _X), events["number"], NONE))
    # Of two records with one version (a schedule and its repeat) the first counts: it is the original. Without repeats
    # the last word is the highest.
    ranked = events.sort_by([("version", "ascending"), ("offset", "descending")]) if repeats else events
    rank = pc.if_else(_is(ranked, _S, _R), _count(events.num_rows), NONE)
    ranked = ranked.append_column("rank", rank)
    grouped = ranked.group_by("key", use_threads=False).aggregate([("rank", "max"), ("kill", "max"), ("index", "max")])
    winner = pc.if_else(pc.less(grouped["rank_max"], 0), pa.scalar(None, pa.int64()), grouped["rank_max"])
    last = events.select(["offset", "kind", "version"]).take(grouped["index_max"])
    return pa.table({
        "key": grouped["key"], "kill": grouped["kill_max"],
        "version": pc.fill_null(pc.take(ranked["version"], winner), NONE),
        "row": pc.fill_null(pc.take(ranked["row"], winner), pa.scalar(NONE, pa.int32())),
        "last_offset": last["offset"], "last_kind": pc.take(_KINDS, last["kind"]), "last_version": last["version"],
    })  # fmt: skip


def _words_of(tombs: pa.Table, events: pa.Table) -> pa.Table:
    """The tombstones, each with the `row` of the word that it acknowledges, if that is here."""
    said = events.filter(pc.greater_equal(events["row"], 0)).select(["key", "number", "row"])
    # A repeat says the same as its original: one of them is enough.
    word = said.take(pc.index_in(tombs["acks"], value_set=said["number"]))
    same = pc.fill_null(pc.equal(word["key"], tombs["key"]), False)
    return tombs.append_column("row", pc.if_else(same, word["row"], pa.scalar(NONE, pa.int32())))


def _is(events: pa.Table, *kinds: int) -> pa.ChunkedArray:
    return pc.is_in(events["kind"], value_set=pa.array(kinds, pa.int8()))


def _count(rows: int) -> pa.Array:
    return pc.subtract(pc.cumulative_sum(pa.repeat(1, rows)), 1)
