"""Rows that become Arrow's columns: Python makes plain tuples, of a look of records at a time, and Arrow the rest."""

import tempfile
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa

from almanac.record import Headers

Row = tuple[Any, ...]

CHUNK_RECORDS = 10_000
CHUNK_BYTES = 8 << 20  # of payloads: they may be large

HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))


def batch(rows: Sequence[Row], schema: pa.Schema) -> pa.RecordBatch:
    """The rows, of which there is at least one."""
    columns = zip(zip(*rows, strict=True), schema, strict=True)
    arrays = [_headers(column) if field.type == HEADERS else pa.array(column, field.type) for column, field in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _headers(column: Sequence[Headers]) -> pa.ListArray:
    pairs = list(chain.from_iterable(column))
    ends = pa.array(accumulate(map(len, column), initial=0), pa.int32())
    arrays = [pa.array([name for name, _ in pairs], pa.string()), pa.array([value for _, value in pairs], pa.binary())]
    return pa.ListArray.from_arrays(ends, pa.StructArray.from_arrays(arrays, fields=list(HEADERS.value_type)))


class Columns:
    """A table in memory."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._batches: list[pa.RecordBatch] = []

    def add(self, rows: Sequence[Row]) -> None:
        if rows:
            self._batches.append(batch(rows, self._schema))

    def table(self) -> pa.Table:
        """All rows, once."""
        batches, self._batches = self._batches, []
        return pa.Table.from_batches(batches, self._schema).combine_chunks()


class Filed:
    """A table in a file, to be read once, from its beginning."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0  # of those that wait
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`); without a name it is gone with us
        self._writer = pa.ipc.new_file(self._file, schema)

    def add(self, rows: Sequence[Row]) -> None:
        if rows:
            made = batch(rows, self._schema)
            self._waiting.append(made)
            self._rows += made.num_rows
            self._bytes += made.nbytes
            if self._rows >= CHUNK_RECORDS or self._bytes >= CHUNK_BYTES:
                self._write()

    def _write(self) -> None:
        if self._waiting:
            one = len(self._waiting) == 1
            self._writer.write_batch(self._waiting[0] if one else pa.concat_batches(self._waiting))
        self._waiting, self._rows, self._bytes = [], 0, 0

    def chunks(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Each with the number of its first row."""
        self._write()
        self._writer.close()
        first = 0
        reader = pa.ipc.open_file(self._file)
        for number in range(reader.num_record_batches):
            chunk = reader.get_batch(number)
            yield first, chunk
            first += chunk.num_rows

    def close(self) -> None:
        self._file.close()
