"""`almanac top`: the overview in a terminal, redrawn every second."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import tzinfo
from typing import TYPE_CHECKING, Annotated, Any

import typer
from confluent_kafka import KafkaException
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from almanac import board, errors, ports, when
from almanac.cli import common, reach, shown
from almanac.settings import Settings

if TYPE_CHECKING:
    from almanac import desk, remote

_COLOURS = {"firing": "green", "ticking": "green", "bridging": "green", "incompatible": "bold red"}
_MOST = 12  # partitions shown; those with something to tell come first
TARGETS = 8


@common.command("schedules_topics", "book_location")
def top(
    settings: Settings,
    every: Annotated[float, typer.Option(min=0.2, max=3600, help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Show one picture, and end.")] = False,
    tz: Annotated[str | None, typer.Option(help="Time zone of what is shown.", show_default="this machine's")] = None,
    api: reach.Api = None,
    as_json: common.Json = False,
) -> None:
    """Watch the scheduler: what waits, what fires and how late, each shard and partition. Ctrl-C ends it.

    Example: [bold]almanac top --api http://almanac:8000[/bold]
    """
    zone = when.zone(tz)
    with reach.at(settings, api) as counter:
        view = counter.overview()
        if once or as_json:
            time.sleep(min(every, 1.2))  # how many a second takes two looks
            view = counter.overview()
            if as_json:
                common.show_json(described(view))
            else:
                common.console().print(picture(view, zone))
            return
        with (
            suppress(KeyboardInterrupt),
            Live(console=common.console(), auto_refresh=False, screen=common.is_terminal()) as live,
        ):
            _watch(counter, view, every, live, zone)


def _watch(counter: desk.Desk | remote.Remote, view: desk.Overview, every: float, live: Live, zone: tzinfo) -> None:
    trouble: str | None = None
    while True:
        live.update(picture(view, zone, trouble), refresh=True)
        time.sleep(every)
        try:
            view, trouble = counter.overview(), None
        except (errors.AlmanacError, KafkaException, ports.Unavailable) as error:  # it may come back
            trouble = errors.brief(error)


def picture(view: desk.Overview, zone: tzinfo, trouble: str | None = None) -> RenderableType:
    """One frame."""
    seen = view.board
    head = Table.grid(padding=(0, 3))
    head.add_row("pending", "fired", "a second", "late (last 10 s)", "next due", "dead letters", style="dim")
    head.add_row(
        f"{seen.pending:,}", f"{seen.fired:,}", f"{seen.per_second:,.0f}", board.lateness(seen),
        board.until(seen.next_due), Text(f"{seen.dead_letters:,}", "yellow" if seen.dead_letters else ""), style="bold",
    )  # fmt: skip
    told = [Text(line, "bold yellow") for line in shown.controlled(view.controls, zone)]
    lost = [Text(f"no answer: {trouble}", "bold red")] if trouble else []
    title = Text.assemble(
        (f"Almanac: group {view.group}", "bold"), (f"   {when.render(view.now // 1000 * 1000, zone)}", "dim")
    )
    return Group(
        title,
        *lost,
        Text(),
        head,
        *told,
        Text(),
        _shards(view),
        *_duties(view),
        Text(),
        _partitions(view),
        *_targets(view),
    )


def _shards(view: desk.Overview) -> RenderableType:
    if not view.shards:
        return Text("no wheel reports: no scheduler of this group runs", "bold red")
    table = _table("shard", "state", "page", "fired", "in memory", "lag", "next due", "clock", "memory", "", "why")
    for each in view.shards:
        status = each.status
        table.add_row(
            str(each.shard), _state(each.state), _number(status.get("page")), _number(status.get("fired")),
            _number(status.get("in_memory")), _number(status.get("lag")), board.until(status.get("next_due")),
            "-" if status.get("clock_ms") is None else f"{status['clock_ms']:+d} ms", _megabytes(status.get("rss")),
            _held(status), Text(each.why or ""),
        )  # fmt: skip
    return table


def _held(status: Any) -> Text:
    apart = sum((status.get("quarantine") or {}).values())
    return Text(f"{apart:,} set apart" if apart else "", "yellow")


def _duties(view: desk.Overview) -> list[RenderableType]:
    return [Text.assemble((f"{name}  ", "dim"), board.duty(status)) for name, status in view.duties.items()]


def _partitions(view: desk.Overview) -> RenderableType:
    """Those with something to tell first."""
    rows = sorted(
        view.partitions, key=lambda each: (each.state == "firing", -(each.lag or 0), each.topic, each.partition)
    )
    table = _table("partition", "state", "shard", "end", "read", "lag", "in the book")
    for each in rows[:_MOST]:
        table.add_row(
            f"{each.topic}/{each.partition}", _state(each.state), str(each.shard) if each.shard >= 0 else "-",
            f"{each.end:,}", _number(each.position), _number(each.lag), _number(each.book),
        )  # fmt: skip
    more = len(rows) - _MOST
    return Group(table, Text(f"and {more:,} more, none of them in worse state", "dim")) if more > 0 else table


def _targets(view: desk.Overview) -> list[RenderableType]:
    fired: dict[str, int] = {}
    for each in view.shards:
        for target, number in (each.status.get("targets") or {}).items():
            fired[target] = fired.get(target, 0) + number
    if not fired:
        return []
    table = _table("target", "fired since the wheels' start")
    for target, number in sorted(fired.items(), key=lambda item: -item[1])[:TARGETS]:
        table.add_row(target, f"{number:,}")
    return [Text(), table]


def described(view: desk.Overview) -> dict[str, Any]:
    """The same for programs."""
    seen = view.board
    return {
        "group": view.group,
        "now_ms": view.now,
        "pending": seen.pending,
        "fired": seen.fired,
        "per_second": round(seen.per_second, 1),
        "late_p50_ms": seen.late_p50,
        "late_p99_ms": seen.late_p99,
        "late_max_ms": seen.late_max,
        "next_due_ms": seen.next_due,
        "dead_letters": seen.dead_letters,
        "halted": list(seen.halted),
        "controls": view.controls.fields(),
        "shards": [
            {"shard": each.shard, "state": each.state, "why": each.why, "reported_ms": each.reported}
            for each in view.shards
        ],
        "partitions": [vars(each) for each in view.partitions],
        "duties": {name: dict(status) for name, status in view.duties.items()},
    }


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for name in columns:
        right = name in ("fired", "in memory", "lag", "end", "read", "in the book", "page", "memory", "clock")
        table.add_column(name, justify="right" if right else "left", no_wrap=name in ("state", "shard", "partition"))
    return table


def _state(state: str) -> Text:
    return Text(state, _COLOURS.get(state, "yellow"))


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _megabytes(value: int | None) -> str:
    return "-" if value is None else f"{value / (1 << 20):,.0f} MB"
