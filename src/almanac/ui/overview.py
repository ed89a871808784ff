"""The scheduler at one glance, and live."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from nicegui import ui

from almanac import desk
from almanac.ui import charts, frame, limits, tags, times
from almanac.ui.tags import Column

_GOOD = ("firing",)
_WAITING = ("paused", "catching-up", "starting", "fencing")


def mood(state: str) -> str:
    """The colour of a wheel's or a partition's state."""
    if state in _GOOD:
        return "good"
    return "warn" if state.startswith(_WAITING) else "bad"


class _Part:
    """A piece that is made again only when what it shows has changed: nothing flickers, nothing loses its place."""

    def __init__(self) -> None:
        self._box = tags.tag("div", classes="al-body")
        self._shown: Hashable = None

    def show(self, what: Hashable, build: Callable[[], object]) -> None:
        if what == self._shown:
            return
        self._shown = what
        self._box.clear()
        with self._box:
            build()


class _Figure:
    def __init__(self, name: str) -> None:
        with tags.tag("div", classes="al-figure"):
            tags.tag("dt", name)
            self._value = tags.words("–", name="dd")
            self._note = tags.words("", "al-note", "dd")

    def show(self, value: str, note: str = "") -> None:
        self._value.set_text(value)
        self._note.set_text(note)


@frame.page("/", "Overview")
async def overview(viewer: frame.Viewer) -> None:
    watch = viewer.site.watch
    notes = _Part()
    with tags.tag("dl", classes="al-figures"):
        names = ("Pending", "Next due", "Fires per second", "Late, p99", "Fired", "Dead letters", "Shards", "Behind")
        figures = {name: _Figure(name) for name in names}
    with tags.tag("div", classes="al-columns"):
        with tags.sheet("Fires per second"):
            rate = _chart("Fires per second over the last ten minutes", charts.rate([], viewer.dark))
        with tags.sheet("Lateness"):
            late = _chart("Lateness over the last ten minutes", charts.lateness([], viewer.dark))
    with tags.tag("div", classes="al-columns"):
        with tags.sheet("Shards"):
            shards = _Part()
        with tags.sheet("Controls in force"):
            controls = _Part()
    with tags.sheet(""), tags.tag("details", classes="al-more"):
        tags.tag("summary", "Partitions")
        partitions = _Part()

    def draw() -> None:
        samples = list(watch.samples)
        for chart, options in (
            (rate, charts.rate(samples, viewer.dark)),
            (late, charts.lateness(samples, viewer.dark)),
        ):
            chart.options.clear()
            chart.options.update(options)
            chart.update()

    def tick() -> None:
        watch.look()
        seen = watch.last
        notes.show(_trouble(seen, watch.problem), lambda: _notes(seen, watch.problem))
        if seen is None:
            return
        _figures(figures, seen, viewer)
        shown = tuple((each.shard, each.state, each.why, _lag(each), each.status.get("page")) for each in seen.shards)
        shards.show(shown or "none", lambda: _shards(seen))
        controls.show(repr(seen.controls), lambda: limits.in_force(seen.controls, viewer))
        partitions.show(repr(seen.partitions), lambda: _partitions(seen))
        draw()

    viewer.themed.append(draw)
    ui.timer(1.0, tick)


def _chart(label: str, options: charts.Options) -> ui.echart:
    chart = ui.echart(options).classes("al-chart")
    chart.props["role"] = "img"
    chart.props["aria-label"] = label
    return chart


def _lag(shard: desk.Shard) -> int | None:
    lag = shard.status.get("lag")
    return int(lag) if lag is not None else None


def _trouble(seen: desk.Overview | None, problem: str | None) -> Hashable:
    if seen is None:
        return problem or "waiting"
    return problem, seen.controls.paused, seen.board.halted, tuple((s.shard, s.state, s.why) for s in seen.shards)


def _notes(seen: desk.Overview | None, problem: str | None) -> None:
    """What needs somebody's attention."""
    if problem is not None:
        tags.notice("bad", "The numbers are old", problem, role="alert")
    if seen is None:
        if problem is None:
            tags.notice("", "Asking the scheduler …")
        return
    if seen.controls.paused:
        with tags.notice("warn", "Everything is paused", "Nothing is fired until it is resumed; nothing is lost."):
            tags.link("To the controls", "/ui/controls")
    if seen.board.halted:
        tags.notice(
            "bad",
            f"Halted: {', '.join(seen.board.halted)}",
            "A record there needs a newer version of Almanac. Upgrade, and it goes on from there.",
        )
    if not seen.shards:
        tags.notice("bad", "No wheel has reported", "Does the scheduler run?")
    for shard in seen.shards:
        if mood(shard.state) == "bad":
            tags.notice("bad", f"Shard {shard.shard}: {shard.state}", shard.why or "")


def _figures(figures: dict[str, _Figure], seen: desk.Overview, viewer: frame.Viewer) -> None:
    board = seen.board
    figures["Pending"].show(f"{board.pending:,}")
    if board.next_due is None:
        figures["Next due"].show("–", "nothing soon")
    else:
        figures["Next due"].show(times.away(board.next_due, seen.now), times.show(board.next_due, viewer.zone))
    figures["Fires per second"].show(
        f"{board.per_second:,.0f}" if board.per_second >= 10 else f"{board.per_second:.1f}"
    )
    rest = f"p50 {times.span(board.late_p50)}, max {times.span(board.late_max)}"
    figures["Late, p99"].show(
        times.span(board.late_p99), rest if board.late_p99 is not None else "nothing fired lately"
    )
    figures["Fired"].show(f"{board.fired:,}", "since the wheels started")
    figures["Dead letters"].show(f"{board.dead_letters:,}", "since the wheels started")
    firing = sum(state == "firing" for state in board.states.values())
    figures["Shards"].show(f"{firing} of {len(board.states)}", "firing")
    lags = [each.lag for each in seen.partitions if each.lag is not None]
    figures["Behind"].show(f"{sum(lags):,}" if lags else "–", "records not read yet")


def _shards(seen: desk.Overview) -> None:
    if not seen.shards:
        tags.empty("hourglass_empty", "No wheel has reported yet")
        return
    columns = (Column("Shard"), Column("State"), Column("Page", "al-number"), Column("Behind", "al-number"))
    rows = []
    for shard in seen.shards:
        lag, page = _lag(shard), shard.status.get("page")

        def state(shard: desk.Shard = shard) -> None:
            tags.mark(shard.state, mood(shard.state))
            if shard.why:
                tags.tag("span", shard.why, "al-under")

        number = f"Shard {shard.shard}"
        rows.append((number, state, "–" if page is None else str(page), "–" if lag is None else f"{lag:,}"))
    tags.table("The wheels", columns, rows)


def _partitions(seen: desk.Overview) -> None:
    if not seen.partitions:
        tags.empty("hourglass_empty", "No partition is known yet")
        return
    columns = (
        Column("Partition"),
        Column("Shard", "al-number"),
        Column("State"),
        Column("Read up to", "al-number"),
        Column("End", "al-number"),
        Column("Behind", "al-number"),
        Column("Book", "al-number"),
    )
    rows: list[tuple[tags.Cell, ...]] = []
    for each in seen.partitions:

        def state(each: desk.Partition = each) -> None:
            tags.mark(each.state, mood(each.state))
            if each.why:
                tags.tag("span", each.why, "al-under")

        numbers = (each.position, each.end, each.lag, each.book)
        told = ["–" if number is None else f"{number:,}" for number in numbers]
        rows.append((f"{each.topic}/{each.partition}", str(each.shard), state, *told))
    tags.table("The partitions of the schedules topics", columns, rows)
