"""What people ask the book, without Spark: counts, lists, one id. A tenth of a second on a million rows."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError, TableNotFoundError

from almanac import errors
from almanac.book import fold, stretch

WRITER = "almanac-book"  # Delta's name of the numbers of our commits

_COLUMNS = "topic, partition, key, version, due, timestamp, value, headers, target"


class BookError(errors.AlmanacError):
    """The book cannot be read or written. It is a cache: remove its folder and it is built again from Kafka."""


class NoBook(BookError):
    """There is no book yet. It is made when the scheduler runs for the first time."""


class Position(NamedTuple):
    """Up to where one version of the book speaks."""

    version: int  # of the Delta table
    number: int  # of the batch that was taken last; -1 before the first
    offsets: dict[stretch.Partition, int]  # the next one to read
    complete: dict[stretch.Partition, int]  # the last of these at which the log ended
    topic_ids: dict[str, str]
    since: dict[stretch.Partition, int]  # epoch ms at which the book stood there


@dataclass(frozen=True, kw_only=True)
class Pending:
    """A schedule that waits, as its user wrote it."""

    topic: str
    partition: int
    id: bytes
    version: int
    due: int  # epoch ms
    timestamp: int  # epoch ms
    value: bytes | None  # null: a karafka schedule that delivers one
    headers: list[tuple[str, bytes | None]]
    target: str


class Reader:
    """Reads one version of the book (the latest unless told); make a new one to see what was merged since."""

    def __init__(self, folder: str, version: int | None = None) -> None:
        self._table = opened(f"{folder.rstrip('/')}/book", version)
        self._query = query(book=self._table)

    @property
    def version(self) -> int:
        return int(self._table.version())

    def _rows(self, statement: str) -> list[dict[str, Any]]:
        return rows(self._query, statement)

    def columns(self, statement: str) -> list[list[Any]]:
        """An answer column by column: many rows are turned into Python's objects much faster so."""
        import pyarrow

        table = pyarrow.table(self._query.execute(statement).read_all())
        return [column.to_pylist() for column in table.columns]

    def property(self, name: str) -> str | None:
        """A property of the table."""
        return dict(self._table.metadata().configuration).get(name)

    def position(self) -> Position:
        """Up to where the book speaks."""
        rows = self._rows(
            f"SELECT topic, partition, version, last_offset, topic_id, timestamp FROM book WHERE slot = {fold.OFFSET}"
        )
        places = [(row["topic"], row["partition"]) for row in rows]
        number = self._table.transaction_version(WRITER)
        return Position(
            self.version,
            -1 if number is None else int(number),
            {place: row["version"] for place, row in zip(places, rows, strict=True)},
            {place: row["last_offset"] for place, row in zip(places, rows, strict=True)},
            {row["topic"]: row["topic_id"] for row in rows},
            {place: row["timestamp"] for place, row in zip(places, rows, strict=True)},
        )

    def offsets(self) -> dict[stretch.Partition, int]:
        """The next offset to read of each partition."""
        rows = self._rows(f"SELECT topic, partition, version FROM book WHERE slot = {fold.OFFSET}")
        return {(row["topic"], row["partition"]): row["version"] for row in rows}

    def read_through(self) -> None:
        """Touches every file, footer and deletion vector; the payloads are left alone."""
        self._rows("SELECT sum(slot), sum(version), sum(kill), sum(due) FROM book")

    def count(self) -> int:
        """How many schedules wait."""
        return int(self._rows("SELECT count(*) AS n FROM book WHERE pending")[0]["n"])

    def by_topic(self) -> dict[str, int]:
        """How many schedules of each topic wait."""
        rows = self._rows("SELECT topic, count(*) AS n FROM book WHERE pending GROUP BY topic")
        return {row["topic"]: int(row["n"]) for row in rows}

    def files(self) -> int:
        """How many the table has; many small ones make questions slow."""
        return len(self._table.file_uris())

    def daily(self, topic: str) -> dict[tuple[int, int], int]:
        """How many of a topic's schedules wait, by partition and day since 1970 (UTC)."""
        rows = self._rows(
            "SELECT partition, due / 86400000 AS day, count(*) AS n FROM book "
            f"WHERE pending AND topic = {quoted(topic)} GROUP BY partition, due / 86400000"
        )
        return {(row["partition"], row["day"]): row["n"] for row in rows}

    def versions(self, topic: str, keys: Iterable[bytes]) -> dict[tuple[int, bytes], tuple[int, int]]:
        """Version and due time of those of these ids that wait, by partition and id."""
        wanted = ", ".join(f"decode('{key.hex()}', 'hex')" for key in keys)
        rows = self._rows(
            "SELECT partition, key, version, due FROM book "
            f"WHERE pending AND topic = {quoted(topic)} AND key IN ({wanted})"
        )
        return {(row["partition"], row["key"]): (row["version"], row["due"]) for row in rows}

    def pending(self, limit: int = 50, due_from: int = 0, topic: str | None = None) -> list[Pending]:
        """The next ones by due time."""
        only = f" AND topic = {quoted(topic)}" if topic is not None else ""
        rows = self._rows(
            f"SELECT {_COLUMNS} FROM book WHERE pending AND due >= {int(due_from)}{only} "
            f"ORDER BY due, version LIMIT {int(limit)}"
        )
        return [_pending(row) for row in rows]

    def find(self, schedule_id: bytes) -> list[Pending]:
        """The pending schedules of that id: one at most in each partition of each topic."""
        rows = self._rows(f"SELECT {_COLUMNS} FROM book WHERE pending AND key = decode('{schedule_id.hex()}', 'hex')")
        return [_pending(row) for row in rows]


def opened(path: str, version: int | None = None) -> DeltaTable:
    """The table there."""
    try:
        return DeltaTable(path, version=version)
    except TableNotFoundError:
        raise NoBook(
            f"There is no book at {path} yet. It is made when the scheduler runs for the first time."
        ) from None
    except (DeltaError, OSError) as error:
        raise BookError(
            f"The book at {path} cannot be read: {error}. It is a cache: remove the folder and start the scheduler."
        ) from error


def query(**tables: DeltaTable) -> QueryBuilder:
    """For statements on these tables, by name."""
    builder = QueryBuilder()
    for name, table in tables.items():
        builder = builder.register(name, table)
    return builder


def rows(query: QueryBuilder, statement: str) -> list[dict[str, Any]]:
    """What the statement gives."""
    import pyarrow

    found: list[dict[str, Any]] = pyarrow.table(query.execute(statement).read_all()).to_pylist()
    return found


def quoted(text: str) -> str:
    """The text in SQL."""
    return "'" + text.replace("'", "''") + "'"


def pairs(headers: list[dict[str, Any]] | None) -> list[tuple[str, bytes | None]]:
    """A row's headers as a record has them."""
    return [(header["name"], header["value"]) for header in headers or ()]


def _pending(row: dict[str, Any]) -> Pending:
    names = ("topic", "partition", "version", "due", "timestamp", "value", "target")
    return Pending(id=row["key"], headers=pairs(row["headers"]), **{name: row[name] for name in names})
