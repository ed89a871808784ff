"""What waits, from a book and the log behind it: which book is used at all (rule 10)."""

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tails import take
from typer.testing import CliRunner
from waiting import until

from almanac import errors, kafka, live, scan, topics
from almanac.book import read, search, trust
from almanac.cli import app
from almanac.desk import shapes, sight, view
from almanac.ports import Source
from almanac.record import Record
from almanac.settings import Settings

TOPIC, PLACE, DAY = "schedules", ("schedules", 0), 86_400_000
HEADERS: list[tuple[str, bytes | None]] = [("scheduler-epoch", b"1893456000"), ("scheduler-target-topic", b"mails")]


class Log:
    """One partition, as Kafka would show it."""

    def __init__(self) -> None:
        self.id, self.start, self.end, self.delete_retention_ms = "id-1", 0, 10, DAY
        self.records = [Record(TOPIC, 0, 3, 0, b"logged", b"x", HEADERS)]

    def follow(self, heard: live.Live, starts: Mapping[Source, int], topic_ids: Mapping[str, str], *_: object) -> Any:
        """As if the tail had been read to its end."""
        heard._base, heard._positions = dict(starts), dict(starts)
        heard._topic_ids = dict(topic_ids)
        take(heard, [record for record in self.records if record.offset >= starts.get(PLACE, 0)])
        return live.Reading(heard._readings, starts)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    log = Log()
    monkeypatch.setattr(kafka, "admin_client", lambda _: None)
    monkeypatch.setattr(topics, "topic_ids", lambda *_: {TOPIC: log.id})
    monkeypatch.setattr(topics, "delete_retention_ms", lambda *_: {TOPIC: log.delete_retention_ms})
    monkeypatch.setattr(scan, "partitions", lambda *_: [PLACE])
    monkeypatch.setattr(scan, "bounds", lambda *_: ({PLACE: log.start}, {PLACE: log.end}))
    monkeypatch.setattr(scan, "ends", lambda *_: {PLACE: log.end})
    monkeypatch.setattr(live.Live, "follow", lambda heard, *told: log.follow(heard, *told))
    return log


def write_book(folder: Path, schema_version: str = trust.SCHEMA_VERSION, since: int | None = None) -> None:
    """A book that stands at offset 10 and knows one schedule."""
    header = pa.struct([("name", pa.string()), ("value", pa.binary())])
    numbers = ("slot", "version", "kill", "due", "wake", "timestamp", "last_offset")
    texts = ("target", "topic_id")
    schema = pa.schema(
        [("topic", pa.string()), ("partition", pa.int32()), ("key", pa.binary()), ("value", pa.binary())]
        + [(name, pa.int64()) for name in numbers]
        + [(name, pa.string()) for name in texts]
        + [("pending", pa.bool_()), ("headers", pa.list_(header))]
    )
    word = {"key": b"booked", "slot": -1, "version": 2, "kill": -1, "due": 1, "wake": 1, "timestamp": 0, "value": b"x"}
    stand = {"key": b"", "slot": -2, "version": 10, "kill": -1, "last_offset": 10, "topic_id": "id-1"}
    stand["timestamp"] = int(time.time() * 1000) if since is None else since
    rows: list[dict[str, Any]] = [{**word, "pending": True, "target": "mails"}, {**stand, "pending": False}]
    path = str(folder / "scheduler-cg" / "book")
    write_deltalake(path, pa.Table.from_pylist([{"topic": TOPIC, "partition": 0, **row} for row in rows], schema))
    DeltaTable(path).alter.set_table_properties({"almanac.schema": schema_version}, raise_if_not_exists=False)


def ids(folder: Path, notes: list[str]) -> list[bytes]:
    seen = sight.Sight(Settings(book_location=str(folder)))
    rows = seen.page(shapes.Query(limit=10)).rows
    notes += [why] if (why := seen.note()) is not None else []
    return [row.id for row in rows]


def test_a_good_book_is_used(log: Log, tmp_path: Path) -> None:
    write_book(tmp_path)
    notes: list[str] = []
    log.end = 12
    log.records.append(Record(TOPIC, 0, 11, 0, b"later", b"x", HEADERS))
    assert ids(tmp_path, notes) == [b"booked", b"later"]
    assert notes == []


def test_without_a_book_the_log_is_read(log: Log, tmp_path: Path) -> None:
    notes: list[str] = []
    assert ids(tmp_path, notes) == [b"logged"]
    assert notes == []


@pytest.mark.parametrize(
    ("has", "says"),
    [
        ({"id": "id-2"}, "made anew"),
        (
            {"start": 11, "end": 12, "records": [Record(TOPIC, 0, 11, 0, b"logged", b"x", HEADERS)]},
            "begins at offset 11",
        ),
        ({"end": 9}, "ends at offset 9"),
        ({"end": 11, "delete_retention_ms": 1_000}, "s old"),
    ],
)
def test_a_book_that_is_not_to_be_trusted_is_not_used(log: Log, tmp_path: Path, has: dict[str, Any], says: str) -> None:
    write_book(tmp_path, since=int(time.time() * 1000) - 60_000)
    vars(log).update(has)
    notes: list[str] = []
    assert ids(tmp_path, notes) == [b"logged"]
    (note,) = notes
    assert says in note


def test_nor_is_one_of_another_program_or_a_damaged_one(log: Log, tmp_path: Path) -> None:
    notes: list[str] = []
    write_book(tmp_path / "other", schema_version="99")
    assert ids(tmp_path / "other", notes) == [b"logged"]
    write_book(tmp_path / "files")
    for file in (tmp_path / "files").rglob("*.parquet"):
        file.unlink()
    assert ids(tmp_path / "files", notes) == [b"logged"]
    write_book(tmp_path / "log")
    for file in (tmp_path / "log").rglob("*.json"):
        file.write_text("{", encoding="ascii")
    assert ids(tmp_path / "log", notes) == [b"logged"]
    assert "schema version is 99" in notes[0]
    assert "cannot be read" in notes[1]
    assert "cannot be read" in notes[2]


def test_ls_says_so_beside_its_output(log: Log, tmp_path: Path) -> None:
    write_book(tmp_path)
    log.id = "id-2"
    result = CliRunner().invoke(app, ["ls", "--book-location", str(tmp_path), "--tz", "UTC"])
    assert result.exit_code == 0, result.output
    assert "logged" in result.stdout
    assert "note:" not in result.stdout
    assert result.stderr.startswith("note: the book is not to be trusted (topic schedules was made anew")
    assert result.stderr.count("\n") == 1


def test_a_newer_book_is_made_ready_aside(log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks meanwhile is answered by the one before, with the tail laid over it."""
    write_book(tmp_path)
    monkeypatch.setattr(view, "CHECK", 0.0)
    warming, go_on = threading.Event(), threading.Event()

    def warm(made: view.View) -> None:
        warming.set()
        go_on.wait(10)

    monkeypatch.setattr(view, "_warm", warm)
    seen = sight.Sight(Settings(book_location=str(tmp_path)))
    before = seen.look()
    path = str(tmp_path / "scheduler-cg" / "book")
    DeltaTable(path).alter.set_table_properties({"comment": "newer"}, raise_if_not_exists=False)
    assert seen.look().book is before.book
    assert warming.wait(10)
    assert seen.look().book is before.book
    go_on.set()
    until(lambda: seen.look().book is not before.book, 10, "the newer one is in use")
    after = seen.look()
    assert after.book is not None
    assert before.book is not None
    assert after.book.version > before.book.version


def test_after_a_pause_the_newest_book_is_waited_for(log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_book(tmp_path)
    monkeypatch.setattr(view, "CHECK", 0.0)
    monkeypatch.setattr(view, "STALE", 0.0)
    seen = sight.Sight(Settings(book_location=str(tmp_path)))
    before = seen.look()
    path = str(tmp_path / "scheduler-cg" / "book")
    DeltaTable(path).alter.set_table_properties({"comment": "newer"}, raise_if_not_exists=False)
    assert seen.look().book is not before.book


def test_a_version_that_comes_while_the_book_is_opened_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_book(tmp_path)
    path = str(tmp_path / "scheduler-cg" / "book")
    shelf = search.Shelf(str(tmp_path / "scheduler-cg"))
    real = read.opened

    def opened(path: str, version: int | None = None) -> DeltaTable:
        table = real(path, version)
        monkeypatch.setattr(read, "opened", real)
        DeltaTable(path).alter.set_table_properties({"comment": "newer"}, raise_if_not_exists=False)
        return table

    monkeypatch.setattr(read, "opened", opened)
    first = shelf.book().version
    assert shelf.book().version == first + 1
    assert shelf.book() is shelf.book()
    assert DeltaTable(path).version() == first + 1


def test_a_tail_that_breaks_off_meanwhile_is_told(log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not: an answer without what the tail had said."""
    write_book(tmp_path)
    seen = sight.Sight(Settings(book_location=str(tmp_path)))
    real = search.Book.search

    def breaking(*asked: Any, **more: Any) -> Any:
        with seen.live.changed:
            seen.live._end()
        return real(*asked, **more)

    assert seen.page(shapes.Query(limit=10)).rows
    monkeypatch.setattr(search.Book, "search", breaking)
    with pytest.raises(errors.Unreachable, match="ask once more"):
        seen.page(shapes.Query(limit=10))
