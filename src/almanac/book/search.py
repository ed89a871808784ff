"""What people search, without Spark: what waits and what fired, page by page, and exact counts.

    shelf = search.Shelf(settings.book_folder)     # once: it keeps the tables open; thread-safe
    book = shelf.book()                            # one version of the book; later merges do not change it
    rows = book.search(target="mails", limit=50)
    more = book.search(target="mails", limit=50, after=search.cursor(rows[-1]))
    shelf.fired().search(id_part=b"vid", since=..., outcome="fired")

Cursors are the last row's place in the order, not a number of rows: the thousandth page is as quick as the first, and
what is added or goes away meanwhile neither repeats nor hides another row.
"""

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from deltalake import DeltaTable, QueryBuilder

from almanac.book import read

Sort = Literal["due", "-due", "id"]
By = Literal["hour", "day"]
LENGTH: dict[By, int] = {"hour": 3_600_000, "day": 86_400_000}  # ms

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
        raise NotImplementedError

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
    ) -> list[read.Pending]:
        """The next schedules in that order, behind `after`. `due_from` is included, `due_to` is not.

        `id_part`: anywhere in the id, byte by byte. `topic` is the schedules topic.
        """
        raise NotImplementedError

    def counts(
        self, by: By, *, target: str | None = None, due_from: int | None = None, due_to: int | None = None
    ) -> list[Count]:
        """How many wait, exactly, by hour or day (UTC) and target; in order of time. Cancelled ones are gone."""
        raise NotImplementedError

    def next_due(self) -> int | None:
        """When the next schedule is due (epoch ms); one that is overdue counts. None: nothing waits."""
        raise NotImplementedError


class FiredTable:
    """One version of the table of what fired."""

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
        raise NotImplementedError

    def counts(
        self, by: By, *, target: str | None = None, since: int | None = None, until: int | None = None
    ) -> list[FiredCount]:
        """How many went, exactly, by hour or day (UTC), target and outcome; in order of time."""
        raise NotImplementedError


class Shelf:
    """The book and the table of what fired, kept open between questions. Thread-safe."""

    def __init__(self, folder: str) -> None:
        raise NotImplementedError

    def book(self) -> Book:
        """The latest version of the book. Raises `read.NoBook` where there is none yet."""
        raise NotImplementedError

    def fired(self) -> FiredTable:
        """The latest version of what fired; empty where there is no table yet."""
        raise NotImplementedError
