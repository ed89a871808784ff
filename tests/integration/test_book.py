"""The book's fold is the wheel's, whatever the batches; its offsets guard it (rule 10)."""

import random
from pathlib import Path
from typing import Any

import logs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from logs import DUE, TOPIC, TOPIC_ID, Listed, record, schedule
from pyspark.sql import SparkSession

from almanac import errors, words
from almanac.book import fold, read, session, spans, table
from almanac.record import Record

IDS = {TOPIC: TOPIC_ID}
ETF1 = {TOPIC: "etf1"}


def take(book: table.Book, records: list[Record], end: int, *, whole: bool = True, **options: Any) -> None:
    book.take(Listed(records), {(TOPIC, 0): end}, ETF1, IDS, whole=whole, **options)


def rows(book: table.Book) -> list[dict[str, Any]]:
    """What is not over."""
    alive = f"slot <> {fold.OFFSET} AND wake IS NOT NULL"
    found = book.spark.sql(f"SELECT * FROM {book.table} WHERE {alive} ORDER BY key, slot").collect()
    return [row.asDict(recursive=True) for row in found]


def pending(book: table.Book) -> dict[bytes, int]:
    return {bytes(row["key"]): row["version"] for row in rows(book) if row["pending"]}


def truth(book: table.Book) -> logs.Truth:
    found = logs.Truth()
    for row in rows(book):
        key = (row["partition"], bytes(row["key"] or b""))
        if row["slot"] >= 0:
            found.garbage.add((row["partition"], row["slot"]))
        if row["pending"]:
            headers = [(h["name"], None if h["value"] is None else bytes(h["value"])) for h in row["headers"]]
            value = bytes(row["value"])
            original = Record(TOPIC, key[0], row["version"], row["timestamp"], key[1], value, headers)
            found.pending[key] = (original, row["due"])
        if row["adrift"]:
            found.adrift.add(key)
    return found


# The fold


@pytest.mark.timeout(600)
@settings(max_examples=1, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 32), batches=st.integers(1, 4), wholes=st.integers(0, 15))
def test_the_fold_equals_the_statement_of_the_rules(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, seed: int, batches: int, wholes: int
) -> None:
    """Two hundred logs at once, one per partition, each cut at random; a Spark job costs more than its rows."""
    chance = random.Random(seed)
    all_logs = {p: logs.log(chance, p, chance.randint(1, 14)) for p in range(200)}
    book = table.Book(str(tmp_path_factory.mktemp("group")), spark)
    book.create()
    cuts = {p: [*sorted(chance.randint(0, 30) for _ in range(batches - 1)), 40] for p in all_logs}
    for batch in range(batches):
        ends = {(TOPIC, p): cuts[p][batch] for p in all_logs}
        # a replayed batch begins before the book's offsets: what lies below them is dropped
        heard = [r for p, each in all_logs.items() for r in each if r.offset < ends[TOPIC, p]]
        book.take(Listed(heard), ends, ETF1, IDS, whole=bool(wholes >> batch & 1))
    assert truth(book) == logs.truth(r for each in all_logs.values() for r in each)


# Rule 10


@pytest.mark.rule(10)
def test_a_replayed_batch_does_not_raise_the_dead(book: table.Book) -> None:
    said = [record(0, b"a", b"v", schedule()), record(1, b"b", b"v", schedule())]
    over = record(2, b"a", None, words.acknowledgement(0, TOPIC_ID))
    take(book, said, 2)
    take(book, [over], 4)
    assert pending(book) == {b"b": 1}
    take(book, said, 2)  # the checkpoint was older than the book
    assert pending(book) == {b"b": 1}
    take(book, [*said, over], 4)  # an overlap
    assert pending(book) == {b"b": 1}
    assert book.offsets() == {(TOPIC, 0): 4}


@pytest.mark.rule(10)
def test_a_second_writer_makes_a_batch_begin_again(book: table.Book, monkeypatch: pytest.MonkeyPatch) -> None:
    said, over = record(0, b"a", b"v", schedule()), record(1, b"a", None, words.acknowledgement(0, TOPIC_ID))
    take(book, [record(0, b"x", b"v", schedule())._replace(offset=0)], 0)  # a partition at offset 0
    stale, attempts = book.position(), []
    take(book, [said, over], 2)  # the other writer: fired and forgotten

    def position() -> read.Position:
        attempts.append(1)
        return stale if len(attempts) <= 2 else table.Book.position(book)  # as if the other came at the last moment

    monkeypatch.setattr(book, "position", position)
    take(book, [said], 1)
    assert len(attempts) == 6  # three looks in each of two attempts: Delta left the first one out by its number
    assert pending(book) == {}
    assert table.Book.position(book).offsets == {(TOPIC, 0): 2}


@pytest.mark.rule(10)
def test_a_batch_that_was_cut_before_the_book_was_built_anew_begins_again(book: table.Book) -> None:
    said = [record(0, b"a", b"v", schedule()), record(1, b"b", b"v", schedule())]
    take(book, said, 1)
    seen: list[int] = []

    def anew(_: object) -> None:
        if not seen:
            book.drop()
            book.create()
        seen.append(1)

    take(book, said, 2, before=anew)
    assert len(seen) == 2
    assert pending(book) == {b"a": 0, b"b": 1}


@pytest.mark.rule(10)
def test_a_batch_that_was_cut_before_a_topic_left_begins_again(book: table.Book) -> None:
    """Else its offsets would come back without its rows."""
    said = [record(offset, b"%d" % offset, b"v", schedule())._replace(topic="another") for offset in range(2)]
    forms, ids = {TOPIC: "etf1", "another": "etf1"}, {**IDS, "another": "another"}
    seen: list[int] = []

    def left(_: object) -> None:
        seen.append(1)
        if len(seen) == 2:
            book.keep_only([TOPIC])

    for end in (1, 2):
        book.take(Listed(said), {(TOPIC, 0): 0, ("another", 0): end}, forms, ids, whole=True, before=left)
    assert len(seen) == 3
    assert pending(book) == {b"0": 0, b"1": 1}


def test_a_folder_with_a_name_like_a_pattern(spark: SparkSession, tmp_path: Path) -> None:
    book = table.Book(str(tmp_path / "a[1]{b}*?"), spark)
    book.create()
    take(book, [record(0, b"a", b"v", schedule())], 1)
    assert pending(book) == {b"a": 0}
    assert not list(Path(book.folder, "batches").iterdir()), "what was taken is gone"


def test_a_late_repeat_does_not_raise_the_dead(book: table.Book) -> None:
    take(book, [record(0, b"a", b"v", schedule())], 1)
    take(book, [record(1, b"a", None, words.acknowledgement(0, TOPIC_ID))], 2)
    assert rows(book) == []
    late = record(2, b"a", b"v", [*schedule(), *words.repeat(0, logs.SINCE, TOPIC_ID)])
    take(book, [late], 3)
    (row,) = rows(book)
    assert (row["pending"], row["adrift"], row["kill"], row["wake"]) == (False, True, 0, -1)
    take(book, [record(3, b"a", None, words.repeat(0, None, TOPIC_ID))], 4)
    assert rows(book) == []


def test_a_repeat_whose_original_the_cleaner_took_is_a_word(book: table.Book) -> None:
    take(book, [], 8, whole=False)  # the first part of a rebuild: the log goes on
    take(book, [record(9, b"a", b"v", [*schedule(), *words.repeat(5, 7, TOPIC_ID)])], 10)
    (row,) = rows(book)
    assert (row["pending"], row["adrift"], row["version"], row["timestamp"]) == (True, False, 5, 7)


def test_the_offset_moves_without_records(book: table.Book) -> None:
    take(book, [], 3)
    take(book, [], 7)  # markers and aborted records only
    assert book.offsets() == {(TOPIC, 0): 7}


# Trust


def test_when_the_book_is_not_trusted(book: table.Book, spark: SparkSession) -> None:
    where = (TOPIC, 0)
    starts, ends, day = {where: 0}, {where: 10}, {TOPIC: 86_400_000}
    take(book, [record(0, b"a", b"v", schedule())], 10, since_ms=1_000)
    assert book.distrust(IDS, starts, ends, day, now_ms=86_400_000) is None
    assert book.distrust(IDS, starts, ends, day, now_ms=1 << 50) is None, "nothing was written since: any age is good"
    reasons = {
        "old": book.distrust(IDS, starts, {where: 11}, day, now_ms=86_402_000),
        "made anew": book.distrust({TOPIC: "other"}, starts, ends, day),
        "begins at offset 11": book.distrust(IDS, {where: 11}, {where: 11}, day),
        "ends at offset 9": book.distrust(IDS, starts, {where: 9}, day),
    }
    for text, reason in reasons.items():
        assert text in (reason or "")
    spark.sql(f"ALTER TABLE {book.table} SET TBLPROPERTIES ('almanac.schema' = '99')")
    assert "schema version is 99" in (book.distrust(IDS, starts, ends, day) or "")


@pytest.mark.parametrize("how", ["missing", "truncated", "log"])
def test_a_damaged_book_is_not_trusted(book: table.Book, how: str) -> None:
    take(book, [record(0, b"a", b"v", schedule())], 1)
    for file in Path(book.path).glob("*.parquet"):
        file.unlink() if how == "missing" else file.write_bytes(file.read_bytes()[:100]) if how == "truncated" else None
    if how == "log":
        for file in (Path(book.path) / "_delta_log").glob("*.json"):
            file.write_text("{")
    for checksum in Path(book.path).rglob(".*.crc"):
        checksum.unlink()
    reason = book.distrust(IDS, {}, {}, {})
    assert "cannot be read" in (reason or "")
    book.drop()
    assert book.distrust(IDS, {}, {}, {}) == "there is none yet"
    book.create()
    assert book.offsets() == {}


def test_a_topic_that_left_takes_its_rows_along(book: table.Book) -> None:
    take(book, [record(0, b"a", b"v", schedule())], 1)
    book.keep_only([TOPIC])
    assert pending(book) == {b"a": 0}
    book.keep_only(["another"])
    assert rows(book) == []
    assert book.offsets() == {}


def test_a_tidy_book_is_in_order_of_due_times(book: table.Book, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever wants what is due in a while reads few of its files."""
    dues = random.Random(1).sample(range(DUE, DUE + 100_000), 6_000)
    words = [record(n, b"%d" % n, b"v", schedule(due)) for n, due in enumerate(dues)]
    monkeypatch.setattr(table, "FILE_ROWS", 500)
    take(book, words[:5_900], 5_900)
    take(book, words[5_900:], 6_000)
    most = "spark.sql.files.maxRecordsPerFile"
    usual = book.spark.conf.get(most)
    book.tidy()
    assert book.spark.conf.get(most) == usual  # the session may be a caller's
    files = spans.of(read.opened(book.path), table.CLUSTER)
    assert len(files) >= 12
    for due in range(DUE + 5_000, DUE + 100_000, 5_000):
        assert sum(each.least <= due * 1000 <= each.greatest for each in files) <= 2


def test_tidying_changes_nothing(book: table.Book) -> None:
    for offset in range(3):
        take(book, [record(offset, b"%d" % offset, b"v", schedule())], offset + 1)
    before = rows(book)
    book.tidy()
    assert rows(book) == before


def test_what_is_over_is_forgotten_when_the_book_is_put_in_order(book: table.Book) -> None:
    over = f"SELECT count(*) FROM {book.table} WHERE slot <> {fold.OFFSET} AND wake IS NULL"

    def dead() -> int:
        return int(book.spark.sql(over).collect()[0][0])

    take(book, [record(0, b"a", b"v", schedule()), record(1, b"b", b"v", []), record(2, b"c", b"v", schedule())], 3)
    disposed = record(4, b"b", None, words.disposal(1, TOPIC_ID))
    take(book, [record(3, b"a", None, words.acknowledgement(0, TOPIC_ID)), disposed], 5, whole=False)
    assert (pending(book), dead()) == ({b"c": 2}, 2)
    book.tidy()
    assert dead() == 2, "the log goes on: a repeat may come that must not raise them"
    take(book, [], 6)
    book.tidy()
    assert (pending(book), dead()) == ({b"c": 2}, 0)


def test_what_comes_and_goes_within_a_batch_is_no_row(book: table.Book) -> None:
    take(book, [record(0, b"a", b"v", schedule()), record(1, b"b", b"v", schedule())], 2)
    take(book, [
        record(2, b"new", b"v", schedule()), record(3, b"new", None, []),  # the book never knew of it
        record(4, b"c", b"v", schedule()),
        record(5, b"a", b"w", schedule()), record(6, b"a", None, words.acknowledgement(5, TOPIC_ID)),
        record(7, b"b", b"w", schedule()),
    ], 8)  # fmt: skip
    rows = book.spark.sql(f"SELECT key, pending, met FROM {book.table} WHERE slot = {fold.WORD}").collect()
    found = {bytes(row.key): (row.pending, row.met) for row in rows}
    assert found == {b"a": (False, True), b"b": (True, True), b"c": (True, False)}
    assert len(rows) == len(found), "whoever met a row took its place"


# Reads for people


def test_people_read_without_spark(book: table.Book) -> None:
    keys = (b"late", b"soon", b"\x00'\xff")
    said = [record(n, key, b"v%d" % n, schedule(DUE + 10 - n)) for n, key in enumerate(keys)]
    take(book, [*said, record(3, b"bad", b"v", [])], 4)
    reader = read.Reader(book.folder)
    assert reader.count() == 3
    assert [row.id for row in reader.pending(limit=2)] == [b"\x00'\xff", b"soon"]
    (found,) = reader.find(b"\x00'\xff")
    assert (found.due, found.value, found.headers, found.target) == ((DUE + 8) * 1000, b"v2", said[2].headers, "target")
    assert reader.find(b"nobody") == []
    assert reader.offsets() == {(TOPIC, 0): 4}


def test_a_missing_book_is_said_clearly(tmp_path: Path) -> None:
    with pytest.raises(read.NoBook, match="when the scheduler runs for the first time"):
        read.Reader(str(tmp_path))


# The session


def test_a_hostile_session_is_refused(spark: SparkSession) -> None:
    session.check(spark)
    other = spark.newSession()
    other.conf.set("spark.sql.execution.pyspark.udf.killOnIdleTimeout", "true")
    with pytest.raises(errors.UsageError, match="killOnIdleTimeout"):
        session.check(other)
