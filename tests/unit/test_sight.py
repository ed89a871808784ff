"""Lists, totals and counts: the book with the tail laid over it is what the whole log says, page by page."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from tails import ID, SOURCE, TOPIC, cancel, take, tombstone

from almanac.book import search
from almanac.desk import shapes, sight, view
from almanac.desk.front import Front
from almanac.record import Headers, Record
from almanac.settings import Settings

HOUR = 3_600_000
HEADER = pa.struct([("name", pa.string()), ("value", pa.binary())])
SCHEMA = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("key", pa.binary()), ("value", pa.binary())]
    + [(name, pa.int64()) for name in ("slot", "version", "kill", "due", "timestamp", "wake", "last_offset")]
    + [("target", pa.string()), ("topic_id", pa.string()), ("pending", pa.bool_()), ("headers", pa.list_(HEADER))]
)


def schedule(offset: int, key: bytes, due: int, target: str) -> Record:
    headers: Headers = [("scheduler-epoch-ms", b"%d" % due), ("scheduler-target-topic", target.encode())]
    return Record(TOPIC, 0, offset, due, key, b"payload %d" % offset, headers)


class World:
    """A log of many schedules, updates, cancels and fires; a book of its first part; a sight of both."""

    def __init__(self, folder: Path, seed: int, size: int = 400) -> None:
        chance = random.Random(seed)
        now = int(time.time() * 1000)
        self.pending: dict[bytes, Record] = {}
        log: list[Record] = []
        booked: dict[bytes, Record] = {}
        end = chance.randrange(size)
        for offset in range(size):
            if offset == end:
                booked = dict(self.pending)
            key = b"id-%03d" % chance.randrange(size // 2)
            what = chance.random()
            was = self.pending.get(key)
            if what < 0.2:
                log.append(cancel(offset, key))
                self.pending.pop(key, None)
            elif what < 0.5 and was is not None:
                log.append(tombstone(offset, key, was.offset))
                del self.pending[key]
            else:
                due = now + chance.randrange(-2 * HOUR, 4 * HOUR)
                self.pending[key] = schedule(offset, key, due, chance.choice(["mails", "videos"]))
                log.append(self.pending[key])
        _write(folder / "book", list(booked.values()))
        self.sight = sight.Sight(Settings.model_validate({"schedules_topics": TOPIC, "book_location": str(folder)}))
        book = search.Shelf(str(folder)).book()
        self.view = view.View(book, {SOURCE: end}, Front(book))
        heard = self.sight.live
        base = chance.randrange(end + 1)
        heard._base, heard._positions = {SOURCE: base}, {SOURCE: base}
        heard._topic_ids = {TOPIC: ID}
        take(heard, log[base:])

    def rows(self, **query: Any) -> list[shapes.Row]:
        """All pages."""
        found: list[shapes.Row] = []
        cursor = None
        while True:
            page = self.sight.page(shapes.Query(**query, limit=7, cursor=cursor))
            assert len(page.rows) <= 7
            found += page.rows
            if (cursor := page.cursor) is None:
                return found


def _target(record: Record) -> str:
    return (dict(record.headers)["scheduler-target-topic"] or b"").decode()


def _write(path: Path, records: list[Record]) -> None:
    rows = [
        {
            "topic": TOPIC, "partition": 0, "key": each.key, "value": each.value, "slot": -1, "version": each.offset,
            "kill": -1, "due": each.timestamp, "timestamp": each.timestamp, "wake": each.timestamp, "last_offset": 0,
            "target": _target(each), "topic_id": ID, "pending": True,
            "headers": [{"name": name, "value": value} for name, value in each.headers],
        }
        for each in records
    ]  # fmt: skip
    write_deltalake(str(path), pa.Table.from_pylist(rows, SCHEMA))


@pytest.fixture(params=range(6))
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path, request.param)
    monkeypatch.setattr(made.sight, "look", lambda: made.view)
    return made


@pytest.mark.parametrize("sort", ["due", "-due", "id"])
def test_every_page(world: World, sort: str) -> None:
    rows = world.rows(sort=sort)
    assert Counter(row.id for row in rows) == Counter(list(world.pending))
    assert {row.id: (row.version, row.value) for row in rows} == {
        key: (record.offset, record.value) for key, record in world.pending.items()
    }
    places: list[Any] = [row.id if sort == "id" else row.due for row in rows]
    assert places == sorted(places, reverse=sort == "-due")


def test_filters(world: World) -> None:
    now = int(time.time() * 1000)
    for row in world.rows(target="mails", due_from=now, due_to=now + HOUR):
        assert row.target == "mails"
        assert now <= row.due < now + HOUR
    assert {row.id for row in world.rows(id_part="id-01")} == {key for key in world.pending if key.startswith(b"id-01")}
    late = {key for key, record in world.pending.items() if record.timestamp <= now}
    assert {row.id for row in world.rows(state="overdue")} >= late
    assert len(world.rows(state="overdue")) + len(world.rows(state="waiting")) == len(world.pending)


def test_totals_and_counts(world: World) -> None:
    assert world.sight.page(shapes.Query(total=True)).total == len(world.pending)
    part = world.sight.page(shapes.Query(total=True, id_part="7", target="mails")).total
    assert part == sum(b"7" in key and _target(record) == "mails" for key, record in world.pending.items())
    expected = Counter((record.timestamp // HOUR * HOUR, _target(record)) for record in world.pending.values())
    found = world.sight.counts("hour", None, None, None)
    assert {(each.start, each.target): each.number for each in found} == expected
    assert [each.start for each in found] == sorted(each.start for each in found)


def test_a_page_is_full_though_all_it_found_fires_before_it_is_shown(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    offset = iter(range(10_000, 1 << 30))
    real, fired = search.Book.search, set[tuple[bytes, int]]()

    def firing(*asked: Any, **more: Any) -> Any:
        rows = real(*asked, **more)
        if not fired:
            take(world.sight.live, [tombstone(next(offset), row.id, row.version) for row in rows])
            fired.update((row.id, row.version) for row in rows)
        return rows

    monkeypatch.setattr(search.Book, "search", firing)
    left = world.sight.page(shapes.Query(limit=7)).rows
    assert not fired & {(row.id, row.version) for row in left}
    assert len(left) == min(7, len({(key, each.offset) for key, each in world.pending.items()} - fired))


def test_one_id(world: World) -> None:
    for number in range(0, 200, 7):
        key = b"id-%03d" % number
        found = [row.version for row in world.sight.find(key)]
        assert found == ([world.pending[key].offset] if key in world.pending else [])


def test_what_fired_a_moment_ago(world: World) -> None:
    with world.sight.live.held() as heard:
        over = {(key[2], each.version) for key, said in heard.items() for each in said.over}
    found = []
    cursor = None
    while True:
        page = world.sight.fired(shapes.FiredQuery(limit=7, cursor=cursor))
        found += page.rows
        if (cursor := page.cursor) is None:
            break
    assert Counter((row.id, row.version) for row in found) == Counter(over)
