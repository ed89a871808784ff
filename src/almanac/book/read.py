"""What people ask the book, without Spark: counts, lists, one id. A tenth of a second on a million rows."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError, TableNotFoundError

from almanac import errors
from almanac.book import fold

_COLUMNS = "topic, partition, key, version, due, timestamp, value, headers, target"


class BookError(errors.AlmanacError):
    """The book cannot be read or written. It is a cache: remove its folder and it is built again from Kafka."""


class NoBook(BookError):
    """There is no book yet. It is made when the scheduler runs for the first time."""


class Position(NamedTuple):
    """Up to where one version of the book speaks."""

    version: int  # of the Delta table
    offsets: dict[fold.Partition, int]  # the next one to read
    complete: dict[fold.Partition, int]  # the last of these at which the log ended
    topic_ids: dict[str, str]
    since: dict[fold.Partition, int]  # epoch ms at which the book stood there
    book: int  # which book it is: another number, another book


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
        path = f"{folder.rstrip('/')}/book"
        try:
            self._table = DeltaTable(path, version=version)
        except TableNotFoundError:
            raise NoBook(
                f"There is no book at {path} yet. It is made when the scheduler runs for the first time."
            ) from None
        except (DeltaError, OSError) as error:
            raise BookError(
                f"The book at {path} cannot be read: {error}. It is a cache: remove the folder and start the scheduler."
            ) from error
        self._query = QueryBuilder().register("book", self._table)

    @property
    def version(self) -> int:
        return int(self._table.version())

    def _rows(self, statement: str) -> list[dict[str, Any]]:
        import pyarrow

        batches = pyarrow.table(self._query.execute(statement).read_all())
        rows: list[dict[str, Any]] = batches.to_pylist()
        return rows

    def property(self, name: str) -> str | None:
        """A property of the table."""
        return dict(self._table.metadata().configuration).get(name)

    def position(self) -> Position:
        """Up to where the book speaks."""
        found = self._rows(
            "SELECT slot, topic, partition, version, last_offset, topic_id, timestamp FROM book "
            f"WHERE slot <= {fold.OFFSET}"
        )
        rows = [row for row in found if row["slot"] == fold.OFFSET]
        places = [(row["topic"], row["partition"]) for row in rows]
        return Position(
            self.version,
            {place: row["version"] for place, row in zip(places, rows, strict=True)},
            {place: row["last_offset"] for place, row in zip(places, rows, strict=True)},
            {row["topic"]: row["topic_id"] for row in rows},
            {place: row["timestamp"] for place, row in zip(places, rows, strict=True)},
            next((row["version"] for row in found if row["slot"] == fold.BOOK), -1),
        )

    def offsets(self) -> dict[fold.Partition, int]:
        """The next offset to read of each partition."""
        rows = self._rows(f"SELECT topic, partition, version FROM book WHERE slot = {fold.OFFSET}")
        return {(row["topic"], row["partition"]): row["version"] for row in rows}

    def read_through(self) -> None:
        """Touches every file, footer and deletion vector; the payloads are left alone."""
        self._rows("SELECT sum(slot), sum(version), sum(kill), sum(due) FROM book")

    def count(self) -> int:
        """How many schedules wait."""
        return int(self._rows("SELECT count(*) AS n FROM book WHERE pending")[0]["n"])

    def daily(self, topic: str) -> dict[tuple[int, int], int]:
        """How many of a topic's schedules wait, by partition and day since 1970 (UTC)."""
        rows = self._rows(
            "SELECT partition, due / 86400000 AS day, count(*) AS n FROM book "
            f"WHERE pending AND topic = {_quoted(topic)} GROUP BY partition, due / 86400000"
        )
        return {(row["partition"], row["day"]): row["n"] for row in rows}

    def versions(self, topic: str, keys: Iterable[bytes]) -> dict[tuple[int, bytes], tuple[int, int]]:
        """Version and due time of those of these ids that wait, by partition and id."""
        wanted = ", ".join(f"decode('{key.hex()}', 'hex')" for key in keys)
        rows = self._rows(
            "SELECT partition, key, version, due FROM book "
            f"WHERE pending AND topic = {_quoted(topic)} AND key IN ({wanted})"
        )
        return {(row["partition"], row["key"]): (row["version"], row["due"]) for row in rows}

    def pending(self, limit: int = 50, due_from: int = 0, topic: str | None = None) -> list[Pending]:
        """The next ones by due time."""
        only = f" AND topic = {_quoted(topic)}" if topic is not None else ""
        rows = self._rows(
            f"SELECT {_COLUMNS} FROM book WHERE pending AND due >= {int(due_from)}{only} "
            f"ORDER BY due, version LIMIT {int(limit)}"
        )
        return [_pending(row) for row in rows]

    def find(self, schedule_id: bytes) -> list[Pending]:
        """The pending schedules of that id: one at most in each partition of each topic."""
        rows = self._rows(f"SELECT {_COLUMNS} FROM book WHERE pending AND key = decode('{schedule_id.hex()}', 'hex')")
        return [_pending(row) for row in rows]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _pending(row: dict[str, Any]) -> Pending:
    headers = [(header["name"], header["value"]) for header in row["headers"] or ()]
    names = ("topic", "partition", "version", "due", "timestamp", "value", "target")
    return Pending(id=row["key"], headers=headers, **{name: row[name] for name in names})
