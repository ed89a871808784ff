"""A page: what falls due before a horizon, taken from one version of the book, one sorted Parquet file per shard.

Parquet and not a lazy stream from Spark: a task that reads a sort slowly holds Spark's execution memory until it ends.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from pyspark.sql import DataFrame, SparkSession

from almanac.book import places, sql, stretch, table

ROW_GROUP = 4 << 20  # bytes: what a wheel holds of its page at a time

# The statement of a page, with the book's version and the horizon filled in. Marked rows (`wake` -1) come with every
# page: adrift ones to be repeated (rule 4), garbage to be disposed of (rule 5).
PAGE = """
SELECT partition % {shards} AS shard,
       CASE WHEN slot >= 0 THEN 'garbage' WHEN adrift THEN 'adrift' END AS mark,
       topic, partition, key, version, kill, due, timestamp, value, headers, pending, reason, last_kind, slot
FROM {book} VERSION AS OF {version}
WHERE wake < {horizon} AND topic IN ({topics})
"""


@dataclass(frozen=True, kw_only=True)
class PageSpec:
    """A page as the driver announces it to the wheels."""

    number: int
    path: str
    version: int  # of the book
    offsets: dict[stretch.Partition, int]  # where the live tail takes over
    horizon: int  # epoch ms: everything due before it is in the page
    shards: int
    made: int  # epoch ms

    def to_json(self) -> str:
        fields: dict[str, Any] = asdict(self)
        fields["offsets"] = [[topic, partition, offset] for (topic, partition), offset in self.offsets.items()]
        return json.dumps(fields)

    @classmethod
    def from_json(cls, text: str) -> Self:
        fields = json.loads(text)
        fields["offsets"] = {(topic, partition): offset for topic, partition, offset in fields["offsets"]}
        return cls(**fields)

    def folder(self, shard: int) -> str:
        """Where the shard's file is; missing if the shard has no rows."""
        return f"{self.path}/shard={shard}"


def shard_of(partition: int, shards: int) -> int:
    """Which wheel a source partition belongs to, in Python as in SQL."""
    return partition % shards


def select(
    spark: SparkSession,
    book: table.Book,
    version: int,
    horizon: int,
    shards: int,
    topics: Sequence[str],
) -> DataFrame:
    """The page's rows, each in its shard's task, in the order in which the wheel wants them."""
    statement = PAGE.format(
        shards=shards, book=book.table, version=version, horizon=horizon,
        topics=", ".join(sql.literal(topic) for topic in topics) or "NULL",
    )  # fmt: skip
    rows = spark.sql(statement).repartitionById(shards, "shard")
    return rows.sortWithinPartitions("shard", rows.mark.isNull(), "due", "version")


def write(
    spark: SparkSession,
    book: table.Book,
    number: int,
    horizon: int,
    shards: int,
    topics: Sequence[str],
    root: str,
) -> PageSpec:
    """Writes page `number` below `root`. The name holds the time too: a page that was read once never changes."""
    made = int(time.time() * 1000)
    position = book.position()
    path = f"{root.rstrip('/')}/{number}-{made}"
    spark.sparkContext.setJobGroup("almanac page", f"almanac page {number}")
    rows = select(spark, book, position.version, horizon, shards, topics)
    writer = rows.write.partitionBy("shard").option("parquet.block.size", ROW_GROUP).option("compression", "snappy")
    writer = writer.option("maxRecordsPerFile", 0)  # one file a shard
    try:
        writer.mode("overwrite").parquet(path)
    except Exception:
        places.remove(path)  # a full disk must not get fuller with each try
        raise
    offsets = {each: offset for each, offset in position.offsets.items() if each[0] in topics}
    return PageSpec(
        number=number, path=path, version=position.version, offsets=offsets, horizon=horizon, shards=shards, made=made
    )


def remove(spec: PageSpec) -> None:
    """Deletes the page's files. Only when no wheel reads it any more."""
    places.remove(spec.path)


def remove_others(root: str, keep: Sequence[PageSpec]) -> None:
    """Deletes every page below `root` but these: what earlier runs left behind."""
    kept = {spec.path.rpartition("/")[2] for spec in keep}
    for name in places.names(root):
        if name not in kept:
            places.remove(f"{root.rstrip('/')}/{name}")
