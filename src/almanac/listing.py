"""What waits now: the book, and on top of it what the log has said since (rules 3 and 4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from almanac import formats, kafka, scan, topics, words
from almanac.book import read, trust
from almanac.ports import Source
from almanac.settings import Settings

Key = tuple[str, int, bytes]


@dataclass
class Since:
    """What the log has said of one key behind the book."""

    kill: int = -1
    word: words.Word | None = None

    def hides(self, version: int) -> bool:
        """Whether this ends or replaces the book's version."""
        return self.kill >= version or (self.word is not None and self.word.version > version)

    def pending(self) -> words.Word | None:
        return self.word if self.word is not None and self.word.version > self.kill else None


def pending(settings: Settings, limit: int, topic: str | None, note: Callable[[str], None]) -> list[read.Pending]:
    """The next schedules by due time, of one schedules topic or of all.

    Without a book that can be trusted the log is read from its beginning; `note` is told of one that cannot.
    """
    admin = kafka.admin_client(settings)
    names = [topic] if topic is not None else list(settings.topics)
    # The book first: one that is written meanwhile would seem to know more than the log has.
    book, why = _book(settings)
    topic_ids = topics.topic_ids(admin, names)
    sources = scan.partitions(admin, names)
    if book:
        retention_ms = topics.delete_retention_ms(admin, topic_ids)
        why = trust.distrust(book, topic_ids, *scan.bounds(admin, sources), retention_ms, thorough=False)
    if why is not None:
        note(f"the book is not to be trusted ({why}): reading the log from its beginning")
        book = None
    stops = scan.ends(admin, sources)
    starts = {source: offset for source, offset in book.offsets().items() if source in stops} if book else {}
    heard, _ = since(settings, starts, stops, topic_ids)
    found = [_pending(key, word) for key, said in heard.items() if (word := said.pending()) is not None]
    if book:
        # Every key that the log speaks of may take a row away: that many more are asked for.
        for name in topic_ids:
            rows = book.pending(limit + len(heard), topic=name)
            found += [row for row in rows if not heard.get(_key(row), Since()).hides(row.version)]
    return sorted(found, key=lambda row: (row.due, row.version))[:limit]


def _book(settings: Settings) -> tuple[read.Reader | None, str | None]:
    """The book if there is one, and why not if it cannot even be opened."""
    try:
        return read.Reader(settings.book_folder), None
    except read.NoBook:
        return None, None
    except Exception as error:  # whatever is wrong with it, the log has the truth
        return None, trust.unreadable(error)


def _key(row: read.Pending) -> Key:
    return row.topic, row.partition, row.id


def since(
    settings: Settings, starts: dict[Source, int], stops: dict[Source, int], topic_ids: dict[str, str]
) -> tuple[dict[Key, Since], dict[Source, int]]:
    """What the log says between these offsets, and up to where it could be read: a partition may halt before."""
    grace = settings.schedule_grace_interval * 1000
    forms = {topic: formats.named(name, grace) for topic, name in settings.schedules_topics}
    found: dict[Key, Since] = {}
    ends = dict(stops)
    for record in scan.read(settings, starts, stops, lambda _: True):
        source = record.topic, record.partition
        if record.offset >= ends[source]:
            continue
        said = words.read(record, forms[record.topic], topic_ids[record.topic])
        key = (*source, record.key or b"")
        if isinstance(said, words.Halt):
            ends[source] = record.offset
        elif isinstance(said, words.Kill):
            state = found.setdefault(key, Since())
            state.kill = max(state.kill, said.version)
        elif isinstance(said, words.Word):
            # A repeat of what the book has read: the book knows better whether it still counts.
            if said.ours and said.version < starts.get(source, 0):
                continue
            state = found.setdefault(key, Since())
            if state.word is None or said.version > state.word.version:
                state.word = said
    return found, ends


def _pending(key: Key, word: words.Word) -> read.Pending:
    topic, partition, id = key  # noqa: A001
    return read.Pending(
        topic=topic,
        partition=partition,
        id=id,
        version=word.version,
        due=word.schedule.due,
        timestamp=word.record.timestamp,
        value=word.record.value,
        headers=word.record.headers,
        target=word.schedule.target,
    )
