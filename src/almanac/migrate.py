"""Copies what waits in a peer's topic into a native one, exactly once.

Each partition of the peer's topic is gone through in passes, a pass from where the last one ended to where the log ends
now. A pass looks for the winner of each id, then copies the winners in the order of the log, in transactions that move
the partition's marker (see `mover`):

    {"since": 0, "stop": 1200, "offset": 800}     of the pass from 0 to 1200 everything below 800 is copied

Killed in the middle, the next run goes on with the same pass: the same `stop`, so the same winners. A later run makes a
pass over what was written since: updates replace their copies, cancels and the peer's own tombstones cancel them.
If the native topic heard last of an id from that partition, what a later pass finds there is newer: it lies behind in
its log. If anybody else has said something of the id there, the newer word counts, by the records' timestamps.
A word about what waits goes to the partition where it waits; only what does not wait is left to the partitioner.

When the first run began, by which timers are told that were due before, stands in a marker of the topic:

    {"at": 1893456000000}

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

Meter = Callable[[str, int], survey.Tick]
"""Shows progress: given what begins and how many steps it has, returns what to call at each."""


@dataclass
class Report:
    """What a migration would do, or did."""

    waiting: int = 0  # schedules that wait in what was looked at
    copied: int = 0
    cancelled: int = 0  # copies of an earlier run that are over in the peer's topic since
    before: int = 0  # dealt with by a run that did not end
    newer: int = 0  # left out: the native topic has a newer word
    passed: int = 0  # left out: timers that were due when the migration began; nothing says whether they fired
    overdue: int = 0  # of the copied: they fire at once
    refused: list[survey.LeftOut] = field(default_factory=list)
    unreadable: list[survey.LeftOut] = field(default_factory=list)


class _Step(NamedTuple):
    """What a pass has to do in one partition."""

    source: Source
    marker: Marker
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
        self._timers = form == formats.BRIDGED
        self._surveyor = survey.Surveyor(settings, form, found[source])
        self._floor = when.floor(now, settings.since_delta)
        self._name = f"migrate {found[source]}"
        self._sources = scan.partitions(self._admin, [source])
        self._at = now  # when the first run began, once the markers are read

    def look(self, meter: Meter) -> Report:
        """What the next pass would do; writes nothing."""
        report = Report()
        self._plan(self._passes(scan.ends(self._admin, self._sources)), report, meter)
        return report

    def begin(self) -> None:
        """Where there is nothing to copy: remembers that this was the first run, if it was."""
        if not self._timers:
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
            ends = scan.ends(self._admin, self._sources)
            while steps := self._plan(self._passes(ends), report, meter):
                self._copy(steps, meter)
                self._mover.fence()
        finally:
            self._mover.close()
        return report

    def _fence(self) -> None:
        self._mover.fence()
        if self._timers and self._name not in self._mover.markers():
            self._mover.write([], self._name, {"at": self._now})
            self._mover.fence()  # so that it can be read

    def _passes(self, ends: dict[Source, int]) -> dict[Source, Marker]:
        """The pass that each partition is in or has before it."""
        markers = self._mover.markers()
        self._at = markers.get(self._name, {"at": self._now})["at"]
        passes: dict[Source, Marker] = {}
        for source, end in ends.items():
            last = markers.get(self._marker_name(source))
            if last is not None and last["offset"] < last["stop"]:
                passes[source] = last
            elif (last["stop"] if last else 0) < end:
                since = last["stop"] if last else 0
                passes[source] = {"since": since, "stop": end, "offset": since}
        return passes

    def _marker_name(self, source: Source) -> str:
        return f"{self._name}/{source[1]}"

    # What is to be done

    def _judge(self, word: words.Word) -> str | None:
        if word.schedule.due < self._floor:
            return f"missed too long ago: due before {when.render(self._floor, UTC)} (SINCE_DELTA)"
        try:
            return None if self._mover.fits(native.copy(word)) else f"too large for {self._mover.topic}"
        except native.Unfit as error:
            return str(error)

    def _plan(self, passes: dict[Source, Marker], report: Report, meter: Meter) -> list[_Step]:
        if not passes:
            return []
        starts = {source: marker["since"] for source, marker in passes.items()}
        stops = {source: marker["stop"] for source, marker in passes.items()}
        length = sum(stops.values()) - sum(starts.values())
        seen = self._surveyor.look(starts, stops, self._judge, meter("looking", length))
        report.unreadable += seen.unreadable
        ids = {name for part in seen.parts.values() for name in (*part.winners, *part.over)}
        spoken = self._mover.spoken(ids) if ids else {}
        latest = _latest(seen)
        return [self._step(source, passes[source], part, spoken, latest, report) for source, part in seen.parts.items()]

    def _step(
        self, source: Source, marker: Marker, part: survey.Part, spoken: dict[bytes, list[Spoken]],
        latest: dict[bytes, Source], report: Report,
    ) -> _Step:  # fmt: skip
        copies: dict[int, int] = {}
        mine = self._marker_name(source)
        over = dict(part.over)
        for name, winner in part.winners.items():
            place, heard = f"{source[0]}/{source[1]}/{winner.offset}", spoken.get(name, [])
            if self._timers and winner.due <= self._at:
                report.passed += 1  # the same whenever a run is repeated: the peer was stopped then
                continue
            report.waiting += 1
            if winner.offset < marker["offset"]:
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
        ended = over if marker["since"] else {}
        cancels = [
            native.Native(name, None, [], said, heard.partition)
            for name, said in ended.items() if latest.get(name, source) == source
            for heard in spoken.get(name, []) if heard.waits and (heard.by == mine or heard.timestamp <= said)
        ]  # fmt: skip
        report.cancelled += len(cancels)
        return _Step(source, marker, copies, cancels)

    # Doing it

    def _copy(self, steps: list[_Step], meter: Meter) -> None:
        tick = meter("copying", sum(len(step.copies) + len(step.cancels) for step in steps))
        for step in steps:
            name, marker = self._marker_name(step.source), step.marker
            for first in range(0, len(step.cancels), mover.BATCH):
                some = step.cancels[first : first + mover.BATCH]
                self._mover.write(some, name, marker)
                tick(len(some))
            batch = Batch()
            wanted, stops = {step.source: set(step.copies)}, {step.source: marker["stop"]}
            for offset, word in self._surveyor.words(wanted, stops, lambda _: None):
                if batch.add(native.copy(word)._replace(partition=step.copies[offset])):
                    self._mover.write(batch.records, name, {**marker, "offset": offset + 1})
                    tick(len(batch.records))
                    batch.clear()
            self._mover.write(batch.records, name, {**marker, "offset": marker["stop"]})
            tick(len(batch.records))


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
