"""Brings schedules from a file of JSON lines into a native topic; the same file twice is the same as once.

The file's content is its name: how many of its lines are written stands in a marker (see `mover`), so that a run that
was killed is gone on with, and one that ended is not repeated. A line whose id the topic has heard of since the line's
timestamp is left out: whatever was said later counts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

from almanac import lines, native
from almanac.migrate import Meter
from almanac.mover import Batch, Mover
from almanac.settings import Settings


class Refusal(NamedTuple):
    """A line that is not imported, and why."""

    line: int
    reason: str


@dataclass
class Report:
    """What an import would do, or did."""

    lines: int = 0
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

    def check(self, meter: Meter) -> Report:
        """Reads it through: what would be refused, and who it is about. Writes nothing."""
        report, tick = Report(), meter("checking", 0)
        for number, found in self._read(self._hash.update):
            report.lines += 1
            if isinstance(found, str):
                report.refused.append(Refusal(number, found))
            else:
                self._ids.add(found.id)
            tick(1)
        return report

    def write(self, report: Report, again: bool, meter: Meter) -> None:
        """Imports what `check` found good. `again`: also what was imported before, and whatever was said since."""
        name = f"import {self._hash.hexdigest()}"
        try:
            self._mover.fence()
            done = self._mover.markers().get(name, {"lines": 0})["lines"]
            spoken = {} if again or not self._ids else self._mover.spoken(self._ids)
            tick, batch, number = meter("importing", report.lines), Batch(), 0
            for number, found in self._read(lambda _: None):
                tick(1)
                if isinstance(found, str):
                    continue
                heard = spoken.get(found.id)
                if number <= done and not again:
                    report.before += 1
                elif heard is not None and heard.timestamp >= found.timestamp:
                    report.newer += 1
                else:
                    report.imported += 1
                    if batch.add(found):
                        self._mover.write(batch.records, name, {"lines": max(number, done)})
                        batch.clear()
            if number > done or batch.records:
                self._mover.write(batch.records, name, {"lines": max(number, done)})
                self._mover.fence()
        finally:
            self._mover.close()

    def _read(self, hear: Callable[[bytes], object]) -> Iterator[tuple[int, native.Native | str]]:
        """Line by line: its record, or why it has none."""
        self._file.seek(0)
        for number, text in enumerate(self._file, 1):
            hear(text)
            if text.strip():
                yield number, self._record(text)

    def _record(self, text: bytes) -> native.Native | str:
        try:
            made = native.record(lines.read(text, self._now))
        except (lines.BadLine, native.Unfit) as error:
            return str(error)
        return made if self._mover.fits(made) else f"too large for {self._mover.topic}"
