"""What waits now: the book, and on top of it what the log has said since (rules 3 and 4)."""

from __future__ import annotations

from dataclasses import dataclass

from almanac import formats, kafka, scan, topics, words
from almanac.book import read
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


def pending(settings: Settings, limit: int, topic: str | None = None) -> list[read.Pending]:
    """The next schedules by due time; without a book, the schedules topics are read from their beginning."""
    admin = kafka.admin_client(settings)
    names = [topic] if topic is not None else list(settings.topics)
    sources = scan.partitions(admin, names)
    stops = scan.ends(admin, sources)
    book = _book(settings)
    offsets = book.offsets() if book else {}
    # A book that speaks of more than there is belongs to an earlier topic of that name.
    stale = {name for (name, number), offset in offsets.items() if offset > stops.get((name, number), offset)}
    starts = {source: offset for source, offset in offsets.items() if source in stops and source[0] not in stale}
    since = _since(settings, starts, stops, topics.topic_ids(admin, names))
    found = [_pending(key, word) for key, said in since.items() if (word := said.pending()) is not None]
    if book:
        # Every key that the log speaks of may take a row away: that many more are asked for.
        for name in (name for name in names if name not in stale):
            rows = book.pending(limit + len(since), topic=name)
            found += [row for row in rows if not since.get(_key(row), Since()).hides(row.version)]
    return sorted(found, key=lambda row: (row.due, row.version))[:limit]


def _book(settings: Settings) -> read.Reader | None:
    try:
        return read.Reader(settings.book_folder)
    except read.NoBook:
        return None


def _key(row: read.Pending) -> Key:
    return row.topic, row.partition, row.id


def _since(
    settings: Settings, starts: dict[Source, int], stops: dict[Source, int], topic_ids: dict[str, str]
) -> dict[Key, Since]:
    grace = settings.schedule_grace_interval * 1000
    forms = {topic: formats.named(name, grace) for topic, name in settings.schedules_topics}
    found: dict[Key, Since] = {}
    for record in scan.read(settings, starts, stops, lambda _: True):
        said = words.read(record, forms[record.topic], topic_ids[record.topic])
        key = (record.topic, record.partition, record.key or b"")
        if isinstance(said, words.Kill):
            state = found.setdefault(key, Since())
            state.kill = max(state.kill, said.version)
        elif isinstance(said, words.Word):
            # A repeat of what the book has read: the book knows better whether it still counts.
            if said.ours and said.version < starts.get((record.topic, record.partition), 0):
                continue
            state = found.setdefault(key, Since())
            if state.word is None or said.version > state.word.version:
                state.word = said
    return found


def _pending(key: Key, word: words.Word) -> read.Pending:
    topic, partition, id = key  # noqa: A001
    return read.Pending(
        topic=topic,
        partition=partition,
        id=id,
        version=word.version,
        due=word.schedule.due,
        timestamp=word.record.timestamp,
        value=word.record.value or b"",
        headers=word.record.headers,
        target=word.schedule.target,
    )
