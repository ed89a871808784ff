"""Copies what waits in a peer's topic into a native one, exactly once.

The peer's topic is gone through in passes, a pass from where the last one ended to where the log ends now, partition by
partition. A pass looks for the winner of each id, then copies the winners in the order of the log, in transactions that
move the topic's marker (see `mover`):

    {"topic": "peer", "format": "timers", "at": 1893456000000,    when the first run began: timers due before have fired
     "passes": [[0, 1200, 800], ...]}    partition 0: of the pass from 0 to 1200 everything below 800 is copied

Killed in the middle, the next run goes on with the same pass through all partitions: it ends where that ended, so the
winners are the same. A later run makes a pass over what was written since: updates replace their copies, cancels and
the peer's own tombstones cancel them. If the native topic heard last of an id from that partition, what a later pass
finds there is newer: it lies behind in its log. If anybody else has said something of the id there, the newer word
counts, by the records' timestamps. A cancel never ends what another partition of the peer's topic brought: ids are the
partition's. A word about what waits goes to the partition where it waits; only what does not wait is left to the
partitioner.

The peer's topic is read, never written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC
from typing import NamedTuple

from almanac import errors, formats, kafka, mover, native, scan, survey, topics, when, words
from almanac.mover import Batch, Marker, Mover, Spoken
from almanac.ports import Source
from almanac.settings import Settings

_MIGRATE = "migrate "  # begins the names of markers

Meter = Callable[[str, int], survey.Tick]
"""Shows progress: given what begins and how many steps it has, returns what to call at each."""


@dataclass
class Report:
    """What a migration would do, or did."""

    waiting: int = 0  # schedules that wait in what was looked at
    copied: int = 0
    gone: int = 0  # not copied any more: the cleaner took them for something newer, which the next run finds
    cancelled: int = 0  # copies of an earlier run that are over in the peer's topic since
    before: int = 0  # dealt with by a run that did not end
    newer: int = 0  # left out: the native topic has a newer word
    passed: int = 0  # left out: timers that were due when the migration began; nothing says whether they fired
    overdue: int = 0  # of the copied: they fire at once
    hidden: int = 0  # records behind an open transaction in the peer's topic: the next run finds them
    alien: bool = False  # nothing of the topic could ever be read in this format
    refused: list[survey.LeftOut] = field(default_factory=list)
    unreadable: list[survey.LeftOut] = field(default_factory=list)


class _Pass(NamedTuple):
    """Through one partition: where it begins, where it ends, and up to where all is done."""

    since: int = 0
    stop: int = 0
    offset: int = 0


class _Step(NamedTuple):
    """What a pass has to do in one partition."""

    source: Source
    copies: dict[int, int]  # offsets, and to which partition of the native topic: -1 is left to the partitioner
    cancels: list[native.Native]


class Migration:
    """From one topic into another. `now` is epoch ms."""

    def __init__(self, settings: Settings, source: str, form: str, topic: str, now: int) -> None:
        if form not in survey.FORMATS:
            raise errors.UsageError(f"--format {form!r} is not known; known are {', '.join(survey.FORMATS)}")
        if source in (*settings.topics, *settings.request_topics):
            raise errors.UsageError(
                f"--from-topic {source!r} is in SCHEDULES_TOPICS: the scheduler fires from it already, and copies "
                "would fire once more. Take it out there, or leave its schedules where they are"
            )
        self._settings, self._now = settings, now
        self._admin = kafka.admin_client(settings)
        found = topics.topic_ids(self._admin, [source])
        if source not in found:
            raise errors.UsageError(f"--from-topic {source!r} does not exist")
        self._mover = Mover(settings, topic)
        self._topic, self._topic_id, self._form = source, found[source], form
        self._floor = when.floor(now, settings.since_delta)
        self._sources = scan.partitions(self._admin, [source])

    def look(self, meter: Meter) -> Report:
        """What the next pass would do; writes nothing."""
        report = Report()
        self._recall()
        self._plan(self._passes(self._ends(report)), report, meter)
        return report

    def begin(self) -> None:
        """Where there is nothing to copy: remembers that this was the first run, if it was."""
        if self._form != formats.BRIDGED:
            return
        try:
            self._fence()
        finally:
            self._mover.close()

    def copy(self, meter: Meter) -> Report:
        """Does it: a pass that was not ended, then one up to where the log ended when this began."""
        report = Report()
        try:
            self._fence()
            ends = self._ends(report)
            while steps := self._plan(self._passes(ends), report, meter, settled=True):
                report.gone += self._copy(steps, meter)
                self._mover.fence()
                self._recall()
        finally:
            self._mover.close()
        report.copied -= report.gone
        return report

    def _fence(self) -> None:
        self._mover.fence()
        self._recall()
        if self._form == formats.BRIDGED and not self._known:
            self._mover.write([], self._name, self._marker)
            self._mover.fence()  # so that it can be read
            self._recall()

    def _recall(self) -> None:
        """What earlier runs have noted. Raises UsageError if they read another format."""
        markers = self._mover.markers()
        mine = markers.get(self._name)
        self._known = mine is not None
        self._marker: Marker = mine or {"topic": self._topic, "format": self._form, "at": self._now, "passes": []}
        others = [each for name, each in markers.items() if name.startswith(_MIGRATE) and name != self._name]
        if any("topic" not in each for each in (*others, self._marker)):  # who guessed would copy what has fired
            raise errors.AlmanacError(
                f"{self._mover.log} has markers that this version of Almanac does not know. Nothing was written: go on "
                "with the version that wrote them, or migrate into another native topic"
            )
        if self._marker["format"] != self._form:
            raise errors.UsageError(
                f"--format {self._form!r}: earlier runs have read {self._topic} as {self._marker['format']}, and what "
                "this one cannot read would be passed over for good. Use the same format"
            )
        anew = any(each["topic"] == self._topic for each in others)
        self._surveyor = survey.Surveyor(self._settings, self._form, self._topic_id, anew)

    def _ends(self, report: Report) -> dict[Source, int]:
        highs = scan.highs(self._admin, self._sources)
        ends = scan.ends(self._admin, self._sources)
        report.hidden = sum(max(0, high - ends[source]) for source, high in highs.items())
        return ends

    def _passes(self, ends: dict[Source, int]) -> dict[Source, _Pass]:
        """The passes that an earlier run did not end, those that it ended among them; else the next ones."""
        last = [_Pass(*each) for each in self._marker["passes"]]
        last += [_Pass()] * (len(self._sources) - len(last))  # partitions that were added
        if all(each.offset == each.stop for each in last):
            last = [_Pass(each.stop, max(each.stop, ends[self._topic, n]), each.stop) for n, each in enumerate(last)]
        self._marker = {**self._marker, "passes": last}
        return {(self._topic, n): each for n, each in enumerate(last) if each.since < each.stop}

    @property
    def _name(self) -> str:
        return f"{_MIGRATE}{self._topic_id}"

    def _source_name(self, source: Source) -> str:
        return f"{self._name}/{source[1]}"

    # What is to be done

    def _judge(self, word: words.Word) -> str | None:
        if max(word.schedule.due, word.record.timestamp) < self._floor:  # one that asks for the past was not missed
            return f"missed too long ago: due before {when.render(self._floor, UTC)} (SINCE_DELTA)"
        try:
            return None if self._mover.fits(native.copy(word)) else f"too large for {self._mover.topic}"
        except native.Unfit as error:
            return str(error)

    def _plan(
        self, passes: dict[Source, _Pass], report: Report, meter: Meter, settled: bool = False
    ) -> list[_Step]:  # fmt: skip
        """`settled`: to be done, not only shown, so nothing may be hidden."""
        if all(each.offset == each.stop for each in passes.values()):
            return []
        starts = {source: each.since for source, each in passes.items()}
        stops = {source: each.stop for source, each in passes.items()}
        length = sum(stops.values()) - sum(starts.values())
        seen = self._surveyor.look(starts, stops, self._judge, meter("looking", length))
        report.unreadable += seen.unreadable
        report.alien = bool(seen.unreadable) and not seen.words and not self._known
        ids = {name for part in seen.parts.values() for name in (*part.winners, *part.over)}
        if ids and settled:
            self._mover.settle()
        spoken = self._mover.spoken(ids) if ids else {}
        latest = _latest(seen)
        return [self._step(source, passes[source], part, spoken, latest, report) for source, part in seen.parts.items()]

    def _step(
        self, source: Source, through: _Pass, part: survey.Part, spoken: dict[bytes, list[Spoken]],
        latest: dict[bytes, Source], report: Report,
    ) -> _Step:  # fmt: skip
        copies: dict[int, int] = {}
        mine = self._source_name(source)
        over = dict(part.over)
        for name, winner in part.winners.items():
            place, heard = f"{source[0]}/{source[1]}/{winner.offset}", spoken.get(name, [])
            if self._form == formats.BRIDGED and winner.due <= self._marker["at"]:
                report.passed += 1  # the same whenever a run is repeated: the peer was stopped then
                continue
            report.waiting += 1
            if winner.offset < through.offset:
                report.before += 1
            elif winner.unfit is not None:
                report.refused.append(survey.LeftOut(place, name, winner.unfit))
                over[name] = winner.said  # an earlier version that was copied is replaced all the same
            elif latest[name] != source:
                reason = f"partition {latest[name][1]} has a newer schedule of this id, and ids are unique here"
                report.refused.append(survey.LeftOut(place, name, reason))
            elif _newer(heard, winner, mine):
                report.newer += 1
            else:
                copies[winner.offset] = mover.waiting(heard)
                report.overdue += winner.due < self._now
        report.copied += len(copies)
        # The first pass has no copies to cancel; what waits in another partition replaces its copy.
        ended = over if through.since else {}
        cancels = [
            native.Native(name, None, [], said, heard.partition)
            for name, said in ended.items() if latest.get(name, source) == source
            for heard in spoken.get(name, []) if heard.waits and self._ends_it(heard, said, mine)
        ]  # fmt: skip
        report.cancelled += len(cancels)
        return _Step(source, copies, cancels)

    def _ends_it(self, heard: Spoken, said: int, mine: str) -> bool:
        """Is what waits over, since one partition of the peer's topic said so at that time?"""
        if heard.by is not None and heard.by.startswith(f"{self._name}/"):
            return heard.by == mine  # another partition's id is another one
        return heard.timestamp <= said

    # Doing it

    def _copy(self, steps: list[_Step], meter: Meter) -> int:
        """Writes what is to be done; says how many copies could not be made, since the cleaner was there first."""
        tick = meter("copying", sum(len(step.copies) + len(step.cancels) for step in steps))
        passes: list[_Pass] = self._marker["passes"]
        gone = 0

        def write(source: Source, records: list[native.Native], upto: int | None = None) -> None:
            if upto is not None:
                passes[source[1]] = passes[source[1]]._replace(offset=upto)
            noted = {**self._marker, "passes": [list(each) for each in passes]}
            self._mover.write(records, self._name, noted, by=self._source_name(source))
            tick(len(records))

        for source, copies, cancels in steps:
            for first in range(0, len(cancels), mover.BATCH):
                write(source, cancels[first : first + mover.BATCH])
            batch, stop, found = Batch(), passes[source[1]].stop, 0
            for offset, word in self._surveyor.words({source: set(copies)}, {source: stop}, lambda _: None):
                found += 1
                if batch.add(native.copy(word)._replace(partition=copies[offset])):
                    write(source, batch.records, offset + 1)
                    batch.clear()
            if passes[source[1]].offset < stop:
                write(source, batch.records, stop)
            gone += len(copies) - found
        return gone


def _latest(seen: survey.Survey) -> dict[bytes, Source]:
    """Where the newest schedule of each id is: peers that were fed by several partitioners have some twice."""
    found: dict[bytes, tuple[int, Source]] = {}
    for source, part in seen.parts.items():
        for name, winner in part.winners.items():
            found[name] = max(found.get(name, (-1, source)), (winner.said, source))
    return {name: source for name, (_, source) in found.items()}


def _newer(heard: list[Spoken], winner: survey.Winner, mine: str) -> bool:
    """Has the native topic a newer word? Not if the last is our own copy from here; one as old is the same word."""
    if not heard or heard[-1].by == mine:
        return False
    return heard[-1].timestamp >= winner.said or heard[-1].timestamp == winner.timestamp
