"""What a batch meets in the book, without Spark: a Delta table that deltalake wrote."""

from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake
from logs import TOPIC, TOPIC_ID, record, schedule

from almanac.book import fold, known
from almanac.book.stretch import Stretch

_BOOK = pa.schema([
    ("topic", pa.string()), ("partition", pa.int32()), ("key", pa.binary()), ("slot", pa.int64()),
    ("version", pa.int64()), ("kill", pa.int64()), ("pending", pa.bool_()), ("due", pa.int64()),
    ("target", pa.string()),
])  # fmt: skip


def test_a_word_that_met_a_row_says_so_and_no_other(tmp_path: Path) -> None:
    """What met none is not looked for in the commit: a wrong word of it would leave an old row pending."""
    rows = [
        *[(TOPIC, 0, key, fold.WORD, 1, -1, True, 9, "t") for key in (b"over", b"again", b"")],
        (TOPIC, 1, b"new", fold.WORD, 1, -1, True, 9, "t"),
        ("other", 0, b"new", fold.WORD, 1, -1, True, 9, "t"),
        (TOPIC, 0, b"new", 3, 3, -1, False, None, None),  # garbage of that key is no word
        (TOPIC, 0, b"dead", fold.WORD, 1, 4, False, None, None),
    ]
    book = str(tmp_path / "book")
    write_deltalake(book, pa.Table.from_pylist([dict(zip(_BOOK.names, row, strict=True)) for row in rows], _BOOK))
    stretches = [Stretch(TOPIC, partition, 5, 99, 5, TOPIC_ID, "etf1") for partition in (0, 1)]
    first, second = (fold.Fold(stretch) for stretch in stretches)
    first.take([
        record(5, b"over", None, []), record(6, b"again", b"w", schedule()), record(7, b"new", b"w", schedule()),
        record(8, b"gone", b"w", schedule()), record(9, b"gone", None, []), record(10, None, b"?", []),
        record(11, b"dead", b"w", schedule()),
    ])  # fmt: skip
    second.take([record(5, b"new", b"w", schedule()), record(6, b"over", b"w", schedule())])
    asked = [first.keys(), second.keys()]
    found = known.found(book, 0, list(zip(stretches, asked, strict=True)), str(tmp_path))
    met = []
    for folding, keys, mine in zip((first, second), asked, found, strict=True):
        news = pa.Table.from_batches(folding.news(keys, mine), fold.NEWS).to_pylist()
        met.append({row["key"] if row["slot"] == fold.WORD else row["slot"]: row["met"] for row in news})
    assert met == [
        {b"over": True, b"again": True, b"new": False, b"gone": False, b"": True, b"dead": True, 10: None},
        {b"new": True, b"over": False},
    ]
