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
PARTS = 200  # files in one question
TRIES = 4  # questions, each for four times as many rows, while what is found is gone


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
    """The book's files one by one, each a table to the query; opened when they are first needed.

    A Delta table with deletion vectors is read as a whole, of a plain file only what is wanted. So the rows that the
    vectors delete are read once, and left out of what is found.
    """

    def __init__(self, table: DeltaTable, files: list[File]) -> None:
        self._query = QueryBuilder({"datafusion.execution.parquet.pushdown_filters": "true"})
        self._root = unquote(table.table_uri.removeprefix("file://")).rstrip("/")
        self._files = {f"file_{number}": file for number, file in enumerate(files)}
        kept = pa.table(table.deletion_vectors())
        vectors = zip(kept["filepath"].to_pylist(), kept["selection_vector"], strict=True)
        self._kept = {_base(path): vector.values for path, vector in vectors}  # which rows, by the file's name
        self._left: dict[str, _Left | None] = {}
        self._lock = threading.Lock()

    def rows(
        self, columns: str, wanted: list[str], least: int | None, most: int | None, order: str, limit: int
    ) -> list[dict[str, Any]] | None:
        """The first pending rows that are wanted and due between these; the columns name topic, partition, version.

        None: it is less work to ask the table.
        """
        parts = self._parts(columns, wanted, least, most)
        if not parts:
            return []
        for asked in [limit * 4**again for again in range(TRIES)] if len(parts) <= PARTS else []:
            found = read.rows(self._query, f"{' UNION ALL '.join(parts)} ORDER BY {order} LIMIT {asked}")
            kept = self._without_gone(found)
            if len(kept) >= limit or len(found) < asked:
                return kept[:limit]
        return None

    def _parts(self, columns: str, wanted: list[str], least: int | None, most: int | None) -> list[str]:
        """A question to each file that may have such rows."""
        low, high = -1 if least is None else least, 1 << 62 if most is None else most
        parts = []
        for name, file in self._files.items():
            # `wake` is -1 in rows that every page needs: when these are due only the file itself knows
            if file.least >= high or (file.least != -1 and file.greatest < low):
                continue
            left, first, end = self._opened(name, file), low, high
            if left is not None:  # what fired is gone: the first rows of a file
                first, end = max(low, left.least), min(high, left.greatest + 1)
            if first < end:
                where = " AND ".join(["pending", *wanted, f"due >= {first}", f"due < {end}"])
                parts.append(f"SELECT {columns}, '{name}' AS file FROM {name} WHERE {where}")
        return parts

    def _opened(self, name: str, file: File) -> _Left | None:
        """Makes it known to the query; what is left of it, if rows are gone."""
        with self._lock:
            if name not in self._left:
                place, kept = f"{self._root}/{unquote(file.path)}", self._kept.get(_base(file.path))
                left = _left(place, kept) if kept is not None else None
                self._query.execute(f"CREATE EXTERNAL TABLE {name} STORED AS PARQUET LOCATION {read.quoted(place)}")
                self._left[name] = left
            return self._left[name]

    def _without_gone(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        asked: dict[tuple[str, str, int], list[int]] = {}
        for row in rows:
            if self._left[row["file"]] is not None:
                asked.setdefault((row["file"], row["topic"], row["partition"]), []).append(row["version"])
        gone: set[tuple[str, str, int, int]] = set()
        for (file, topic, partition), versions in asked.items():
            left = self._left[file]
            known = left.gone.get((topic, partition)) if left is not None else None
            if known is not None:
                found = pa.array(versions, pa.int64())
                found = found.filter(pc.is_in(found, value_set=known))
                gone.update((file, topic, partition, version) for version in found.to_pylist())
        return [row for row in rows if (row.pop("file"), row["topic"], row["partition"], row["version"]) not in gone]


def raw(table: DeltaTable, files: list[File], column: str) -> Raw | None:
    """None: they cannot be reached, or it is not known of each what it holds."""
    if "://" in table.table_uri.removeprefix("file://"):
        return None
    known = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    without = [
        each for each in known if each["num_records"] and each["num_records"] == each.get(f"null_count.{column}")
    ]
    return Raw(table, files) if len(files) + len(without) == len(known) else None


def _base(path: str) -> str:
    return unquote(path).rpartition("/")[2]


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
