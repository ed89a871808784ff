"""Pages: everything due before the horizon and every marked row, each in its shard's file, sorted, from one version."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from logs import DUE, TOPIC, TOPIC_ID, Listed, record, schedule
from pyspark.sql import SparkSession

from almanac import words
from almanac.book import pages, table

HORIZON = (DUE + 50) * 1000


def fill(book: table.Book, partitions: int = 4, each: int = 20) -> None:
    """In each partition: schedules due at 0, 5, 10 ... seconds, one adrift, one cancelled, one garbage."""
    records = []
    for p in range(partitions):
        records += [record(n, b"%d" % n, b"v", schedule(DUE + 5 * ((n * 7) % each)), p) for n in range(each)]
        records.append(record(each, b"garbage", b"v", [], p))
        records.append(record(each + 1, b"adrift", b"v", schedule(DUE + 1_000_000), p))
        records.append(record(each + 2, b"adrift", None, words.acknowledgement(0, TOPIC_ID), p))
        records.append(record(each + 3, b"0", None, [], p))
    ends = {(TOPIC, p): each + 4 for p in range(partitions)}
    book.take(Listed(records), ends, {TOPIC: "etf1"}, {TOPIC: TOPIC_ID}, whole=True)


def rows(spec: pages.PageSpec, shard: int) -> list[dict[str, Any]]:
    files = list(Path(spec.folder(shard)).glob("*.parquet"))
    assert len(files) == 1, "one file per shard"
    return [row for batch in pq.ParquetFile(files[0]).iter_batches() for row in batch.to_pylist()]


def test_a_page_holds_what_is_due_sorted_by_shard(book: table.Book, spark: SparkSession, tmp_path: Path) -> None:
    fill(book)
    spec = pages.write(spark, book, 12, HORIZON, 3, [TOPIC], str(tmp_path / "pages"))
    assert pages.PageSpec.from_json(spec.to_json()) == spec
    assert spec.offsets == {(TOPIC, p): 24 for p in range(4)}
    for shard in range(3):
        found = rows(spec, shard)
        assert {row["partition"] for row in found} == {p for p in range(4) if pages.shard_of(p, 3) == shard}
        marks = [row["mark"] for row in found if row["mark"] is not None]
        assert [row["mark"] for row in found[: len(marks)]] == marks, "marked rows come first"
        partitions = 2 if shard == 0 else 1
        assert sorted(marks) == ["adrift"] * partitions + ["garbage"] * partitions
        plain = [(row["due"], row["version"]) for row in found[len(marks) :]]
        assert plain == sorted(plain)
        assert max(plain)[0] < HORIZON
        assert len(plain) == 9 * partitions, "ten are due before the horizon, one of them is cancelled"


def test_a_page_is_of_the_version_it_pinned(book: table.Book, spark: SparkSession, tmp_path: Path) -> None:
    fill(book, partitions=1)
    before = book.position()
    cancel = Listed([record(24, b"3", None, [])])
    book.take(cancel, {(TOPIC, 0): 25}, {TOPIC: "etf1"}, {TOPIC: TOPIC_ID}, whole=True)
    then = pages.select(spark, book, before.version, HORIZON, 1, [TOPIC]).where("mark IS NULL").count()
    now = pages.select(spark, book, book.position().version, HORIZON, 1, [TOPIC]).where("mark IS NULL").count()
    assert (then, now) == (9, 8)
    spec = pages.write(spark, book, 1, HORIZON, 1, [TOPIC], str(tmp_path))
    assert spec.offsets == {(TOPIC, 0): 25}


def test_an_empty_page_and_a_topic_that_left(book: table.Book, spark: SparkSession, tmp_path: Path) -> None:
    empty = pages.write(spark, book, 1, HORIZON, 2, [TOPIC], str(tmp_path))
    fill(book, partitions=1)
    other = pages.write(spark, book, 2, HORIZON, 2, ["another"], str(tmp_path))
    for spec in (empty, other):
        assert Path(spec.path).is_dir()
        assert not list(Path(spec.path).rglob("*.parquet"))
        assert spec.offsets == {}


def test_old_pages_are_removed(book: table.Book, spark: SparkSession, tmp_path: Path) -> None:
    first, second, third = (pages.write(spark, book, n, HORIZON, 2, [TOPIC], str(tmp_path)) for n in (1, 2, 3))
    pages.remove(first)
    assert not Path(first.path).exists()
    pages.remove_others(str(tmp_path), keep=[third])
    assert (Path(second.path).exists(), Path(third.path).exists()) == (False, True)


def test_the_plan_has_one_exchange_and_one_sort(book: table.Book, spark: SparkSession) -> None:
    """The rows go to their shard once, and writing by shard asks for no order of its own."""
    fill(book, partitions=1)
    statement = pages.select(spark, book, book.position().version, HORIZON, 2, [TOPIC])
    statement.createOrReplaceTempView("almanac_page")
    plan = statement.sparkSession.sql("EXPLAIN SELECT * FROM almanac_page").collect()[0][0]
    assert (plan.count("Exchange"), plan.count("Sort ")) == (1, 1)
    assert "shufflepartitionidpassthrough" in plan.lower()
