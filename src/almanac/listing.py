"""What the log has said behind the book, key by key (rules 3 and 4)."""

from __future__ import annotations

from dataclasses import dataclass

from almanac import formats, scan, words
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


def since(
    settings: Settings, starts: dict[Source, int], stops: dict[Source, int], topic_ids: dict[str, str]
) -> tuple[dict[Key, Since], dict[Source, int]]:
    """What the log says between these offsets, and up to where it could be read: a partition may halt before."""
    grace = settings.schedule_grace_interval * 1000
    forms = {topic: formats.named(name, grace) for topic, name in settings.sources}
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
