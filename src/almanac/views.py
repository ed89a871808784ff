"""What waits, what fired and what could not be delivered, as views for Spark SQL: `pending`, `fired`, `dead_letters`.

The queries in docs/queries.md are written for them. Each query sees the tables as they are when it runs.
"""

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from almanac import kafka, words
from almanac.book import archive, fired, fold, places, sql
from almanac.book import session as sessions
from almanac.settings import Settings

NAMES = ("pending", "fired", "dead_letters")

PENDING = """
SELECT CAST(key AS STRING) AS id, target, timestamp_millis(due) AS due, due AS due_ms,
       timestamp_millis(timestamp) AS scheduled_at, topic, partition, version, value, headers
FROM {table} WHERE slot = {word} AND pending
"""

FIRED = """
SELECT CAST(id AS STRING) AS id, target, timestamp_millis(due) AS due, timestamp_millis(fired_at) AS fired_at,
       lateness, outcome, topic, partition, version, date
FROM {table} WHERE outcome IS NOT NULL
"""

# What the record's user wrote comes first: of two headers with one name the last is ours.
_NOTE = "CAST(try_element_at(filter(headers, h -> h.key = '{name}'), -1).value AS STRING)"
DEAD_LETTERS = (
    "CAST(key AS STRING) AS id", "reason", "detail", "timestamp AS buried_at",
    "timestamp_millis(try_cast(written AS BIGINT)) AS scheduled_at", "split_part(source, '/', 1) AS topic",
    "try_cast(split_part(source, '/', 2) AS INT) AS partition",
    "try_cast(split_part(source, '/', 3) AS BIGINT) AS version", "value", "headers",
    "partition AS letter_partition", "offset AS letter_offset",
)  # fmt: skip


def session(settings: Settings) -> SparkSession:
    """A Spark session of its own on this machine, with the views. The scheduler may run or not."""
    from almanac import jars  # it may fetch them

    spark = sessions.session(settings, 0, jars.spark_jars(), archive.options())
    register(spark, settings)
    return spark


def register(spark: SparkSession, settings: Settings) -> None:
    """Makes the views known to the session. A table that is not there yet is an empty view: register again then."""
    _view(spark, "pending", f"{settings.book_folder}/book", PENDING, _BOOK)
    _view(spark, "fired", f"{settings.book_folder}/fired", FIRED, fired.COLUMNS)
    _dead_letters(spark, settings).createOrReplaceTempView("dead_letters")


# Of the book, for a view of one that is not there yet.
_BOOK = {
    "key": "BINARY", "slot": "BIGINT", "pending": "BOOLEAN", "target": "STRING", "due": "BIGINT", "timestamp": "BIGINT",
    "topic": "STRING", "partition": "INT", "version": "BIGINT", "value": "BINARY", "headers": sql.HEADERS,
}  # fmt: skip


def _view(spark: SparkSession, name: str, path: str, statement: str, columns: Mapping[str, str]) -> None:
    table = f"delta.`{path.replace('`', '``')}`"
    if not places.exists(f"{path}/_delta_log"):
        spark.createDataFrame(
            [], ", ".join(f"{each} {kind}" for each, kind in columns.items())
        ).createOrReplaceTempView(f"almanac_no_{name}")
        table = f"almanac_no_{name}"
    # As a statement, which Spark reads anew for each query: a frame would keep the version it was made of.
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {statement.format(table=table, word=fold.WORD)}")


def _dead_letters(spark: SparkSession, settings: Settings) -> DataFrame:
    reader = spark.read.format("kafka").options(**kafka.java(settings)).option("includeHeaders", "true")
    records = reader.option("subscribe", settings.dead_letters_topic).load()
    notes = {"reason": words.REASON, "detail": "almanac-detail", "source": "almanac-source",
             "written": "almanac-source-timestamp"}  # fmt: skip
    return records.selectExpr(
        "*", *(f"{_NOTE.format(name=name)} AS {column}" for column, name in notes.items())
    ).selectExpr(*DEAD_LETTERS)
