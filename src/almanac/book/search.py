"""What people search, without Spark: what waits and what fired, page by page, and exact counts.

    shelf = search.Shelf(settings.book_folder)     # once: it keeps the tables open; thread-safe
    book = shelf.book()                            # one version of the book; later merges do not change it
    rows = book.search(target="mails", limit=50)
    more = book.search(target="mails", limit=50, after=search.cursor(rows[-1]))
    shelf.fired().search(id_part=b"vid", since=..., outcome="fired")

Cursors are the last row's place in the order, not a number of rows: the thousandth page is as quick as the first, and
what is added or goes away meanwhile neither repeats nor hides another row.
"""

import collections
import dataclasses
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from deltalake import DeltaTable

from almanac.book import places, read, spans

Sort = Literal["due", "-due", "id"]
By = Literal["hour", "day"]
LENGTH: dict[By, int] = {"hour": 3_600_000, "day": 86_400_000}  # ms

MANY = 1_000_000  # rows: more than any one question is for
_SLIM = "topic, partition, key, version, due"
_LIGHT = f"{_SLIM}, timestamp, target"
FIRED = "fired"  # the outcome of what was delivered; any other is the reason of its dead letter


class Cursor(NamedTuple):
    """Where a page of schedules ends. Orders: due, topic, partition, id; backwards for `-due`; id first for `id`."""

    due: int  # epoch ms
    topic: str
    partition: int
    id: bytes


class FiredCursor(NamedTuple):
    """Where a page of what fired ends. Order: newest first, backwards by all four."""

    fired_at: int  # epoch ms
    topic: str
    partition: int
    version: int


@dataclass(frozen=True, kw_only=True)
class Fired:
    """A version of a schedule that is over: delivered, or buried in the dead letters."""

    id: bytes
    topic: str
    partition: int
    version: int
    target: str | None  # null, as is `due`: the log no longer had the schedule when its tombstone was read
    due: int | None  # epoch ms
    fired_at: int  # epoch ms, the tombstone's
    lateness: int | None  # ms
    outcome: str  # `FIRED`, or the reason of its dead letter


@dataclass(frozen=True, kw_only=True)
class Count:
    """How many wait in one hour or day (UTC) for one target."""

    start: int  # epoch ms
    target: str
    count: int


@dataclass(frozen=True, kw_only=True)
class FiredCount:
    """How many went in one hour or day (UTC) to one target, with one outcome."""

    start: int  # epoch ms
    target: str | None
    outcome: str
    count: int
    latest: int | None  # the greatest lateness among them, ms


def cursor(row: read.Pending) -> Cursor:
    """The cursor behind this row."""
    return Cursor(row.due, row.topic, row.partition, row.id)


def fired_cursor(row: Fired) -> FiredCursor:
    """The same of what fired."""
    return FiredCursor(row.fired_at, row.topic, row.partition, row.version)


def order(row: read.Pending, sort: Sort) -> tuple[Any, ...]:
    """A key for `sorted` that gives the order of a search; `-due` needs `reverse=True` besides."""
    return (row.id, row.topic, row.partition) if sort == "id" else (row.due, row.topic, row.partition, row.id)


class Book(read.Reader):
    """One version of the book: `search`, `counts`, `next_due`, and all that a `read.Reader` can tell."""

    def __init__(self, table: DeltaTable) -> None:
        self._table = table
        self._query = read.query(book=table)
        self._counting = threading.Lock()
        self._hours: list[tuple[int, str, int]] | None = None
        self._files = spans.of(table, "wake")
        self._raw = spans.raw(table, self._files, "wake")

    def find(self, schedule_id: bytes) -> list[read.Pending]:
        """The pending schedules of that id: one at most in each partition of each topic."""
        rows = self._picked(_SLIM, [f"key = {_literal(schedule_id)}"], None, None, "topic, partition", MANY)
        return self._with_payloads([_light(row) for row in rows]) if rows else []

    def search(
        self,
        *,
        id_part: bytes | None = None,
        target: str | None = None,
        topic: str | None = None,
        due_from: int | None = None,
        due_to: int | None = None,
        sort: Sort = "due",
        after: Cursor | None = None,
        limit: int = 50,
        payloads: bool = True,
    ) -> list[read.Pending]:
        """The next schedules in that order, behind `after`. `due_from` is included, `due_to` is not.

        `id_part`: anywhere in the id, byte by byte. `topic` is the schedules topic. Without `payloads` the rows have
        neither value nor headers, and come in half the time.
        """
        wanted = [*_matches("key", id_part), *_equals(target=target, topic=topic)]
        least, most = due_from, due_to
        if after is not None and sort == "due":
            least = max(after.due, -1 if least is None else least)
        elif after is not None and sort == "-due":
            most = min(after.due + 1, after.due + 1 if most is None else most)
        columns = ("key", "topic", "partition") if sort == "id" else ("due", "topic", "partition", "key")
        if after is not None:
            behind = after._asdict() | {"key": after.id}
            wanted.append(_behind([(name, behind[name]) for name in columns], backwards=sort == "-due"))
        way = " DESC" if sort == "-due" else ""
        ordered = ", ".join(f"{name}{way}" for name in columns)

        def ask(least: int | None, most: int | None, limit: int) -> list[dict[str, Any]]:
            return self._picked(_SLIM if payloads else _LIGHT, wanted, least, most, ordered, limit)

        # The order of the files is no help for ids, and few ids hold a part: all files are looked at in any case.
        files = [] if sort == "id" or id_part else self._files
        rows = spans.first_rows(ask, files, least, most, backwards=sort == "-due", limit=int(limit))
        light = [_light(row) for row in rows]
        return self._with_payloads(light) if payloads and light else light

    def filled(self, rows: list[read.Pending]) -> list[read.Pending]:
        """These rows of a search without payloads, with them."""
        return self._with_payloads(rows) if rows else []

    def _with_payloads(self, rows: list[read.Pending]) -> list[read.Pending]:
        """In a second question: to read a million payloads takes longer than all the rest."""
        dues, versions = [row.due for row in rows], ", ".join(sorted({str(row.version) for row in rows}))
        wanted = [f"version IN ({versions})"]
        found = self._picked(f"{_LIGHT}, value, headers", wanted, min(dues), max(dues) + 1, "due", MANY)
        by_place = {(row["topic"], row["partition"], row["key"], row["version"]): row for row in found}
        return [_filled(row, by_place[row.topic, row.partition, row.id, row.version]) for row in rows]

    def _picked(
        self, columns: str, wanted: list[str], least: int | None, most: int | None, order: str, limit: int
    ) -> list[dict[str, Any]]:
        """The first pending rows of the table that are wanted and due between these; the second is not included."""
        if self._raw is not None and (rows := self._raw.rows(columns, wanted, least, most, order, limit)) is not None:
            return rows
        # `wake` is the due time, and the files know their least and greatest; -1 where every page needs the row
        span = [f"(wake >= {least} OR wake = -1) AND due >= {least}"] if least is not None else []
        span += [f"wake < {most} AND due < {most}"] if most is not None else []
        where = " AND ".join(["pending", *wanted, *span])
        return self._rows(f"SELECT {columns} FROM book WHERE {where} ORDER BY {order} LIMIT {limit}")

    def counts(
        self, by: By, *, target: str | None = None, due_from: int | None = None, due_to: int | None = None
    ) -> list[Count]:
        """How many wait, exactly, by hour or day (UTC) and target; in order of time. Cancelled ones are gone.

        A range begins and ends with whole hours.
        """
        length, found = LENGTH[by], collections.Counter[tuple[int, str]]()
        for start, name, number in self.hours():
            if target in (None, name) and (due_from or 0) <= start < (1 << 62 if due_to is None else due_to):
                found[start // length * length, name] += number
        return [Count(start=start, target=name, count=number) for (start, name), number in sorted(found.items())]

    def hours(self) -> list[tuple[int, str, int]]:
        """How many wait in each hour for each target; counted once."""
        with self._counting:
            if self._hours is None:
                hour = LENGTH["hour"]
                columns = self.columns(
                    f"SELECT due / {hour} * {hour} AS start, target, count(*) FROM book WHERE pending GROUP BY 1, 2"
                )
                self._hours = list(zip(*columns, strict=True))
            return self._hours

    def matching(
        self,
        *,
        id_part: bytes | None = None,
        target: str | None = None,
        topic: str | None = None,
        due_from: int | None = None,
        due_to: int | None = None,
    ) -> int:
        """How many a search without a cursor and a limit would find."""
        wanted = ["pending", *_matches("key", id_part), *_equals(target=target, topic=topic)]
        wanted += _between("due", due_from, due_to)
        return int(self._rows(f"SELECT count(*) AS n FROM book WHERE {' AND '.join(wanted)}")[0]["n"])

    def next_due(self) -> int | None:
        """When the next schedule is due (epoch ms); one that is overdue counts. None: nothing waits."""
        found: int | None = self._rows("SELECT min(due) AS due FROM book WHERE pending")[0]["due"]
        return found


class FiredTable:
    """One version of the table of what fired."""

    def __init__(self, table: DeltaTable | None) -> None:
        self._query = read.query(fired=table) if table is not None else None
        self._files = spans.of(table, "fired_at") if table is not None else []

    def search(
        self,
        *,
        id_part: bytes | None = None,
        target: str | None = None,
        topic: str | None = None,
        since: int | None = None,
        until: int | None = None,
        outcome: str | None = None,
        after: FiredCursor | None = None,
        limit: int = 50,
    ) -> list[Fired]:
        """The newest first, behind `after`. `since` (fired at, epoch ms) is included, `until` is not."""
        equal = _equals(target=target, topic=topic, outcome=outcome)
        wanted = ["outcome IS NOT NULL", *_matches("id", id_part), *equal]
        if after is not None:
            wanted.append(_behind(list(after._asdict().items()), backwards=True))
            until = min(after.fired_at + 1, after.fired_at + 1 if until is None else until)

        def ask(least: int | None, most: int | None, limit: int) -> list[dict[str, Any]]:
            return self._rows(
                f"SELECT id, topic, partition, version, target, due, fired_at, lateness, outcome FROM fired "
                f"WHERE {' AND '.join(wanted + _between('fired_at', least, most))} "
                f"ORDER BY fired_at DESC, topic DESC, partition DESC, version DESC LIMIT {limit}"
            )

        return [
            Fired(**row) for row in spans.first_rows(ask, self._files, since, until, backwards=True, limit=int(limit))
        ]

    def counts(
        self, by: By, *, target: str | None = None, since: int | None = None, until: int | None = None
    ) -> list[FiredCount]:
        """How many went, exactly, by hour or day (UTC), target and outcome; in order of time."""
        wanted = ["outcome IS NOT NULL", *_equals(target=target), *_between("fired_at", since, until)]
        rows = self._rows(
            f"SELECT fired_at / {LENGTH[by]} * {LENGTH[by]} AS start, target, outcome, count(*) AS count, "
            f"max(lateness) AS latest FROM fired WHERE {' AND '.join(wanted)} GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
        )
        return [FiredCount(**row) for row in rows]

    def _rows(self, statement: str) -> list[dict[str, Any]]:
        return read.rows(self._query, statement) if self._query is not None else []


class Shelf:
    """The book and the table of what fired, kept open between questions. Thread-safe."""

    def __init__(self, folder: str) -> None:
        self._folder = folder.rstrip("/")
        self._locks = {name: threading.Lock() for name in ("book", "fired")}  # to open one does not hold the other up
        self._opened: dict[str, tuple[DeltaTable, _Stamp, Any]] = {}  # by folder: the table, and what was made of it

    def book(self) -> Book:
        """The latest version of the book. Raises `read.NoBook` where there is none yet, `read.BookError` if damaged."""
        found: Book = self._latest("book", Book)
        return found

    def fired(self) -> FiredTable:
        """The latest version of what fired; empty where there is no table yet."""
        try:
            found: FiredTable = self._latest("fired", FiredTable)
            return found
        except read.NoBook:
            return FiredTable(None)

    def _latest(self, name: str, make: Callable[[DeltaTable], Any]) -> Any:
        path = f"{self._folder}/{name}"
        with self._locks[name]:
            table, stamp, made = self._opened.get(path, (None, None, None))
            if table is None or stamp is None or stamp != _stamp(path, table.version()):
                # Opened anew, not updated: a book that was built again begins with version 0.
                table = read.opened(path)
                made = make(table)
                self._opened[path] = table, _stamp(path, table.version()), made
            return made


_Stamp = tuple[int, int] | None


def _stamp(path: str, version: int) -> _Stamp:
    """Another one if the table was built again; None if there is a later version (it may have come just now)."""
    log = f"{path}/_delta_log"
    return None if places.stamp(f"{log}/{version + 1:020}.json") else places.stamp(f"{log}/{version:020}.json")


# SQL


def _equals(**columns: str | None) -> list[str]:
    return [f"{name} = {read.quoted(value)}" for name, value in columns.items() if value is not None]


def _between(column: str, least: int | None, most: int | None) -> list[str]:
    found = [] if least is None else [f"{column} >= {int(least)}"]
    return found if most is None else [*found, f"{column} < {int(most)}"]


def _matches(column: str, part: bytes | None) -> list[str]:
    """The column holds these bytes. As text where it can be: that is quicker than digits."""
    if not part:
        return []
    digits = f"regexp_like(encode({column}, 'hex'), '^(..)*{part.hex()}')"
    try:
        text = part.decode()
    except UnicodeDecodeError:
        return [digits]
    for special in "\\%_":
        text = text.replace(special, f"\\{special}")
    as_text = f"TRY_CAST({column} AS VARCHAR)"
    return [f"({as_text} LIKE {read.quoted(f'%{text}%')} OR {as_text} IS NULL AND {digits})"]


def _behind(last: list[tuple[str, Any]], *, backwards: bool) -> str:
    """Comes after this row in the order of these columns."""
    sign = "<" if backwards else ">"
    cases, same = [], ""
    for name, value in last:
        shown = _literal(value)
        cases.append(f"{same}{name} {sign} {shown}")
        same += f"{name} = {shown} AND "
    return f"({' OR '.join(cases)})"


def _literal(value: Any) -> str:
    if isinstance(value, bytes):
        return f"decode('{value.hex()}', 'hex')"
    return read.quoted(value) if isinstance(value, str) else str(int(value))


def _light(row: dict[str, Any]) -> read.Pending:
    missing: dict[str, Any] = {"timestamp": 0, "target": "", "value": None, "headers": []}
    return read.Pending(id=row.pop("key"), **(missing | row))


def _filled(row: read.Pending, payload: dict[str, Any]) -> read.Pending:
    rest = {name: payload[name] for name in ("timestamp", "target", "value")}
    return dataclasses.replace(row, headers=read.pairs(payload["headers"]), **rest)
