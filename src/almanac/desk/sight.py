"""What is pending and what fired: the book with the live tail laid over it, page by page."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass

from almanac import formats, kafka, live, scan, topics, words
from almanac.book import read, search, trust
from almanac.desk import cursors, over
from almanac.desk.front import Front
from almanac.desk.shapes import Count, FiredQuery, FiredRow, Found, Query, Row, Step
from almanac.live import Heard, Key
from almanac.ports import Source
from almanac.record import Record
from almanac.settings import Settings

LOOK = 10.0  # seconds between looks at the topics, and at whether the book is to be trusted
SPARE = 30  # rows that are asked of the book on top: some may be over
LARGEST = 20_000  # rows of one question to the book
UNKNOWN = 100_000  # ids that are looked up in the book for one count
DISORDER = 20_000  # ms by which tombstones may come in another order than their times


@dataclass(frozen=True)
class View:
    """One version of the book, and from where on the tail is laid over it."""

    book: search.Book | None
    starts: dict[Source, int]
    front: Front | None

    def keys(self, id: bytes) -> list[Key]:
        """Wherever the id may be; for a watch."""
        return [(*source, id) for source in self.starts]

    def news(self, key: Key, word: words.Word) -> bool:
        """Whether the tail alone has this word: the book ends before it."""
        return word.version >= self.starts.get(key[:2], 0)


class Sight:
    """Reads for people. Thread-safe."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.live = live.Live(settings)
        self._shelf = search.Shelf(settings.book_folder)
        self._admin = kafka.admin_client(settings)
        self._lock = threading.Lock()
        self._fronts = threading.Lock()
        self._looked = -LOOK
        self._topic_ids: dict[str, str] = {}
        self._sources: list[Source] = []
        self._lows: dict[Source, int] = {}
        self._view: View | None = None
        self._why: str | None = None  # the book is not to be trusted
        self._judged = -1  # which version of it that is said of
        grace = settings.schedule_grace_interval * 1000
        self._forms = {topic: formats.named(name, grace) for topic, name in settings.sources}

    def close(self) -> None:
        self.live.close()

    def note(self) -> str | None:
        """Why the book is not read, if it is not to be trusted."""
        return self._why

    def form(self, topic: str) -> formats.Format:
        return self._forms[topic]

    def look(self) -> View:
        """The book as it is now; the tail is read to where it ends now. Raises live.Behind, errors.Unreachable."""
        with self._lock:
            view = self._current()
            sources, topic_ids = self._sources, self._topic_ids
        # The book first, then the ends: one that is written meanwhile would seem to know more than the log has.
        self.live.follow(view.starts, topic_ids, scan.ends(self._admin, sources))
        return view

    def high(self, source: Source) -> dict[Source, int]:
        """Where the partition ends now, open transactions included."""
        return scan.highs(self._admin, [source])

    def _current(self) -> View:
        try:
            book: search.Book | None = self._shelf.book()
        except read.NoBook:
            book = None
        except Exception as error:  # whatever is wrong with it, the log has the truth
            self._why, book = trust.unreadable(error), None
        version = book.version if book is not None else -1
        known = self._view is not None and (self._view.book.version if self._view.book else -1) == version
        if time.monotonic() - self._looked > LOOK or (version != self._judged and book is not None):
            names = list(self._settings.topics)
            self._topic_ids = topics.topic_ids(self._admin, names)
            self._sources = scan.partitions(self._admin, names)
            self._lows, highs = scan.bounds(self._admin, self._sources)
            self._why = book if book is None else trust.distrust(
                book, self._topic_ids, self._lows, highs,
                topics.delete_retention_ms(self._admin, self._topic_ids), thorough=False,
            )  # fmt: skip
            self._judged, self._looked = version, time.monotonic()
        if self._why is not None:
            book = None
            known = known and self._view is not None and self._view.book is None
        if self._view is None or not known:
            offsets = book.offsets() if book is not None else {}
            starts = {source: offsets.get(source, self._lows.get(source, 0)) for source in self._sources}
            self._view = View(book, starts, Front(book) if book is not None else None)
        return self._view

    # What is pending

    def find(self, id: bytes, seen: View | None = None) -> list[read.Pending]:
        """All that is pending under the id, as it was written; by a view that was taken before, if there is one."""
        view = self.look() if seen is None else seen
        found = view.book.find(id) if view.book is not None else []
        with self.live.held() as heard:
            rows = [row for row in found if not _over(heard, row)]
            keys = [(*source, id) for source in view.starts]
            rows += [_pending(key, w) for key in keys if (w := self.live.alive.get(key)) and view.news(key, w)]
        return sorted(rows, key=lambda row: (row.topic, row.partition))

    def heard_of(self, id: bytes) -> list[tuple[Key, Heard]]:
        """What the tail says of the id."""
        with self._lock:
            places = [(*source, id) for source in self._sources]
        with self.live.held() as heard:
            return [(key, heard[key]) for key in places if key in heard]

    def page(self, query: Query) -> Found[Row]:
        """A page. One row more is asked for, to know whether there is a next page."""
        now = int(time.time() * 1000)
        due_from, due_to = _range(query, now)
        after = cursors.read(query.cursor, query.sort)
        view = self.look()
        wanted = query.limit + 1
        part = query.id_part.encode() if query.id_part else None
        booked, end = self._from_book(view, query, part, due_from, due_to, after, wanted, now)
        # Both at one moment: what is moved meanwhile must not be missing from the one and not yet be in the other.
        with self.live.held() as heard:
            rows = [row for row in booked if not _over(heard, row)]
            for key, word in self.live.alive.items():
                if not view.news(key, word) or not _matches(key, word, query, part, due_from, due_to):
                    continue
                place = _place(key, word)
                begun = after is None or _behind(place, after, query.sort)
                if begun and (end is None or not _behind(place, end, query.sort)):
                    rows.append(_pending(key, word))
        rows.sort(key=lambda row: search.order(row, query.sort), reverse=query.sort == "-due")
        more = len(rows) > query.limit or end is not None
        rows = rows[: query.limit]
        last = search.cursor(rows[-1]) if rows else end
        cursor = cursors.write(last, query.sort) if more and last is not None else None
        rows = _filled(view, rows, booked)
        total = self._total(view, query, part, due_from, due_to) if query.total else None
        return Found(rows=[self.row(row) for row in rows], cursor=cursor, total=total)

    def _from_book(
        self, view: View, query: Query, part: bytes | None, due_from: int | None, due_to: int | None,
        after: search.Cursor | None, wanted: int, now: int,
    ) -> tuple[list[read.Pending], search.Cursor | None]:  # fmt: skip
        """The next ones of the book that are not over by what the tail has said; and up to where, if there are more."""
        if view.book is None or view.front is None:
            return [], None
        found: list[read.Pending] = []
        size = wanted + SPARE
        if query.sort == "due" and (after is None or after.due < now):
            due_from = self._skip(view.front, due_from, now)
        while len(found) < wanted:
            rows = view.book.search(
                id_part=part, target=query.target, topic=query.topic, due_from=due_from, due_to=due_to,
                sort=query.sort, after=after, limit=size, payloads=False,
            )  # fmt: skip
            with self.live.held() as heard:
                found += [row for row in rows if not _over(heard, row)]
            if len(rows) < size:
                return found, None
            after = search.cursor(rows[-1])
            size = min(LARGEST, size * 4)
        return found, after

    def _skip(self, front: Front, due_from: int | None, now: int) -> int | None:
        """Past what the book has and the log says is over: all of it was due before now."""
        with self.live.held() as heard:
            few = len(heard) <= SPARE
        if few:
            return due_from
        with self._fronts:
            front.reach(now)
            with self.live.held() as heard:
                return max(due_from or 0, front.bound(heard))

    def total(self) -> int:
        """How many are pending, exactly."""
        return self._total(self.look(), Query(), None, None, None)

    def booked(self) -> dict[Source, int]:
        """Up to where the book speaks; empty without one that is to be trusted."""
        with self._lock:
            view = self._current()
        return view.starts if view.book is not None else {}

    def _total(self, view: View, query: Query, part: bytes | None, due_from: int | None, due_to: int | None) -> int:
        number = 0
        if view.book is not None:
            number = view.book.matching(
                id_part=part, target=query.target, topic=query.topic, due_from=due_from, due_to=due_to
            )
        for key, gone, come in self._corrections(view):
            number -= gone is not None and _fits(key, gone[1], gone[0], query, part, due_from, due_to)
            number += come is not None and _fits(key, come[1], come[0], query, part, due_from, due_to)
        return number

    def _corrections(self, view: View) -> list[tuple[Key, tuple[int, str] | None, tuple[int, str] | None]]:
        """By key: due time and target of what the book has and is over, and of what came."""
        now = int(time.time() * 1000)
        with self._fronts:
            if view.front is not None:
                view.front.reach(now)
                with self.live.held() as heard:
                    missing = view.front.missing(heard)
                if len(missing) > UNKNOWN:
                    raise live.Behind(f"{len(missing):,} ids changed since the book was written: ask again later")
                view.front.learn(missing)
            found = []
            with self.live.held() as heard:
                for key, said in heard.items():
                    row = view.front.row(key) if view.front is not None else None
                    gone = (row.due, row.target) if row is not None and said.hides(row.version) else None
                    word = said.word
                    come = None
                    if word is not None and view.news(key, word):
                        come = (word.schedule.due, word.schedule.target)
                    if gone or come:
                        found.append((key, gone, come))
            return found

    def counts(self, by: Step, target: str | None, due_from: int | None, due_to: int | None) -> list[Count]:
        """Exact: the book's, corrected by what the log has said since. The range is widened to whole hours or days."""
        length = search.LENGTH[by]
        due_from = None if due_from is None else due_from // length * length
        due_to = None if due_to is None else -(-due_to // length) * length
        view = self.look()
        counts: Counter[tuple[int, str]] = Counter()
        if view.book is not None:
            for each in view.book.counts(by, target=target, due_from=due_from, due_to=due_to):
                counts[each.start, each.target] += each.count

        def fits(due: int, name: str) -> bool:
            return (target is None or name == target) and (due_from or 0) <= due < (due_to or 1 << 62)

        for _, gone, come in self._corrections(view):
            if gone is not None and fits(*gone):
                counts[gone[0] // length * length, gone[1]] -= 1
            if come is not None and fits(*come):
                counts[come[0] // length * length, come[1]] += 1
        return [Count(start=start, target=name, number=n) for (start, name), n in sorted(counts.items()) if n]

    def original(self, row: read.Pending) -> tuple[Record, formats.Schedule | None]:
        """The record as its user wrote it, and what it says; None: it was read with other settings."""
        record = Record(row.topic, row.partition, row.version, row.timestamp, row.id, row.value, row.headers)
        try:
            return record, self._forms[row.topic].decode(record)
        except (formats.Invalid, formats.Incompatible):
            return record, None

    def row(self, row: read.Pending) -> Row:
        """As people see it."""
        _, schedule = self.original(row)
        hide = self._settings.hide_payloads
        value = schedule.value if schedule is not None else row.value
        return Row(
            id=row.id, topic=row.topic, partition=row.partition, version=row.version, due=row.due,
            timestamp=row.timestamp, target=row.target, target_key=schedule.key if schedule is not None else None,
            value=None if hide else value, size=len(value or b""), hidden=hide,
            headers=[(name, None if hide else content) for name, content in row.headers],
            state="overdue" if row.due <= time.time() * 1000 else "waiting",
        )  # fmt: skip

    # What is over

    def fired(self, query: FiredQuery) -> Found[FiredRow]:
        """The newest first; what fired a second ago is there."""
        after = cursors.read_fired(query.cursor)
        view = self.look()
        wanted = query.limit + 1
        part = query.id_part.encode() if query.id_part else None
        table = self._shelf.fired()
        rows = table.search(
            id_part=part, target=query.target, since=query.since, until=query.until, outcome=query.outcome,
            after=after, limit=wanted,
        )  # fmt: skip
        booked = [over.row(row) for row in rows]
        known = {(row.topic, row.partition, row.version) for row in booked}
        fresh = [
            row for row in self._just_fired(view, query, part, wanted)
            if (row.topic, row.partition, row.version) not in known
        ]  # fmt: skip
        found = sorted(booked + fresh, key=over.place, reverse=True)[:wanted]
        more = len(found) > query.limit
        found = found[: query.limit]
        last = found[-1] if found else None
        cursor = cursors.text([*over.place(last)]) if more and last is not None else None
        return Found(rows=found, cursor=cursor)

    def _just_fired(self, view: View, query: FiredQuery, part: bytes | None, wanted: int) -> list[FiredRow]:
        """By tombstones that the book has not read yet: the newest ones that match."""
        if view.front is not None:
            with self._fronts:
                view.front.reach(int(time.time() * 1000))
        after = cursors.read_fired(query.cursor)
        found: list[FiredRow] = []
        with self.live.held():
            for key, ended in reversed(self.live.ended):
                if len(found) >= wanted and ended.at < found[wanted - 1].fired_at - DISORDER:
                    break
                place = (ended.at, key[0], key[1], ended.version)
                if (after is not None and place >= tuple(after)) or (part is not None and part not in key[2]):
                    continue
                row = over.fresh(key, ended, view.front)
                if over.fits(row, query, part):
                    found.append(row)
        return found

    def fired_counts(self, by: Step, target: str | None, since: int | None, until: int | None) -> list[Count]:
        """Of what the book has read: a minute behind, at most."""
        counts: Counter[tuple[int, str]] = Counter()
        for each in self._shelf.fired().counts(by, target=target, since=since, until=until):
            if each.outcome == search.FIRED:
                counts[each.start, each.target or ""] += each.count
        return [Count(start=start, target=name, number=n) for (start, name), n in sorted(counts.items())]


# Small things


def _filled(view: View, rows: list[read.Pending], booked: list[read.Pending]) -> list[read.Pending]:
    """With the payloads of those that come from the book."""
    light = {(row.topic, row.partition, row.id, row.version) for row in booked}
    wanted = [row for row in rows if (row.topic, row.partition, row.id, row.version) in light]
    filled = view.book.filled(wanted) if view.book is not None else []
    whole = {(row.topic, row.partition, row.id, row.version): row for row in filled}
    return [whole.get((row.topic, row.partition, row.id, row.version), row) for row in rows]


def _over(heard: dict[Key, Heard], row: read.Pending) -> bool:
    said = heard.get((row.topic, row.partition, row.id))
    return said is not None and said.hides(row.version)


def _range(query: Query, now: int) -> tuple[int | None, int | None]:
    """State is a matter of due times."""
    due_from, due_to = query.due_from, query.due_to
    if query.state == "overdue":
        due_to = min(now, due_to) if due_to is not None else now
    elif query.state == "waiting":
        due_from = max(now, due_from) if due_from is not None else now
    return due_from, due_to


def _fits(
    key: Key, target: str, due: int, query: Query, part: bytes | None, due_from: int | None, due_to: int | None
) -> bool:
    return (
        (part is None or part in key[2])
        and (query.topic is None or query.topic == key[0])
        and (query.target is None or query.target == target)
        and (due_from is None or due >= due_from)
        and (due_to is None or due < due_to)
    )


def _matches(
    key: Key, word: words.Word, query: Query, part: bytes | None, due_from: int | None, due_to: int | None
) -> bool:
    return _fits(key, word.schedule.target, word.schedule.due, query, part, due_from, due_to)


def _place(key: Key, word: words.Word) -> search.Cursor:
    return search.Cursor(word.schedule.due, *key)


def _behind(place: search.Cursor, after: search.Cursor, sort: str) -> bool:
    if sort == "id":
        return (place.id, place.topic, place.partition) > (after.id, after.topic, after.partition)
    return place < after if sort == "-due" else place > after


def _pending(key: Key, word: words.Word) -> read.Pending:
    record, schedule = word.record, word.schedule
    return read.Pending(
        topic=key[0], partition=key[1], id=key[2], version=word.version, due=schedule.due, timestamp=record.timestamp,
        value=record.value, headers=record.headers, target=schedule.target,
    )  # fmt: skip
