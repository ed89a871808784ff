"""What fired: the table that the book's stream feeds, over crashes and rebuilds; its searches, views and queries."""

import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import logs
import pytest
from confluent_kafka import Producer
from logs import DUE, SINCE, TOPIC, TOPIC_ID, Listed, record, schedule
from pyspark.sql import SparkSession

from almanac import outgoing, views, words
from almanac.book import batch, fired, read, search, spans, table
from almanac.broker import Broker
from almanac.record import Record, first
from almanac.settings import Settings

IDS = {TOPIC: TOPIC_ID}
ETF1 = {TOPIC: "etf1"}
QUERIES = Path(__file__).parents[2] / "docs" / "queries.md"
DAY = 86_400_000


@pytest.fixture
def gone(book: table.Book) -> fired.Fired:
    """Empty; it keeps for ever, since the tests' records are old."""
    made = fired.Fired(book.folder, book.spark, -1)
    made.open()
    return made


def ends(records: list[Record]) -> dict[tuple[str, int], int]:
    return {(TOPIC, r.partition): max(e.offset for e in records if e.partition == r.partition) + 1 for r in records}


def hear(gone: fired.Fired, book: table.Book, records: list[Record], ids: dict[str, str] = IDS) -> int:
    """The first half of taking a batch."""
    cut = batch.Cut(
        position=book.position(), ends=ends(records), halted={}, whole=True, since_ms=0, formats=ETF1, topic_ids=ids
    )
    with batch.folded(book.spark, Listed(records), cut, book.path, f"{book.folder}/batches") as folded:
        return gone.take(folded)


def take(gone: fired.Fired, book: table.Book, records: list[Record], ids: dict[str, str] = IDS) -> int:
    """All of it, as the stream does."""
    counts: list[int] = []
    book.take(
        Listed(records), ends(records), ETF1, ids, whole=True,
        before=lambda folded: counts.append(gone.take(folded)),
    )  # fmt: skip
    return counts[0]


def rows(book: table.Book) -> list[search.Fired]:
    return search.Shelf(book.folder).fired().search(limit=100_000)[::-1]


def told(book: table.Book) -> list[tuple[bytes, int, int | None, str | None, str]]:
    return [(row.id, row.version, row.due, row.target, row.outcome) for row in rows(book)]


def ack(offset: int, key: bytes, version: int, reason: str | None = None) -> Record:
    headers = words.acknowledgement(version, TOPIC_ID)
    return record(offset, key, None, headers if reason is None else [*headers, (words.REASON, reason.encode())])


# The table


def test_what_fired_and_what_was_buried(book: table.Book, gone: fired.Fired) -> None:
    take(gone, book, [record(n, key, b"v", schedule(DUE + n)) for n, key in enumerate((b"a", b"b", b"c", b"d", b"e"))])
    count = take(gone, book, [
        ack(5, b"a", 0),
        record(6, b"b", None, []),  # cancelled: it never fired
        ack(7, b"c", 2, "forbidden"),
        record(8, b"d", b"v", schedule(DUE + 9)), ack(9, b"d", 8),  # replaced, and the new version fired at once
        record(10, b"e", None, [("almanac-topic-id", b"other"), ("almanac-acks", b"4")]),  # mirrored: a cancel
    ])  # fmt: skip
    assert count == 3
    assert told(book) == [
        (b"a", 0, DUE * 1000, "target", "fired"),
        (b"c", 2, (DUE + 2) * 1000, "target", "forbidden"),
        (b"d", 8, (DUE + 9) * 1000, "target", "fired"),
    ]
    first_row = rows(book)[0]
    assert (first_row.fired_at, first_row.lateness) == (SINCE + 5, SINCE + 5 - DUE * 1000)
    assert take(gone, book, [record(11, b"f", b"v", schedule())]) == 0


def test_a_repeated_word_and_one_that_the_log_no_longer_has(book: table.Book, gone: fired.Fired) -> None:
    again = record(5, b"a", b"v", [*schedule(), *words.repeat(2, 7, TOPIC_ID)])
    take(gone, book, [again, ack(6, b"a", 2), ack(7, b"b", 3)])
    assert told(book) == [(b"a", 2, DUE * 1000, "target", "fired"), (b"b", 3, None, None, "fired")]


def test_a_crash_between_the_two_commits_doubles_nothing(book: table.Book, gone: fired.Fired) -> None:
    said = [record(0, b"a", b"v", schedule()), record(1, b"b", b"v", schedule()), ack(2, b"a", 0)]
    assert hear(gone, book, said) == 1
    assert hear(gone, book, said) == 0
    later = [*said, ack(3, b"b", 1)]  # the batch is cut anew after a crash: it may be longer
    assert take(gone, book, later) == 1
    assert take(gone, book, later) == 0
    assert [row.id for row in rows(book)] == [b"a", b"b"]


def test_a_book_that_is_built_again_neither_doubles_nor_forgets(book: table.Book, gone: fired.Fired) -> None:
    said = [record(0, b"a", b"v", schedule()), ack(1, b"a", 0), record(2, b"b", b"v", schedule())]
    take(gone, book, said)
    book.drop()
    book.create()
    gone.open()
    take(gone, book, [record(2, b"b", b"v", schedule()), ack(3, b"b", 2)])  # the cleaner was there
    assert [row.id for row in rows(book)] == [b"a", b"b"]


def test_a_topic_that_was_made_anew_begins_anew(book: table.Book, gone: fired.Fired) -> None:
    take(gone, book, [record(0, b"a", b"v", schedule()), ack(5, b"a", 0)])
    book.drop()
    book.create()
    anew = ack(1, b"b", 0)._replace(headers=words.acknowledgement(0, "anew"))
    take(gone, book, [record(0, b"b", b"v", schedule()), anew], {TOPIC: "anew"})
    assert [row.id for row in rows(book)] == [b"b", b"a"]
    assert gone.marks().offsets == {(TOPIC, "anew", 0): 2}


def test_of_two_writers_one_begins_again(book: table.Book, gone: fired.Fired, monkeypatch: pytest.MonkeyPatch) -> None:
    said = [record(0, b"a", b"v", schedule()), ack(1, b"a", 0)]
    stale, attempts = gone.marks(), []
    hear(gone, book, said)

    def marks() -> fired.Marks:
        attempts.append(1)
        return stale if len(attempts) == 1 else fired.Fired.marks(gone)

    monkeypatch.setattr(gone, "marks", marks)
    assert hear(gone, book, [*said, record(2, b"b", b"v", schedule()), ack(3, b"b", 2)]) == 1
    assert len(attempts) > 2
    assert [row.id for row in rows(book)] == [b"a", b"b"]


@pytest.mark.long
def test_retention_and_tidying(book: table.Book, gone: fired.Fired) -> None:
    for day in range(3):
        late = ack(2 * day + 1, b"%d" % day, 2 * day)
        take(gone, book, [record(2 * day, b"%d" % day, b"v", schedule()), late._replace(timestamp=SINCE + day * DAY)])
    fired.Fired(book.folder, book.spark, 1).tidy(now_ms=SINCE + 2 * DAY)
    assert [row.id for row in rows(book)] == [b"1", b"2"]
    assert gone.marks().of(IDS) == {(TOPIC, 0): 6}
    recent = fired.Fired(book.folder, book.spark, 7)
    assert hear(recent, book, [ack(6, b"x", 0)]) == 0, "older than its retention already"


@pytest.mark.long
def test_a_damaged_table_is_set_aside(book: table.Book, gone: fired.Fired) -> None:
    take(gone, book, [record(0, b"a", b"v", schedule()), ack(1, b"a", 0)])
    gone.open()
    assert len(rows(book)) == 1
    for file in Path(gone.path).rglob("*.parquet"):
        file.write_bytes(file.read_bytes()[:50])
    gone.open()
    assert rows(book) == []
    assert len(list(Path(book.folder).glob("fired-damaged-*"))) == 1
    take(gone, book, [record(2, b"b", b"v", schedule()), ack(3, b"b", 2)])
    assert [row.id for row in rows(book)] == [b"b"]


@pytest.mark.timeout(300)
def test_every_tombstone_of_random_logs_is_there_once(book: table.Book, gone: fired.Fired) -> None:
    """However the log is cut, and though each batch begins before what is known."""
    chance = random.Random(5)
    all_logs = {p: logs.log(chance, p, chance.randint(1, 14)) for p in range(100)}
    wanted: Counter[tuple[int, bytes, int, int]] = Counter()
    dues: dict[tuple[int, bytes, int], int] = {}
    sure: set[tuple[int, bytes, int]] = set()  # of these the book or the batch has the word: partition, id, fired_at
    begun = 0
    for end in (6, 12, 40):
        known = {(row.partition, row.id, row.version) for row in read.Reader(book.folder).pending(1000)}
        said = [(r, words.read(r, logs.FORM, TOPIC_ID)) for each in all_logs.values() for r in each if r.offset < end]
        now = [(r, each) for r, each in said if r.offset >= begun]
        for r, each in now:
            if isinstance(each, words.Word):
                dues[r.partition, r.key or b"", each.version] = each.schedule.due
                known.add((r.partition, r.key or b"", each.version))
        for r, each in now:
            if isinstance(each, words.Kill) and each.ours and words.ACKS in first(r.headers):
                wanted[r.partition, r.key or b"", each.version, r.timestamp] += 1
                if (r.partition, r.key or b"", each.version) in known:
                    sure.add((r.partition, r.key or b"", r.timestamp))
        book.take(
            Listed(r for r, _ in said), {(TOPIC, p): end for p in all_logs}, ETF1, IDS, whole=end == 12,
            before=lambda folded: [gone.take(folded) for _ in range(2)],
        )  # fmt: skip
        begun = end
    found = rows(book)
    assert Counter((row.partition, row.id, row.version, row.fired_at) for row in found) == wanted
    for row in found:
        expected = dues[row.partition, row.id, row.version]
        known_then = (row.partition, row.id, row.fired_at) in sure
        assert row.due == expected or (row.due is None and not known_then), row
    assert len(sure) > len(found) // 2


# Searches


KEYS = (b"order-1", b"order-12", b"50%_a'b\\", b"\x00\xff", "\xe4\u20ac".encode(), b"\x16\xf2", b"_", b"%")


@pytest.fixture(scope="module")
def shelf(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> search.Shelf:
    """Three batches in three files, cancels and fires among them."""
    chance = random.Random(7)
    book = table.Book(str(tmp_path_factory.mktemp("shelf")), spark)
    book.create()
    gone = fired.Fired(book.folder, spark, -1)
    gone.open()
    offset = 0
    for part in range(3):
        said = []
        for n in range(60):
            key = chance.choice(KEYS) + (b"-%d" % offset if n % 3 else b"")
            due = DUE + 7200 * part + chance.randint(0, 9000)
            said.append(record(offset, key, b"v%d" % offset, schedule(due, chance.choice((b"mails", b"sms.eu")))))
            offset += 1
            if chance.random() < 0.4:
                said.append(record(offset, key, None, []) if chance.random() < 0.3 else ack(offset, key, offset - 1))
                offset += 1
        if part == 0:
            said += [record(offset + n, b"adrift", b"v", schedule(DUE + 9000 + n)) for n in range(2)]
            offset, first = offset + 2, offset
        elif part == 1:  # the same version once more, in another row
            said.append(ack(offset, b"adrift", first))
            offset += 1
        take(gone, book, said)
    return search.Shelf(book.folder)


def paged(ask: Callable[..., list[Any]], cursor: Callable[[Any], Any], limit: int) -> list[Any]:
    found: list[Any] = []
    while page := ask(limit=limit, after=cursor(found[-1]) if found else None):
        found += page
    return found


@pytest.mark.parametrize("sort", ["due", "-due", "id"])
@pytest.mark.parametrize("enough", [1, 200_000])
def test_searches_of_what_waits(
    shelf: search.Shelf, sort: search.Sort, enough: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans, "ENOUGH", enough)
    book = shelf.book()
    everything = book.pending(1000)
    assert book._raw is not None
    assert book._raw._kept  # some rows are gone from files that others are in
    assert len(everything) == book.count() > 50
    assert book.find(b"adrift") == [row for row in everything if row.id == b"adrift"]
    if enough == 1:
        monkeypatch.setattr(spans, "TRIES", 0)  # as where the files cannot be asked one by one
    everything.sort(key=lambda row: search.order(row, sort), reverse=sort == "-due")
    asked: list[tuple[dict[str, Any], Callable[[read.Pending], bool]]] = [
        ({}, lambda _: True),
        ({"target": "sms.eu", "topic": TOPIC}, lambda row: row.target == "sms.eu"),
        ({"target": "it's"}, lambda _: False),
        ({"topic": "another"}, lambda _: False),
        ({"due_from": (DUE + 7000) * 1000, "due_to": (DUE + 16000) * 1000},
         lambda row: (DUE + 7000) * 1000 <= row.due < (DUE + 16000) * 1000),
    ]  # fmt: skip
    for options, wanted in asked:
        expected = [row for row in everything if wanted(row)]
        assert paged(lambda **page: book.search(sort=sort, **options, **page), search.cursor, 7) == expected  # noqa: B023


@pytest.mark.parametrize("part", [*KEYS, b"\xff", b"6", b"-1", b"nobody"])
def test_a_part_of_an_id(shelf: search.Shelf, part: bytes) -> None:
    book = shelf.book()
    expected = {row.id for row in book.pending(1000) if part in row.id}
    assert {row.id for row in book.search(id_part=part, limit=1000, payloads=False)} == expected
    gone = shelf.fired()
    assert {row.version for row in gone.search(id_part=part, limit=1000)} == {
        row.version for row in gone.search(limit=1000) if part in row.id
    }


def test_counts_of_what_waits(shelf: search.Shelf) -> None:
    book = shelf.book()
    everything = book.pending(1000)
    for by, length in search.LENGTH.items():
        expected = Counter((row.due // length * length, row.target) for row in everything)
        assert {(each.start, each.target): each.count for each in book.counts(by)} == expected
    begin, end = ((DUE + seconds) // 3600 * 3_600_000 for seconds in (3600, 10_800))
    some = book.counts("hour", target="mails", due_from=begin, due_to=end)
    number = sum(row.target == "mails" and begin <= row.due < end for row in everything)
    assert sum(each.count for each in some) == number > 0
    assert book.next_due() == everything[0].due


@pytest.mark.parametrize("enough", [1, 200_000])
def test_searches_and_counts_of_what_fired(shelf: search.Shelf, enough: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "ENOUGH", enough)
    gone = shelf.fired()
    everything = gone.search(limit=1000)
    assert len(everything) > 30
    assert [row.fired_at for row in everything] == sorted((row.fired_at for row in everything), reverse=True)
    assert paged(gone.search, search.fired_cursor, 7) == everything
    since, until = SINCE + 20, SINCE + 200
    some = paged(lambda **page: gone.search(since=since, until=until, target="mails", **page), search.fired_cursor, 3)
    assert some == [row for row in everything if since <= row.fired_at < until and row.target == "mails"]
    assert gone.search(outcome="forbidden") == []
    counts = gone.counts("day")
    assert sum(each.count for each in counts) == len(everything)
    latest = max(row.lateness for row in everything if row.lateness is not None)
    assert max(each.latest for each in counts if each.latest is not None) == latest


def test_a_shelf_sees_what_was_written_since(book: table.Book, gone: fired.Fired) -> None:
    shelf = search.Shelf(book.folder)
    assert (shelf.book().search(), shelf.book().next_due(), shelf.fired().search()) == ([], None, [])
    take(gone, book, [record(0, b"a", b"v", schedule()), ack(1, b"a", 0), record(2, b"b", b"v", schedule())])
    before = shelf.book()
    assert shelf.book() is before
    assert [row.id for row in before.search()] == [b"b"]
    assert [row.id for row in shelf.fired().search()] == [b"a"]
    book.drop()
    book.create()
    assert shelf.book().search() == []
    with pytest.raises(read.NoBook):
        search.Shelf(f"{book.folder}/nowhere").book()
    assert search.Shelf(f"{book.folder}/nowhere").fired().counts("hour") == []


# Views


@pytest.mark.timeout(300)
def test_the_documented_queries(
    spark: SparkSession, book: table.Book, gone: fired.Fired, broker: Broker, make_topic: Callable[..., str]
) -> None:
    servers = broker.client_settings()
    dead = make_topic("dead", 1)
    folder = Path(book.folder)
    settings = Settings(
        bootstrap_servers=str(servers["bootstrap.servers"]), group_id=folder.name, book_location=str(folder.parent),
        dead_letters_topic=dead,
    )  # fmt: skip
    views.register(spark, settings.replaced(group_id="none-yet"))
    assert (spark.sql("SELECT id FROM pending").collect(), spark.sql("SELECT id FROM fired").collect()) == ([], [])
    views.register(spark, settings)
    bad = record(2, b"c", b"v", schedule())
    take(gone, book, [record(0, b"a", b"v", schedule()), record(1, b"vid1-online", b"v", schedule()), bad])
    take(gone, book, [ack(3, b"vid1-online", 1), ack(4, b"c", 2, "forbidden")])
    producer = Producer(servers)
    letter = outgoing.dead_letter(bad, 2, "forbidden", "why", dead)
    producer.produce(letter.topic, letter.value, letter.key, headers=list(letter.headers))
    assert producer.flush(30) == 0
    queries = re.findall(r"```sql\n(.*?)```", QUERIES.read_text(encoding="utf-8"), re.DOTALL)
    assert len(queries) > 10
    found = [[row.asDict() for row in spark.sql(query).collect()] for query in queries]
    assert found[0] == [{"day": found[0][0]["day"], "target": "target", "schedules": 1}]
    by_query = {query.split("\n")[0]: answer for query, answer in zip(queries, found, strict=True)}
    (one,) = next(answer for query, answer in by_query.items() if "vid1-online" in query)
    assert (one["outcome"], one["target"], one["lateness"]) == ("fired", "target", SINCE + 3 - DUE * 1000)
    (letters,) = next(answer for query, answer in by_query.items() if "d.reason, f.target" in query)
    assert (letters["reason"], letters["target"], letters["letters"]) == ("forbidden", "target", 1)
    (last,) = next(answer for query, answer in by_query.items() if query.startswith("SELECT buried_at"))
    assert (last["id"], last["detail"]) == ("c", "why")
