"""What the book has of a batch's keys: asked once by each task that folds, of the version that the batch was cut at.

Without Spark, in a process whose memory goes back: the book is read as a stream, the batch's keys are held. So a key
that came and went within a batch costs the book nothing, and Spark's commit meets only rows that change something.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from almanac.book import fold, places, read, state, stretch

# Of each key: what the book's row says, null where there is none. `odd`: it says something beside the batch.
FOUND = pa.schema([
    ("version", pa.int64()), ("due", pa.int64()), ("target", pa.string()), ("pending", pa.bool_()), ("odd", pa.bool_()),
])  # fmt: skip

# A word or a kill of the batch itself is above all that the book knows (rule 3), and decides. Tombstones of older words
# and repeats, and garbage, do not: the book's row may hold a newer version, or a higher kill.
_BOTH = ("greatest(b.version, n.version)", "greatest(b.kill, n.kill)")
_ASKED = f"""
SELECT n.number, b.version, b.due, b.target, b.pending, NOT n.decided AND (
    {state.pending(*_BOTH)} OR {state.adrift(*_BOTH)} OR b.kill > n.kill) AS odd
FROM book AS b JOIN (SELECT *, CAST({fold.WORD} AS BIGINT) AS slot, CAST(NULL AS BYTEA) AS value FROM batch) AS n
ON b.key = n.key AND b.partition = n.partition AND b.topic = n.topic
WHERE b.slot = {fold.WORD}"""


def found(book: str, version: int, of: Sequence[tuple[stretch.Stretch, pa.Table]], folder: str) -> list[pa.Table]:
    """Of each stretch's keys, in their order; `book` is the folder of the table, `folder` that of the batch.

    Never before a fork: who reads Delta tables has threads.
    """
    total = sum(keys.num_rows for _, keys in of)
    if not total:
        return [FOUND.empty_table() for _ in of]
    system, place = places.at(folder)
    # below the batch's folder, with which it goes if this process is killed
    with tempfile.TemporaryDirectory(dir=place if isinstance(system, fs.LocalFileSystem) else None) as near:
        file = Path(near) / "batch.parquet"
        _write(file, of)
        query = read.query(book=read.opened(book, version))
        query.execute(f"CREATE EXTERNAL TABLE batch STORED AS PARQUET LOCATION {read.quoted(file.as_uri())}")
        rows = pa.table(query.execute(_ASKED).read_all())
    index = pc.index_in(pa.array(range(total), pa.int64()), value_set=rows["number"].combine_chunks())
    aligned = rows.select(FOUND.names).cast(FOUND).take(index)
    first, tables = 0, []
    for _, keys in of:
        tables.append(aligned.slice(first, keys.num_rows))
        first += keys.num_rows
    return tables


def _write(file: Path, of: Sequence[tuple[stretch.Stretch, pa.Table]]) -> None:
    first = 0
    names = ("key", "version", "kill", "last_kind", "last_version", "decided")
    with pq.ParquetWriter(file, _ROW, use_dictionary=["topic", "last_kind"]) as writer:
        for each, keys in of:
            count = keys.num_rows
            columns = [
                pa.repeat(each.topic, count), pa.array([each.partition] * count, pa.int32()),
                pa.array(range(first, first + count), pa.int64()), *(keys[name] for name in names),
            ]  # fmt: skip
            writer.write_table(pa.table(columns, _ROW))
            first += count


_ROW = pa.schema([
    ("topic", pa.string()), ("partition", pa.int32()), ("number", pa.int64()), ("key", pa.binary()),
    ("version", pa.int64()), ("kill", pa.int64()), ("last_kind", pa.string()), ("last_version", pa.int64()),
    ("decided", pa.bool_()),
])  # fmt: skip
