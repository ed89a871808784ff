"""What the tests with a real Spark share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from almanac import jars
from almanac.book import archive, session, table
from almanac.settings import Settings


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for all tests: to start it takes seconds."""
    settings = Settings(group_id="tests", book_location=str(tmp_path_factory.mktemp("books")))
    started = session.session(settings, 0, jars.spark_jars(), archive.options())
    yield started
    started.stop()


@pytest.fixture
def book(spark: SparkSession, tmp_path: Path) -> table.Book:
    """An empty book."""
    made = table.Book(str(tmp_path / "group"), spark)
    made.create()
    return made
