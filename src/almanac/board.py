"""The live status: pending, fired, lateness, next due, and the state of each shard, for a terminal or a log."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from almanac import tally

WINDOW = 10.0  # seconds that rates and lateness are taken over
SILENT = 5_000  # ms without a report after which a shard's state is not known


@dataclass(frozen=True)
class Overview:
    """The whole scheduler in a few numbers."""

    pending: int
    fired: int
    per_second: float
    late_p50: int | None  # ms, upper bounds
    late_p99: int | None
    late_max: int | None
    next_due: int | None  # epoch ms
    dead_letters: int
    states: Mapping[int, str]
    halted: tuple[str, ...]  # partitions with a record that only a newer version understands


class Board:
    """Keeps what the wheels reported over the last seconds."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._counts: list[tuple[float, int, list[int]]] = []  # when, fired, lateness so far

    def overview(self, in_book: Mapping[int, int], statuses: Mapping[int, dict[str, Any]]) -> Overview:
        """Adds the wheels up; `in_book` is what the book had as of each page."""
        now = time.monotonic()
        pages = [status["page"] for status in statuses.values() if status.get("page") in in_book]
        base = in_book[min(pages)] if pages else max(in_book.values(), default=0)
        fired = sum(status.get("fired", 0) for status in statuses.values())
        late = [sum(column) for column in zip(*(s["late"] for s in statuses.values() if "late" in s), strict=True)]
        late = late or [0] * (len(tally.BOUNDS) + 1)
        if self._counts and fired < self._counts[-1][1]:
            self._counts.clear()  # a wheel was started again and counts anew
        self._counts.append((now, fired, late))
        while len(self._counts) > 2 and self._counts[1][0] < now - WINDOW:
            self._counts.pop(0)
        since, before, late_before = self._counts[0]
        recent = [max(0, a - b) for a, b in zip(late, late_before, strict=True)]
        dues = [status["next_due"] for status in statuses.values() if status.get("next_due") is not None]
        return Overview(
            pending=max(0, base + sum(status.get("net", 0) for status in statuses.values())),
            fired=fired,
            per_second=(fired - before) / max(1.0, now - since),
            late_p50=tally.quantile(recent, 0.5),
            late_p99=tally.quantile(recent, 0.99),
            late_max=max((s["recent_max"] for s in statuses.values() if s.get("recent_max")), default=None),
            next_due=min(dues, default=None),
            dead_letters=sum(sum(status.get("dead_letters", {}).values()) for status in statuses.values()),
            states={shard: state(status) for shard, status in sorted(statuses.items())},
            halted=tuple(f"{topic}/{partition}" for topic, partition, _ in _halted(statuses)),
        )

    def line(self, view: Overview, duties: Mapping[str, dict[str, Any]] | None = None) -> str:
        """One line for a log."""
        states = ", ".join(f"{shard} {state}" for shard, state in view.states.items())
        return (
            f"pending {view.pending:,}  fired {view.fired:,} ({view.per_second:.0f}/s)  {_lateness(view)}  "
            f"next {_until(view.next_due)}  shards: {states or 'none yet'}"
            + "".join(f"  {name}: {_duty(status)}" for name, status in (duties or {}).items())
            + (f"  INCOMPATIBLE, upgrade Almanac: {', '.join(view.halted)}" if view.halted else "")
        )

    def picture(
        self,
        view: Overview,
        statuses: Mapping[int, dict[str, Any]],
        duties: Mapping[str, dict[str, Any]] | None = None,
    ) -> RenderableType:
        """The same for a terminal, with the shards one by one."""
        head = Table.grid(padding=(0, 3))
        head.add_row("pending", "fired", "a second", "late (last 10 s)", "next due", "dead letters", style="dim")
        head.add_row(
            f"{view.pending:,}", f"{view.fired:,}", f"{view.per_second:,.0f}", _lateness(view), _until(view.next_due),
            f"{view.dead_letters:,}", style="bold",
        )  # fmt: skip
        shards = Table(box=None, header_style="dim", pad_edge=False)
        for name in ("shard", "state", "page", "fired", "in memory", "next due", ""):
            shards.add_column(name)
        for shard, status in sorted(statuses.items()):
            said = state(status)
            style = "green" if said == "firing" else "yellow"
            shards.add_row(
                str(shard), Text(said, style), str(status.get("page")), f"{status.get('fired', 0):,}",
                f"{status.get('in_memory', 0):,}", _until(status.get("next_due")), Text(status.get("why") or ""),
            )  # fmt: skip
        beside = [Text.assemble((f"{name}  ", "dim"), _duty(status)) for name, status in (duties or {}).items()]
        halted = [
            Text(f"{topic}/{partition} is incompatible and halts at {why}", "bold red")
            for topic, partition, why in _halted(statuses)
        ]
        return Group(Text(self._title, "bold"), head, Text(), shards, *beside, *halted)


def state(status: Mapping[str, Any]) -> str:
    """A shard's, from its wheel's last report."""
    silent = time.time() * 1000 - status.get("reported", 0)
    return f"silent for {silent / 1000:.0f} s" if silent > SILENT else status.get("state", "?")


def _halted(statuses: Mapping[int, dict[str, Any]]) -> list[tuple[str, int, str]]:
    return sorted((topic, partition, why) for s in statuses.values() for topic, partition, why in s.get("halted", ()))


def _duty(status: Mapping[str, Any]) -> str:
    done = [f"{status[name]:,} {name}" for name in ("bridged", "ticks") if name in status]
    dead = sum(status.get("dead_letters", {}).values())
    done += [f"{dead:,} dead letters"] if dead else []
    done += [f"{status['lost']:,} lost"] if status.get("lost") else []
    done += [f"{status['behind']:,} behind"] if status.get("behind") else []
    why = f": {status['why']}" if status.get("why") else ""
    return f"{state(status)}{why} ({', '.join(done)})"


def _lateness(view: Overview) -> str:
    if view.late_p50 is None:
        return "nothing fired lately"
    return f"p50 ≤{view.late_p50} p99 ≤{view.late_p99} ms"


def _until(due: int | None) -> str:
    if due is None:
        return "-"
    seconds = due / 1000 - time.time()
    if seconds <= 0:
        return "now"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"in {seconds / size:.0f} {unit}"
    return f"in {seconds:.0f} s"
