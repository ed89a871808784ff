"""Pages as Spark wrote them: Parquet files in a folder, one folder a shard."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from almanac.book import places
from almanac.page import Batch, Page, Row
from almanac.record import Headers, Record

BATCH_ROWS = 512
BATCH_BYTES = 4 << 20  # payloads may be large: a batch is bounded by bytes too


class ParquetPage(Page):
    """One shard's part of a page, as files in a folder; a shard without rows has none."""

    def __init__(self, folder: str) -> None:
        self._files: list[pq.ParquetFile] = []
        self.rows = 0
        files, path = places.at(folder)
        page = pyarrow.fs.FileSelector(path.rpartition("/")[0])  # not there at all: the page was removed
        if path not in [found.path for found in files.get_file_info(page)]:
            return
        for found in sorted(files.get_file_info(pyarrow.fs.FileSelector(path)), key=lambda found: found.path):
            if not found.path.endswith(".parquet"):
                continue
            file = pq.ParquetFile(files.open_input_file(found.path), pre_buffer=False)
            self._files.append(file)
            self.rows += file.metadata.num_rows

    def batches(self, since: int) -> Iterator[Batch]:
        """See Page."""
        for file in self._files:
            for group in range(file.metadata.num_row_groups):
                last = _last_due(file, group)
                if group and last is not None and last < since:  # the first also holds the marked rows
                    continue
                size = file.metadata.row_group(group)
                each = max(1, size.total_byte_size // max(1, size.num_rows))
                rows = max(1, min(BATCH_ROWS, BATCH_BYTES // each))
                yield from map(batch, file.iter_batches(batch_size=rows, row_groups=[group], use_threads=False))


def batch(read: pa.RecordBatch) -> Batch:
    """A batch as pyarrow reads it."""
    return Batch(_rows(read), read.nbytes // max(1, read.num_rows))


def _rows(batch: pa.RecordBatch) -> Iterator[Row]:
    def column(name: str) -> list[Any]:
        values: list[Any] = batch.column(name).to_pylist()
        return values

    columns = zip(
        column("mark"), column("reason"), column("pending"), column("version"), column("kill"), column("slot"),
        column("topic"), column("partition"), column("timestamp"), column("key"), column("value"),
        _headers(batch.column("headers")), strict=True,
    )  # fmt: skip
    for mark, reason, pending, version, kill, slot, topic, partition, timestamp, key, value, headers in columns:
        offset = slot if slot >= 0 else version
        said = version if pending else kill
        yield mark, reason, bool(pending), said, Record(topic, partition, offset, timestamp, key, value, headers)


def _headers(column: pa.ListArray) -> list[Headers]:
    # to_pylist() of a list of structs makes a dict per header; this makes one tuple per different header
    flat = column.flatten()
    names = flat.field(0).dictionary_encode()
    texts = names.dictionary.to_pylist()
    known: dict[tuple[str, bytes | None], tuple[str, bytes | None]] = {}
    found = zip([texts[i] for i in names.indices.to_pylist()], flat.field(1).to_pylist(), strict=True)
    pairs = [known.setdefault(pair, pair) for pair in found]
    lengths = column.value_lengths().to_pylist()
    result, at = [], 0
    for length in lengths:
        end = at + (length or 0)
        result.append(pairs[at:end])
        at = end
    return result


def _last_due(file: pq.ParquetFile, group: int) -> int | None:
    leaf = [file.schema.column(i).path for i in range(len(file.schema))].index("due")
    statistics = file.metadata.row_group(group).column(leaf).statistics
    return statistics.max if statistics is not None and statistics.has_min_max else None
