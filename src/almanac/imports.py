"""Brings schedules from a file of JSON lines into a native topic; the same file twice is the same as once.

The file's content is its name: a marker (see `mover`) holds how many of its lines are written, and when the first run
judged them. So a run that was killed is gone on with, and one that ended is not repeated. A line whose id the topic has
heard of since the line's timestamp is left out: whatever was said later counts. Of what came from the file itself its
order tells.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

from almanac import lines, mover, native
from almanac.migrate import Meter
from almanac.mover import Batch, Marker, Mover
from almanac.settings import Settings


class Refusal(NamedTuple):
    """A line that is not imported, and why."""

    line: int
    reason: str


@dataclass
class Report:
    """What an import would do, or did."""

    lines: int = 0
    done: int = 0  # up to which line of the file an earlier run has come
    imported: int = 0
    before: int = 0  # by an earlier run with the same file
    newer: int = 0  # left out: the topic has a word of that time or later
    refused: list[Refusal] = field(default_factory=list)


class Import:
    """One file into one topic. `now` is epoch ms; `file` can be read from its beginning again."""

    def __init__(self, settings: Settings, file: BinaryIO, topic: str, now: int) -> None:
        self._file, self._now = file, now
        self._mover = Mover(settings, topic)
        self._ids: set[bytes] = set()
        self._hash = hashlib.sha256()

    def check(self, again: bool, meter: Meter) -> Report:
        """Reads it through: what would be refused, and who it is about. Writes nothing.

        `again`: also what was imported before, as if this were the first run.
        """
        self._file.seek(0)
        for text in self._file:
            self._hash.update(text)
        report, tick = Report(), meter("checking", 0)
        marker = self._marker()
        if not again:
            report.done = marker["lines"]
            self._now = marker["at"]  # what was good then must not be bad now because its time has come
        for number, found in self._read():
            report.lines += 1
            if isinstance(found, str):
                report.refused.append(Refusal(number, found))
            else:
                self._ids.add(found.id)
            tick(1)
        return report

    def write(self, report: Report, again: bool, meter: Meter) -> None:
        """Imports what `check` found good. `again`: also what was imported before, and whatever was said since."""
        try:
            self._mover.fence()
            self._mover.settle()
            marker = self._marker()
            done = marker["lines"]
            spoken = self._mover.spoken(self._ids) if self._ids else {}
            tick, batch, number = meter("importing", report.lines), Batch(), 0

            def write() -> None:
                self._mover.write(batch.records, self._name, {**marker, "lines": max(number, done)})
                batch.clear()

            for number, found in self._read():
                tick(1)
                if isinstance(found, str):
                    continue
                heard = spoken.get(found.id, [])
                if number <= done and not again:
                    report.before += 1
                elif heard and heard[-1].by != self._name and heard[-1].timestamp >= found.timestamp and not again:
                    report.newer += 1
                else:
                    report.imported += 1
                    if batch.add(found._replace(partition=mover.waiting(heard))):
                        write()
            if number > done or batch.records:
                write()
                self._mover.fence()
        finally:
            self._mover.close()

    @property
    def _name(self) -> str:
        return f"import {self._hash.hexdigest()}"

    def _marker(self) -> Marker:
        """How far an earlier run has come with this file, and when the first one judged it."""
        return self._mover.markers().get(self._name, {"lines": 0, "at": self._now})

    def _read(self) -> Iterator[tuple[int, native.Native | str]]:
        """Line by line: its record, or why it has none."""
        self._file.seek(0)
        for number, text in enumerate(self._file, 1):
            if text.strip():
                yield number, self._record(text)

    def _record(self, text: bytes) -> native.Native | str:
        try:
            made = native.record(lines.read(text, self._now))
        except (lines.BadLine, native.Unfit) as error:
            return str(error)
        return made if self._mover.fits(made) else f"too large for {self._mover.topic}"
