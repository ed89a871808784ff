"""What waits in a schedules topic, by its log alone: one look for the winners, another for their records.

The first look keeps a few numbers for each id, no payloads; the second reads the records that won. So topics of any
size can be copied. A look at a part of the log, from where an earlier one ended, tells what that part has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from almanac import errors, formats, native, scan, words
from almanac.formats import timers
from almanac.ports import Source
from almanac.record import Record
from almanac.settings import Settings

Tick = Callable[[int], object]
"""Told how many records have been passed since it was last told."""

Judge = Callable[[words.Word], str | None]
"""Says why a word is unfit; None if it is not."""

FORMATS = (*formats.NAMES, formats.BRIDGED)
_TICK = 5_000


class Halted(errors.AlmanacError):
    """A partition holds records that only a newer version of Almanac understands."""


class Winner(NamedTuple):
    """The word that counts for an id, as far as the log was read."""

    offset: int  # of the record that carries it
    version: int
    said: int  # epoch ms: when
    timestamp: int  # epoch ms, as its native copy has it
    due: int  # epoch ms
    unfit: str | None  # why it cannot be copied


class LeftOut(NamedTuple):
    """A record that is not taken over, and why."""

    place: str
    id: bytes
    reason: str


@dataclass
class Part:
    """What one partition says between two offsets."""

    winners: dict[bytes, Winner] = field(default_factory=dict)
    over: dict[bytes, int] = field(default_factory=dict)  # ids of which nothing waits: when that was said, epoch ms


@dataclass
class Survey:
    """What was seen."""

    parts: dict[Source, Part] = field(default_factory=dict)
    unreadable: list[LeftOut] = field(default_factory=list)
    words: int = 0  # records that are schedules


class Surveyor:
    """Reads one topic in one format."""

    def __init__(self, settings: Settings, form: str, topic_id: str, anew: bool = False) -> None:
        """`anew`: timers were brought over from an earlier topic of that name, under ids that now come once more."""
        self._settings, self._topic_id, self._anew = settings, topic_id, topic_id if anew else None
        grace = settings.schedule_grace_interval * 1000
        self._form = None if form == formats.BRIDGED else formats.named(form, grace)

    def read(self, record: Record) -> words.Said:
        """What a record says; a request for a timer is a word under an id of its own."""
        if self._form is not None:
            return words.read(record, self._form, self._topic_id)
        try:
            schedule = timers.read(record)
            own = b"%s%d" % (timers.prefix(record.topic, record.partition, self._anew), record.offset)
            name = timers.name(record, own)
        except formats.Invalid as error:
            return words.Garbage(record, str(error))
        return words.Word(record.offset, record._replace(key=name), schedule, False)

    def look(self, starts: Mapping[Source, int], stops: Mapping[Source, int], judge: Judge, tick: Tick) -> Survey:
        """The winners between these offsets. Raises Halted."""
        found = Survey({source: Part() for source in stops})
        kills: dict[tuple[Source, bytes], int] = {}
        for record in self._ticking(starts, stops, tick):
            source = (record.topic, record.partition)
            part, said = found.parts[source], self.read(record)
            if isinstance(said, words.Halt):
                place = f"{record.topic}/{record.partition}/{record.offset}"
                raise Halted(f"{place}: {said.reason}. Use a newer version of Almanac")
            if isinstance(said, words.Garbage):
                place = f"{record.topic}/{record.partition}/{record.offset}"
                found.unreadable.append(LeftOut(place, record.key or b"", said.reason))
            elif isinstance(said, words.Kill):
                key = record.key or b""
                kills[source, key] = kill = max(said.version, kills.get((source, key), -1))
                winner = part.winners.get(key)
                if winner is None or winner.version <= kill:
                    part.winners.pop(key, None)
                    part.over[key] = record.timestamp
            elif isinstance(said, words.Word):
                found.words += 1
                key = said.record.key or b""
                # Rule 4: a repeat of what an earlier look has seen, or of what is over, says nothing new.
                if said.ours and said.version <= max(starts.get(source, 0) - 1, kills.get((source, key), -1)):
                    continue
                winner = part.winners.get(key)
                if winner is None or said.version >= winner.version:
                    asked = native.wish(said)
                    told, unfit = said.record.timestamp, judge(said)
                    part.winners[key] = Winner(record.offset, said.version, told, asked.timestamp, asked.due, unfit)
                    part.over.pop(key, None)
        return found

    def words(
        self, wanted: Mapping[Source, set[int]], stops: Mapping[Source, int], tick: Tick
    ) -> Iterator[tuple[int, words.Word]]:
        """The offsets and their words, in order within a partition; one that the cleaner took meanwhile is left out."""
        starts = {source: min(offsets) for source, offsets in wanted.items() if offsets}
        ends = {source: min(stops[source], max(wanted[source]) + 1) for source in starts}
        for record in self._ticking(starts, ends, tick):
            if record.offset in wanted[record.topic, record.partition]:
                said = self.read(record)
                if isinstance(said, words.Word):
                    yield record.offset, said

    def _ticking(self, starts: Mapping[Source, int], stops: Mapping[Source, int], tick: Tick) -> Iterator[Record]:
        passed = 0
        for record in scan.read(self._settings, starts, stops, lambda _: True):
            yield record
            passed += 1
            if passed == _TICK:
                tick(passed)
                passed = 0
        tick(passed)
