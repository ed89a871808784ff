"""What a task does with its stretches of the log: read, fold, look into the book, write as Parquet.

Runs in Spark's Python processes.
"""

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext

from almanac.book import apart, fold, known, places
from almanac.book.stretch import Log, Partition, Stretch

ODD = pa.schema([fold.NEWS.field(name) for name in ("topic", "partition", "key")])


class Book(NamedTuple):
    """The table as it was when the batch was cut."""

    path: str
    version: int


class Done(NamedTuple):
    """What became of a share."""

    file: str = ""
    gone: str = ""  # the file of what fired, if anything did
    odd: str = ""  # the file of the keys of which the book's row still says something beside the batch: rare
    odd_keys: int = 0
    records: int = 0
    halts: Mapping[Partition, int] = {}  # partitions with a record of the future, and where
    error: Exception | None = None  # why it failed: told to the driver, not to Spark, which would hide it and try again


class Work:
    """Of a batch: who reads it, the book that it is for, and the folder for what is made of it."""

    def __init__(self, log: Log, book: Book | None, folder: str) -> None:
        self._log, self._book, self._folder = log, book, folder

    def __call__(self, share: Sequence[Stretch]) -> Done:
        """Does one task's share."""
        context = TaskContext.get()
        name = "0" if context is None else f"{context.partitionId()}-{context.attemptNumber()}"
        try:
            return apart.run(lambda: self._done(share, name))
        except Exception as error:
            return Done(error=error)

    def _done(self, share: Sequence[Stretch], name: str) -> Done:
        gc.disable()  # records hold no cycles, and each collection would walk through thousands of them
        with closing(self._log):
            folded = [self._folded(stretch) for stretch in share]
        folds, keys = [each for each, _ in folded], [of for _, of in folded]
        found: list[pa.Table | None] = [None] * len(share)
        if self._book is not None:
            found = [*known.found(*self._book, list(zip(share, keys, strict=True)), self._folder)]
        with self._writer(f"{name}.parquet", fold.NEWS) as news:
            for folding, of, had in zip(folds, keys, found, strict=True):
                for rows in folding.news(of, had):
                    news.write_batch(rows)
        odd = [_odd(*each) for each in zip(share, keys, found, strict=True)]
        return Done(
            file=f"{self._folder}/{name}.parquet",
            gone=self._file(f"{name}-gone.parquet", [folding.gone for folding in folds]),
            odd=self._file(f"{name}-odd.parquet", odd),
            odd_keys=sum(table.num_rows for table in odd),
            records=sum(folding.records for folding in folds),
            halts={(s.topic, s.partition): f.halt for s, f in zip(share, folds, strict=True) if f.halt is not None},
        )

    def _folded(self, stretch: Stretch) -> tuple[fold.Fold, pa.Table]:
        folding = fold.Fold(stretch)
        for records in self._log.read(stretch):
            if not folding.take(records):
                break
        return folding, folding.keys()

    def _file(self, name: str, tables: Sequence[pa.Table]) -> str:
        """The file that these are written to; none of nothing."""
        if not any(table.num_rows for table in tables):
            return ""
        with self._writer(name, tables[0].schema) as writer:
            writer.write_table(pa.concat_tables(tables))
        return f"{self._folder}/{name}"

    @contextmanager
    def _writer(self, name: str, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
        """What an earlier attempt left there is nobody's."""
        system, path = places.at(f"{self._folder}/{name}")
        with (
            system.open_output_stream(path) as stream,
            # Written once, read a moment later: nothing is gained by looking for what repeats itself.
            pq.ParquetWriter(stream, schema, use_dictionary=["topic", "target"]) as writer,
        ):
            yield writer


def _odd(stretch: Stretch, keys: pa.Table, found: pa.Table | None) -> pa.Table:
    if found is None:
        return ODD.empty_table()
    odd = keys["key"].filter(pc.fill_null(found["odd"], False))
    return pa.table([[stretch.topic] * len(odd), pa.array([stretch.partition] * len(odd), pa.int32()), odd], schema=ODD)


def shares(stretches: Sequence[Stretch], tasks: int) -> list[list[Stretch]]:
    """The stretches, dealt out to at most so many tasks: the longest first, each to whom has least."""
    found: list[list[Stretch]] = [[] for _ in range(min(tasks, len(stretches)))]
    lengths = [0] * len(found)
    for stretch in sorted(stretches, key=_length, reverse=True):
        least = lengths.index(min(lengths))
        found[least].append(stretch)
        lengths[least] += _length(stretch)
    return found


def _length(stretch: Stretch) -> int:
    return stretch.end - max(0, stretch.start)
