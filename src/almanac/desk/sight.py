"""What is pending and what fired: the book with the live tail laid over it, page by page."""

from __future__ import annotations

import heapq
import threading
import time
from collections import Counter
from dataclasses import replace
from typing import NamedTuple

from almanac import formats, kafka, live, scan, words
from almanac.book import glance, read, search
from almanac.desk import cursors, over
from almanac.desk.front import HOUR
from almanac.desk.shapes import Count, FiredQuery, FiredRow, Found, Query, Row, Step
from almanac.desk.view import Newest, View
from almanac.live import Heard, Key
from almanac.ports import Source
from almanac.record import Record
from almanac.settings import Settings

SPARE = 30  # rows that are asked of the book on top: some may be over
LARGEST = 20_000  # rows of one question to the book
UNKNOWN = 100_000  # ids that are looked up in the book for one count
DISORDER = 20_000  # ms by which tombstones may come in another order than their times


class Corrected(NamedTuple):
    """What a count of the book lacks."""

    gone: dict[Key, glance.Glance]  # is pending in the book, and over
    hours: Counter[tuple[int, str]]  # the same, counted by hour (its number) and target
    come: list[tuple[Key, words.Word]]  # is pending, and not in the book


class Sight:
    """Reads for people. Thread-safe."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.live = live.Live(settings)
        self._shelf = search.Shelf(settings.book_folder)
        self._admin = kafka.admin_client(settings)
        self._newest = Newest(settings, self._shelf, self._admin)
        self._fronts = threading.Lock()
        grace = settings.schedule_grace_interval * 1000
        self._forms = {topic: formats.named(name, grace) for topic, name in settings.sources}

    def close(self) -> None:
        self.live.close()

    def note(self) -> str | None:
        """Why the book is not read, if it is not to be trusted."""
        view = self._newest.last()
        return view.why if view is not None else None

    def form(self, topic: str) -> formats.Format:
        return self._forms[topic]

    def look(self) -> View:
        """The book as it is now; the tail is read to where it ends now. Raises live.Behind, errors.Unreachable."""
        view = self._newest.get()
        # The book first, then the ends: one that is written meanwhile would seem to know more than the log has.
        ends = scan.ends(self._admin, list(view.starts))
        if self.live.has_dropped(view.starts):
            view = self._newest.get()  # somebody asks of a newer one since
        return replace(view, reading=self.live.follow(view.starts, view.topic_ids, ends))

    def high(self, source: Source) -> dict[Source, int]:
        """Where the partition ends now, open transactions included."""
        return scan.highs(self._admin, [source])

    # What is pending

    def find(self, id: bytes, seen: View | None = None) -> list[read.Pending]:
        """All that is pending under the id, as it was written; by a view that was taken before, if there is one."""
        view = self.look() if seen is None else seen
        found = view.book.find(id) if view.book is not None else []
        with self.live.held(view.reading) as heard:
            rows = [row for row in found if not _over(heard, row)]
            rows += [_pending(key, w) for key in view.keys(id) if (w := self.live.alive.get(key)) and view.news(key, w)]
        return sorted(rows, key=lambda row: (row.topic, row.partition))

    def heard_of(self, id: bytes) -> list[tuple[Key, Heard]]:
        """What the tail says of the id, or said a short while ago."""
        return self.live.heard_of(self._newest.get().keys(id))

    def page(self, query: Query) -> Found[Row]:
        """A page. One row more is asked for, to know whether there is a next page."""
        now = int(time.time() * 1000)
        due_from, due_to = _range(query, now)
        after = cursors.read(query.cursor, query.sort)
        view = self.look()
        wanted = query.limit + 1
        part = query.id_part.encode() if query.id_part else None
        booked: list[read.Pending] = []
        first, end, size = self._skip(view, due_from, now), after, wanted + SPARE
        while True:
            found, end = _next(view, query, part, first, due_to, end, size)
            booked += found
            # Both at one moment: what is moved meanwhile must not be missing from the one and not yet be in the other.
            with self.live.held(view.reading) as heard:
                rows = [row for row in booked if not _over(heard, row)]
                for key, word in self.live.alive.items():
                    if not view.news(key, word) or not _matches(key, word, query, part, due_from, due_to):
                        continue
                    place = _place(key, word)
                    begun = after is None or _behind(place, after, query.sort)
                    if begun and (end is None or not _behind(place, end, query.sort)):
                        rows.append(_pending(key, word))
            if end is None or len(rows) >= wanted:
                break
            size = min(LARGEST, size * 4)  # many of the book's are over
        rows.sort(key=lambda row: search.order(row, query.sort), reverse=query.sort == "-due")
        more = len(rows) > query.limit or end is not None
        rows = rows[: query.limit]
        last = search.cursor(rows[-1]) if rows else end
        cursor = cursors.write(last, query.sort) if more and last is not None else None
        rows = _filled(view, rows, booked)
        total = self._total(view, query, part, due_from, due_to) if query.total else None
        return Found(rows=[self.row(row) for row in rows], cursor=cursor, total=total)

    def _skip(self, view: View, due_from: int | None, now: int) -> int | None:
        """Past what the book has and the log says is over: all of it was due before now."""
        if view.front is None or (due_from is not None and due_from >= now):
            return due_from
        with self.live.held(view.reading) as heard:
            few = len(heard) <= SPARE
        if few:
            return due_from
        with self._fronts:
            view.front.reach(now)
            with self.live.held(view.reading) as heard:
                return max(due_from or 0, view.front.bound(heard))

    def total(self) -> int:
        """How many are pending, exactly."""
        return self._total(self.look(), Query(), None, None, None)

    def booked(self) -> dict[Source, int]:
        """Up to where the book speaks; empty without one that is to be trusted."""
        view = self._newest.get()
        return view.starts if view.book is not None else {}

    def _total(self, view: View, query: Query, part: bytes | None, due_from: int | None, due_to: int | None) -> int:
        number = 0
        if view.book is not None:
            number = view.book.matching(
                id_part=part, target=query.target, topic=query.topic, due_from=due_from, due_to=due_to
            )
        gone, _, come = self._corrected(view)
        if (part, query.topic, query.target, due_from, due_to) == (None,) * 5:
            return number - len(gone) + len(come)
        number -= sum(_fits(key, row.target, row.due, query, part, due_from, due_to) for key, row in gone.items())
        return number + sum(
            _fits(key, word.schedule.target, word.schedule.due, query, part, due_from, due_to) for key, word in come
        )

    def _corrected(self, view: View) -> Corrected:
        """What the live tail says of the book's counts, all at one moment."""
        front = view.front
        if front is None:
            with self.live.held(view.reading):
                return Corrected({}, Counter(), [each for each in self.live.alive.items() if view.news(*each)])
        with self._fronts:
            front.reach(int(time.time() * 1000))
            with self.live.held(view.reading) as heard:
                front.hear(heard, self.live.changes, self.live.epoch)
            if len(front.unknown) > UNKNOWN:
                raise live.Behind(f"{len(front.unknown):,} ids changed since the book was written: ask again later")
            front.learn(list(front.unknown))
            with self.live.held(view.reading) as heard:
                # What was said of an id since, nobody knows yet what it replaces: it counts as it was before.
                front.hear(heard, self.live.changes, self.live.epoch)
                alive = self.live.alive.items()
                come = [each for each in alive if each[0] not in front.unknown and view.news(*each)]
                return Corrected(dict(front.gone), Counter(front.hours), come)

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
            return target in (None, name) and (due_from or 0) <= due < (1 << 62 if due_to is None else due_to)

        _, hours, come = self._corrected(view)
        for (hour, name), number in hours.items():
            if fits(hour * HOUR, name):
                counts[hour * HOUR // length * length, name] -= number
        for _, word in come:
            if fits(word.schedule.due, word.schedule.target):
                counts[word.schedule.due // length * length, word.schedule.target] += 1
        return [Count(start=start, target=name, number=n) for (start, name), n in sorted(counts.items()) if n]

    def original(self, row: read.Pending) -> tuple[Record, formats.Schedule | None]:
        """The record as its user wrote it, and what it says; None: it was read with other settings."""
        record = Record(row.topic, row.partition, row.version, row.timestamp, row.id, row.value, row.headers)
        try:
            return record, formats.schedule(record, self._forms[row.topic])
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
        newest: list[tuple[tuple[int, str, int, int], Key, live.Over]] = []  # a heap: the oldest of them first
        with self.live.held(view.reading):
            for key, ended in reversed(self.live.ended):
                place = (ended.at, key[0], key[1], ended.version)
                if len(newest) >= wanted and place <= newest[0][0]:
                    if ended.at < newest[0][0][0] - DISORDER:
                        break
                    continue
                if after is not None and place >= tuple(after):
                    continue
                if over.fits(over.fresh(key, ended, view.front), query, part):
                    (heapq.heappush if len(newest) < wanted else heapq.heappushpop)(newest, (place, key, ended))
        return [over.fresh(key, ended, view.front) for _, key, ended in newest]

    def fired_counts(self, by: Step, target: str | None, since: int | None, until: int | None) -> list[Count]:
        """Of what the book has read: a minute behind, at most."""
        counts: Counter[tuple[int, str]] = Counter()
        for each in self._shelf.fired().counts(by, target=target, since=since, until=until):
            if each.outcome == search.FIRED:
                counts[each.start, each.target or ""] += each.count
        return [Count(start=start, target=name, number=n) for (start, name), n in sorted(counts.items())]


# Small things


def _next(
    view: View, query: Query, part: bytes | None, due_from: int | None, due_to: int | None,
    after: search.Cursor | None, size: int,
) -> tuple[list[read.Pending], search.Cursor | None]:  # fmt: skip
    """The next ones of the book, without their payloads; and up to where, if there are more."""
    if view.book is None:
        return [], None
    rows = view.book.search(
        id_part=part, target=query.target, topic=query.topic, due_from=due_from, due_to=due_to,
        sort=query.sort, after=after, limit=size, payloads=False,
    )  # fmt: skip
    return rows, search.cursor(rows[-1]) if len(rows) == size else None


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
