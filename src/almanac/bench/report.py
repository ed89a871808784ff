"""The figures of a bench, and their ratios to what the machine can do: a table for people, JSON for programs."""

import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from almanac.bench import watch

# What the project asks of the median of three runs: at least so much of the limit, at most so much of the floor.
BARS = {"burst": {"fires_per_s": 0.65}, "steady": {"p50": 0.8, "p99": 1.0}, "live": {"p99": 1.5}}

COLUMNS = (
    "measure", "received", "early", "double", "missing", "fires/s", "p50", "p99", "max", "limit", "ratio", "bar",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Figures:
    """One run of one measure."""

    measure: Literal["burst", "steady", "live"]
    source: Literal["live", "book"]  # where the wheels had the schedules from
    seen: watch.Seen
    limit: int | None = None  # fires a second of bare producers
    floor: watch.Seen | None = None  # their lateness

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.measure}, from the book" if self.source == "book" else self.measure

    @property
    def ratios(self) -> dict[str, float]:
        """Of fires a second to the limit's (more is better), of lateness to the floor's (less is better)."""
        if self.limit is not None:
            return {"fires_per_s": round(self.seen.fires_per_s / self.limit, 3)}
        floor = self.floor.late_ms if self.floor is not None else {}
        late = self.seen.late_ms
        return {name: round(late[name] / floor[name], 3) for name in ("p50", "p99") if late and floor.get(name)}

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        counts = {"double": self.seen.double, "missing": self.seen.missing, "exact": self.seen.exact}
        against: dict[str, Any] = {}
        if self.limit is not None:
            against["limit"] = {"fires_per_s": self.limit}
        if self.floor is not None:
            against["floor"] = {"late_ms": self.floor.late_ms}
        about = {"measure": self.measure, "source": self.source}
        return about | asdict(self.seen) | counts | against | {"ratio": self.ratios, "bar": BARS[self.measure]}


def to_json(runs: Sequence[Figures]) -> dict[str, Any]:
    """All runs, the median ratios, and whether each schedule came once and none early."""
    return {
        "machine": {"cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()},
        "runs": [figures.to_json() for figures in runs],
        "median": {name: _median(some) for name, some in _by_name(runs).items()},
        "exact": all(figures.seen.exact for figures in runs),
    }


def rows(runs: Sequence[Figures]) -> list[tuple[object, ...]]:
    """The lines of the table, with one for the median where there are several runs of a measure."""
    lines: list[tuple[object, ...]] = []
    for name, some in _by_name(runs).items():
        lines += [_row(figures) for figures in some]
        if len(some) > 1:
            blank = [""] * (len(COLUMNS) - 3)
            lines.append((f"{name}: median", *blank, _ratios(_median(some)), _ratios(BARS[some[0].measure])))
    return lines


def _row(figures: Figures) -> tuple[object, ...]:
    seen, late = figures.seen, figures.seen.late_ms
    if figures.limit is not None:
        against = f"{figures.limit:,}/s"
    else:
        floor = figures.floor.late_ms if figures.floor is not None else {}
        against = f"p50 {floor.get('p50', '-')} p99 {floor.get('p99', '-')} ms"
    times = (f"{late[name]} ms" if late else "-" for name in ("p50", "p99", "max"))
    return (
        figures.name, f"{seen.received:,} of {seen.expected:,}", seen.early, seen.double, seen.missing,
        f"{seen.fires_per_s:,}", *times, against, _ratios(figures.ratios), _ratios(BARS[figures.measure]),
    )  # fmt: skip


def _ratios(ratios: dict[str, float]) -> str:
    if set(ratios) == {"fires_per_s"}:
        return f"{ratios['fires_per_s']:.2f}"
    return " ".join(f"{name} {value:.2f}" for name, value in ratios.items())


def _by_name(runs: Sequence[Figures]) -> dict[str, list[Figures]]:
    found: dict[str, list[Figures]] = {}
    for figures in runs:
        found.setdefault(figures.name, []).append(figures)
    return found


def _median(runs: Sequence[Figures]) -> dict[str, float]:
    names = runs[0].ratios
    return {name: round(statistics.median(each.ratios.get(name, 0.0) for each in runs), 3) for name in names}
