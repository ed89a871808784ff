"""What people ask the book, without Spark: counts, lists, one id. A tenth of a second on a million rows."""

from dataclasses import dataclass
from typing import Any

from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError, TableNotFoundError

from almanac.book import fold, table

_COLUMNS = "topic, partition, key, version, due, timestamp, value, headers, target"


class NoBook(table.BookError):
    """There is no book yet. It is made when the scheduler runs for the first time."""


@dataclass(frozen=True, kw_only=True)
class Pending:
    """A schedule that waits, as its user wrote it."""

    topic: str
    partition: int
    id: bytes
    version: int
    due: int  # epoch ms
    timestamp: int  # epoch ms
    value: bytes
    headers: list[tuple[str, bytes | None]]
    target: str


class Reader:
    """Reads one version of the book; make a new one to see what was merged since."""

    def __init__(self, folder: str) -> None:
        path = f"{folder.rstrip('/')}/book"
        try:
            self._table = DeltaTable(path)
        except TableNotFoundError:
            raise NoBook(f"There is no book at {path} yet. It is made when the scheduler runs for the first time.") from None
        except (DeltaError, OSError) as error:
            raise table.BookError(
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

    def offsets(self) -> dict[fold.Partition, int]:
        """Up to where the book speaks: the next offset to read of each partition."""
        rows = self._rows(f"SELECT topic, partition, version FROM book WHERE slot = {fold.OFFSET}")
        return {(row["topic"], row["partition"]): row["version"] for row in rows}

    def count(self) -> int:
        """How many schedules wait."""
        return int(self._rows("SELECT count(*) AS n FROM book WHERE pending")[0]["n"])

    def pending(self, limit: int = 50, due_from: int = 0, topic: str | None = None) -> list[Pending]:
        """The next ones by due time."""
        only = f" AND topic = {_quoted(topic)}" if topic is not None else ""
        rows = self._rows(
            f"SELECT {_COLUMNS} FROM book WHERE pending AND due >= {int(due_from)}{only} "
            f"ORDER BY due, version LIMIT {int(limit)}"
        )
        return [_pending(row) for row in rows]

    def find(self, id: bytes) -> list[Pending]:
        """The pending schedules of that id: one at most in each partition of each topic."""
        rows = self._rows(f"SELECT {_COLUMNS} FROM book WHERE pending AND key = decode('{id.hex()}', 'hex')")
        return [_pending(row) for row in rows]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _pending(row: dict[str, Any]) -> Pending:
    headers = [(header["name"], header["value"]) for header in row["headers"] or ()]
    names = ("topic", "partition", "version", "due", "timestamp", "value", "target")
    return Pending(id=row["key"], headers=headers, **{name: row[name] for name in names})
