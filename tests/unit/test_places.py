"""Folders on whatever file system."""

from pathlib import Path

import pytest
from pyarrow import fs

from almanac.book import places
from almanac.parquet import ParquetPage


def test_arrow_knows_s3_by_another_name_than_hadoop() -> None:
    # With a region nobody is asked for it.
    system, path = places.at("s3a://bucket/book?region=eu-west-1")
    assert (system.type_name, path) == ("s3", "bucket/book")


def test_a_path_is_a_path(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    assert places.names(str(tmp_path)) == ["a"]
    assert places.exists(str(tmp_path / "a"))


def test_pages_are_found_as_the_book_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def at(path: str) -> tuple[fs.FileSystem, str]:
        asked.append(path)
        return fs.LocalFileSystem(), str(tmp_path / "shard=0")

    monkeypatch.setattr(places, "at", at)
    assert ParquetPage("s3a://bucket/pages/1/shard=0").rows == 0
    assert asked == ["s3a://bucket/pages/1/shard=0"]
