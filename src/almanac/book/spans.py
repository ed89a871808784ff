"""The files of a table, and where in its order their rows lie: a search looks at few of them first."""

import itertools
import threading
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import unquote

from deltalake import DeltaTable, QueryBuilder

from almanac.book import read

ENOUGH = 100_000  # rows that a search looks at first: most end there


class File(NamedTuple):
    """What a file of the table holds of the column that it is ordered by."""

    path: str
    least: int
    greatest: int
    rows: int


class Raw:
    """The table's files one by one, each a table to the query; known to it when they are first needed."""

    def __init__(self, table: DeltaTable, files: list[File]) -> None:
        self.query = QueryBuilder({"datafusion.execution.parquet.pushdown_filters": "true"})
        self._root = unquote(table.table_uri.removeprefix("file://")).rstrip("/")
        self._files = {f"file_{number}": file for number, file in enumerate(files)}
        self._known: set[str] = set()
        self._lock = threading.Lock()

    def names(self, least: int, most: int) -> list[str]:
        """Of the files with rows between these; rows of no time of their own (-1) count."""
        found = [
            name
            for name, file in self._files.items()
            if file.least <= most and (file.greatest >= least or file.least == -1)
        ]
        with self._lock:
            for name in [name for name in found if name not in self._known]:
                place = read.quoted(f"{self._root}/{unquote(self._files[name].path)}")
                self.query.execute(f"CREATE EXTERNAL TABLE {name} STORED AS PARQUET LOCATION {place}")
                self._known.add(name)
        return found


def of(table: DeltaTable, column: str) -> list[File]:
    """Those of the table, without the ones that have no such rows."""
    import pyarrow

    known = pyarrow.table(table.get_add_actions(flatten=True))
    names = ("path", f"min.{column}", f"max.{column}", "num_records")
    if not set(names) <= set(known.column_names):
        return []
    spans = zip(*(known.column(name).to_pylist() for name in names), strict=True)
    return [File(*span) for span in spans if None not in span]


def first_rows(
    ask: Callable[[int | None, int | None, int], list[dict[str, Any]]],
    files: list[File],
    least: int | None,
    most: int | None,
    *,
    backwards: bool,
    limit: int,
) -> list[dict[str, Any]]:
    """The first rows between these bounds: first of as few files as can be, then of all others."""
    edge = _edge(files, least, most, backwards)
    if edge is None:
        return ask(least, most, limit)
    rows = ask(edge, most, limit) if backwards else ask(least, edge, limit)
    if len(rows) < limit:
        left = limit - len(rows)
        rows += ask(least, edge, left) if backwards else ask(edge, most, left)
    return rows


def _edge(files: list[File], least: int | None, most: int | None, backwards: bool) -> int | None:
    """Where to look no further at first: so many rows lie before it. None: look at all at once."""
    inside = [f for f in files if (least is None or f.greatest >= least) and (most is None or f.least < most)]
    inside.sort(key=lambda f: -f.greatest if backwards else f.least)
    totals = itertools.accumulate(file.rows for file in inside)
    for following, total in zip(inside[1:], totals, strict=False):
        edge = following.greatest + 1 if backwards else following.least
        if total >= ENOUGH and edge > (-1 if least is None else least) and (most is None or edge < most):
            return edge
    return None
