"""The book and what only karafka has: schedules with a null payload, and records of the future."""

import sys
from collections.abc import Iterator

import logs
from logs import DUE, TOPIC, TOPIC_ID, Listed, record
from pyspark import cloudpickle
from pyspark.sql import Row

from almanac import words
from almanac.book import fold, read, stretch, table
from almanac.formats import karafka
from almanac.record import Headers, Record

KARAFKA = {TOPIC: "karafka"}
PLACE = (TOPIC, 0)


def headers(version: bytes = b"1.0.0", kind: bytes = b"schedule", due: int = DUE) -> Headers:
    when = b"%d" % due
    said = {"schema_version": version, "source_type": kind, "target_epoch": when, "target_topic": b"target"}
    return [(f"schedule_{name}", value) for name, value in said.items()]


def take(
    book: table.Book, records: list[Record], end: int, since_ms: int = 1, log: type[Listed] = Listed
) -> stretch.Offsets:
    taken = book.take(log(records), {PLACE: end}, KARAFKA, {TOPIC: TOPIC_ID}, whole=True, since_ms=since_ms)
    return taken.cut.halted


class Upgraded(Listed):
    """Who reads this log understands the next schema."""

    def read(self, stretch: stretch.Stretch) -> Iterator[list[Record]]:
        known, karafka.KNOWN = karafka.KNOWN, (1, 1, 0)
        try:
            yield from super().read(stretch)
        finally:
            karafka.KNOWN = known


# Spark's tasks do not have this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # not typed there


def rows(book: table.Book) -> list[Row]:
    alive = f"slot = {fold.WORD} AND wake IS NOT NULL"
    return book.spark.sql(f"SELECT * FROM {book.table} WHERE {alive} ORDER BY key").collect()


def test_a_null_payload_is_adrift_until_its_repeat_is_in_the_log(book: table.Book) -> None:
    take(book, [record(0, b"a", None, headers())], 1)
    (row,) = rows(book)
    assert (row.pending, row.adrift, row.wake, row.value, row.due) == (True, True, -1, None, DUE * 1000)
    ours = [*words.repeat(0, logs.SINCE, TOPIC_ID), (words.NULL, b"true")]
    take(book, [record(1, b"a", b"", [*headers(), *ours])], 2)
    (row,) = rows(book)
    assert (row.pending, row.adrift, row.wake, row.value) == (True, False, DUE * 1000, None)


def test_a_null_payload_of_which_only_the_repeat_is_left(book: table.Book) -> None:
    ours = [*words.repeat(3, 7, TOPIC_ID), (words.NULL, b"true")]
    take(book, [record(9, b"a", b"", [*headers(), *ours])], 10)
    (row,) = rows(book)
    assert (row.pending, row.adrift, row.version, row.value, row.timestamp) == (True, False, 3, None, 7)
    assert [(h.name, bytes(h.value)) for h in row.headers] == headers()
    (waiting,) = read.Reader(book.folder).pending()
    assert waiting.value is None


def test_daily_counts_and_versions(book: table.Book) -> None:
    said = [record(n, b"%d" % n, b"v", headers(due=DUE + n * 40_000)) for n in range(4)]
    take(book, [*said, record(4, b"0", None, headers(kind=b"cancel"))], 5)
    reader = read.Reader(book.folder)
    day = DUE // 86_400
    assert reader.daily(TOPIC) == {(0, day): 2, (0, day + 1): 1}
    assert reader.daily("another") == {}
    assert reader.versions(TOPIC, [b"0", b"1", b"unknown"]) == {(0, b"1"): (1, (DUE + 40_000) * 1000)}


def test_a_partition_is_taken_up_to_a_record_of_the_future_and_goes_on_after_an_upgrade(
    book: table.Book,
) -> None:
    log = [
        record(0, b"a", b"v", headers()),
        record(1, b"b", b"v", headers(b"1.1.0")),
        record(2, b"c", b"v", headers()),
        record(3, b"a", None, headers(kind=b"cancel")),
    ]
    assert take(book, log, 4, since_ms=1_000) == {PLACE: 1}
    assert book.offsets() == {PLACE: 1}
    assert [bytes(row.key) for row in rows(book)] == [b"a"], "what follows the record may say anything of it"
    take(book, log, 4, since_ms=2_000)
    assert book.position().since == {PLACE: 1_000}, "it does not stand where the log ends: it ages"
    # as the stream goes on: it does not read the record again
    known = book.take(Listed([]), {PLACE: 1}, KARAFKA, {TOPIC: TOPIC_ID}, whole=True, since_ms=2_500, halted={PLACE: 1})
    assert (known.cut.halted, book.position().since) == ({PLACE: 1}, {PLACE: 1_000})
    assert take(book, log, 4, 3_000, Upgraded) == {}
    assert [bytes(row.key) for row in rows(book)] == [b"b", b"c"]
    assert (book.offsets(), book.position().since) == ({PLACE: 4}, {PLACE: 3_000})
