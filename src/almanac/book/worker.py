"""What a task does with its stretches of the log: read, fold, write as Parquet. Runs in Spark's Python processes."""

import gc
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext

from almanac.book import apart, fold, places
from almanac.book.stretch import Log, Partition, Stretch


class Done(NamedTuple):
    """What became of a share."""

    file: str = ""
    gone: str = ""  # the file of what fired, if anything did
    records: int = 0
    undecided: int = 0  # see `fold.Fold`
    halts: Mapping[Partition, int] = {}  # partitions with a record of the future, and where
    error: Exception | None = None  # why it failed: told to the driver, not to Spark, which would hide it and try again


class Work:
    """Of a batch: who reads it, and the folder for what is made of it."""

    def __init__(self, log: Log, folder: str) -> None:
        self._log, self._folder = log, folder

    def __call__(self, share: Sequence[Stretch]) -> Done:
        """Does one task's share."""
        context = TaskContext.get()
        name = "0" if context is None else f"{context.partitionId()}-{context.attemptNumber()}"
        try:
            return apart.run(lambda: self._done(share, name))
        except Exception as error:
            return Done(error=error)

    def _done(self, share: Sequence[Stretch], name: str) -> Done:
        done = Done(f"{self._folder}/{name}.parquet")  # what an earlier attempt left is nobody's
        gone, halts = [], {}
        system, path = places.at(done.file)
        gc.disable()  # records hold no cycles, and each collection would walk through thousands of them
        with (
            closing(self._log),
            system.open_output_stream(path) as stream,
            # Written once, read a moment later: nothing is gained by looking for what repeats itself.
            pq.ParquetWriter(stream, fold.NEWS, use_dictionary=["topic", "target"]) as writer,
        ):
            for stretch in share:
                folding = fold.Fold(stretch)
                for records in self._log.read(stretch):
                    if not folding.take(records):
                        break
                for rows in folding.news():
                    writer.write_batch(rows)
                done = done._replace(
                    records=done.records + folding.records, undecided=done.undecided + folding.undecided
                )
                gone.append(folding.gone)
                if folding.halt is not None:
                    halts[stretch.topic, stretch.partition] = folding.halt
        if any(each.num_rows for each in gone):
            done = done._replace(gone=f"{self._folder}/{name}-gone.parquet")
            system, path = places.at(done.gone)
            pq.write_table(pa.concat_tables(gone), path, filesystem=system)
        return done._replace(halts=halts)


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
