"""The book and the topics that tell what became of it, as SQL views: `pending`, `fired`, `dead_letters`."""

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from almanac.book import table

# Of several headers with one name the first counts, as everywhere.
_HEADER = "CAST(get(headers.value, CAST(array_position(headers.key, '{0}') - 1 AS INT)) AS STRING)"


def create(
    spark: SparkSession, book: table.Book, kafka: Mapping[str, str], history_topic: str, dead_letters_topic: str
) -> None:
    """Makes the session's temporary views. `kafka`: the clients' Java properties. An empty topic makes no view."""
    spark.sql(f"""
        CREATE OR REPLACE TEMPORARY VIEW pending AS
        SELECT topic, partition, key AS id, timestamp_millis(due) AS due, target, value, headers, version AS offset,
               timestamp_millis(timestamp) AS timestamp
        FROM {book.table} WHERE pending""")
    if history_topic:
        _topic(spark, kafka, history_topic).selectExpr(
            f"{_HEADER.format('almanac-id')} AS id", f"{_HEADER.format('almanac-target')} AS target",
            f"timestamp_millis(CAST({_HEADER.format('almanac-due-ms')} AS BIGINT)) AS due", "timestamp AS fired",
            f"{_HEADER.format('almanac-source')} AS source", "key", "value", "headers",
        ).createOrReplaceTempView("fired")  # fmt: skip
    if dead_letters_topic:
        _topic(spark, kafka, dead_letters_topic).selectExpr(
            "key AS id", f"{_HEADER.format('almanac-reason')} AS reason",
            f"{_HEADER.format('almanac-detail')} AS detail",
            f"{_HEADER.format('almanac-source')} AS source", "timestamp", "value", "headers",
        ).createOrReplaceTempView("dead_letters")  # fmt: skip


def _topic(spark: SparkSession, kafka: Mapping[str, str], topic: str) -> DataFrame:
    reader = spark.read.format("kafka").option("subscribe", topic).option("includeHeaders", "true")
    for key, value in {**kafka, "isolation.level": "read_committed"}.items():
        reader = reader.option(f"kafka.{key}", value)
    return reader.load()
