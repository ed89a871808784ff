"""The files of a table, and where in its order their rows lie: a search looks at few of them first."""

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder

from almanac.book import read

ENOUGH = 100_000  # rows that a search looks at first: most end there


class File(NamedTuple):
    """What a file of the table holds of the column that it is ordered by."""

    path: str
    least: int
    greatest: int
    rows: int


@dataclass(frozen=True)
class _Left:
    """A file of which rows are gone: which ones, and when the first and the last of those that are left are due."""

    gone: dict[tuple[str, int], pa.Array]  # versions, by topic and partition
    least: int
    greatest: int


class Raw:
    """The book's files one by one, each a table to the query; known to it when they are first needed.

    A Delta table with deletion vectors is read as a whole, of a plain file only what is wanted. So the rows that the
    vectors delete are read once, and left out of what is found.
    """

    def __init__(self, table: DeltaTable, files: list[File]) -> None:
        self._query = QueryBuilder({"datafusion.execution.parquet.pushdown_filters": "true"})
        self._root = unquote(table.table_uri.removeprefix("file://")).rstrip("/")
        self._files = {f"file_{number}": file for number, file in enumerate(files)}
        kept = pa.table(table.deletion_vectors())
        vectors = {
            unquote(path.as_py()).rpartition("/")[2]: vector.values
            for path, vector in zip(kept["filepath"], kept["selection_vector"], strict=True)
        }
        self._left = {
            name: _left(self._place(file), vectors[base])
            for name, file in self._files.items()
            if (base := self._place(file).rpartition("/")[2]) in vectors
        }
        self._known: set[str] = set()
        self._lock = threading.Lock()

    def rows(
        self, columns: str, wanted: list[str], least: int | None, most: int | None, order: str, limit: int
    ) -> list[dict[str, Any]]:
        """The first pending rows that are wanted and due between these; the columns name topic, partition, version."""
        asked = limit
        while True:
            found = self._ask(columns, wanted, least, most, f"ORDER BY {order} LIMIT {asked}")
            kept = self._without_gone(found)
            if len(kept) >= limit or len(found) < asked:
                return kept[:limit]
            asked *= 4

    def _ask(
        self, columns: str, wanted: list[str], least: int | None, most: int | None, rest: str
    ) -> list[dict[str, Any]]:
        parts = []
        for name, file in self._files.items():
            left = self._left.get(name)
            first, last = (left.least, left.greatest) if left is not None else (file.least, file.greatest)
            # `wake` is -1 in rows that every page needs: when these are due only the file itself knows
            if (most is not None and first >= most) or (least is not None and first != -1 and last < least):
                continue
            low = max(-1 if least is None else least, left.least if left is not None else -1)
            span = [f"due >= {low}"] if low > -1 else []
            span += [f"due < {most}"] if most is not None else []
            where = " AND ".join(["pending", *wanted, *span])
            parts.append(f"SELECT {columns}, '{name}' AS file FROM {self._table(name)} WHERE {where}")
        return read.rows(self._query, f"{' UNION ALL '.join(parts)} {rest}") if parts else []

    def _table(self, name: str) -> str:
        with self._lock:
            if name not in self._known:
                place = read.quoted(self._place(self._files[name]))
                self._query.execute(f"CREATE EXTERNAL TABLE {name} STORED AS PARQUET LOCATION {place}")
                self._known.add(name)
        return name

    def _place(self, file: File) -> str:
        return f"{self._root}/{unquote(file.path)}"

    def _without_gone(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        asked: dict[tuple[str, str, int], list[int]] = {}
        for row in rows:
            if row["file"] in self._left:
                asked.setdefault((row["file"], row["topic"], row["partition"]), []).append(row["version"])
        gone: set[tuple[str, str, int, int]] = set()
        for (file, topic, partition), versions in asked.items():
            known = self._left[file].gone.get((topic, partition))
            if known is not None:
                found = pa.array(versions, pa.int64())
                found = found.filter(pc.is_in(found, value_set=known))
                gone.update((file, topic, partition, version) for version in found.to_pylist())
        return [row for row in rows if (row.pop("file"), row["topic"], row["partition"], row["version"]) not in gone]


def _left(path: str, kept: pa.Array) -> _Left:
    rows = pq.read_table(path, columns=["topic", "partition", "version", "due", "pending"])
    mask = pa.concat_arrays([kept, pa.array([True] * (rows.num_rows - len(kept)), pa.bool_())])
    pending = rows["pending"].combine_chunks()
    rows, mask = rows.filter(pending), mask.filter(pending)
    left, gone = rows.filter(mask), rows.filter(pc.invert(mask))
    listed = gone.group_by(["topic", "partition"]).aggregate([("version", "list")])
    places = zip(listed["topic"].to_pylist(), listed["partition"].to_pylist(), strict=True)
    ends = pc.min_max(left["due"]).as_py()
    return _Left(
        {place: versions.values for place, versions in zip(places, listed["version_list"], strict=True)},
        -1 if ends["min"] is None else ends["min"], -1 if ends["max"] is None else ends["max"],
    )  # fmt: skip


def of(table: DeltaTable, column: str) -> list[File]:
    """Those of the table, without the ones that have no such rows."""
    known = pa.table(table.get_add_actions(flatten=True))
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
