"""What is due when: bars of an hour or a day, to zoom into."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from nicegui import ui

from almanac import desk, errors
from almanac.ui import charts, frame, payloads, site, tags, times
from almanac.ui.tags import Column

_STEP_MS: Final = {"hour": 3_600_000, "day": 86_400_000}
_BARS = 2_500  # more are shown without the empty ones between them
_TARGETS = 6  # that have a colour of their own
_OTHERS = "all others"
_ROWS = 60  # of the table
_RANGES: Final = (
    ("24h", "24 hours", "hour", 86_400_000),
    ("7d", "7 days", "hour", 7 * 86_400_000),
    ("30d", "30 days", "day", 30 * 86_400_000),
    ("1y", "A year", "day", 366 * 86_400_000),
    ("all", "All", "day", None),
)


@dataclass(frozen=True)
class Bars:
    """Counts, ready for a chart."""

    starts: list[int]
    by_target: dict[str, list[int]]

    @property
    def totals(self) -> list[int]:
        return [sum(numbers) for numbers in zip(*self.by_target.values(), strict=True)] or [0] * len(self.starts)


def bars(counts: Sequence[desk.Count], step: str) -> Bars:
    """One bar for each step from the first to the last, the empty ones too where there are not too many of them."""
    if not counts:
        return Bars([], {})
    width = _STEP_MS[step]
    first, last = min(each.start for each in counts), max(each.start for each in counts)
    if (last - first) // width < _BARS:
        starts = list(range(first, last + 1, width))
    else:
        starts = sorted({each.start for each in counts})
    place = {start: at for at, start in enumerate(starts)}
    sizes: Counter[str] = Counter()
    for each in counts:
        sizes[each.target] += each.number
    named = [target for target, _ in sizes.most_common(_TARGETS)]
    names = [*named, _OTHERS] if len(sizes) > _TARGETS else named
    by_target = {name: [0] * len(starts) for name in names}
    for each in counts:
        by_target[each.target if each.target in named else _OTHERS][place[each.start]] += each.number
    return Bars(starts, by_target)


@frame.page("/ui/timeline", "Timeline")
async def timeline(viewer: frame.Viewer) -> None:
    chosen = next((each for each in _RANGES if each[0] == viewer.text("range")), _RANGES[1])
    name, _, usual, length = chosen
    step: Literal["hour", "day"] = "day" if (viewer.text("by") or usual) == "day" else "hour"
    target = viewer.text("target")
    now = viewer.now
    typed = viewer.text("from"), viewer.text("to")
    problem = None
    try:
        due_from, due_to = (times.read(text, now, viewer.zone) for text in typed)
    except errors.TimeRefused as error:
        due_from, due_to, problem = None, None, str(error)
    custom = due_from is not None or due_to is not None
    if not custom and length is not None:
        due_to = now + length  # what is overdue is shown too

    def to(**other: str) -> str:
        now_shown = {"range": "" if custom else name, "by": step, "target": target, "from": typed[0], "to": typed[1]}
        return payloads.address("/ui/timeline", **{**now_shown, **other})

    with tags.tag("div", classes="al-title"):
        with tags.tag("div", classes="al-choices", role="group", aria_label="How far"):
            for key, text, by, _ in _RANGES:
                each = tags.link(text, to(range=key, by=by, **{"from": "", "to": ""}), "al-button")
                if key == name and not custom:
                    each.props["aria-current"] = "true"
        with tags.tag("div", classes="al-choices", role="group", aria_label="Bars of"):
            for key in ("hour", "day"):
                each = tags.link(f"By {key}", to(by=key), "al-button")
                if key == step:
                    each.props["aria-current"] = "true"
    with tags.tag("details", classes="al-more") as more:
        tags.tag("summary", "One target, or another range")
        with tags.tag("form", method="get", action="/ui/timeline", classes="al-form al-form-wide"):
            tags.Field("Target topic", name="target", value=target, hint="Its whole name")
            tags.Field("Due from", name="from", value=typed[0], hint="now, today 00:00, 2027-03-01 09:00")
            tags.Field("Due before", name="to", value=typed[1], hint="+7d, tomorrow 09:00, 2027-04-01 00:00")
            tags.tag("input", type="hidden", name="by", value=step)
            with tags.tag("div", classes="al-all al-actions"):
                tags.button("Show", icon="search", kind="submit", classes="al-main-button")
                tags.link("Clear", "/ui/timeline", "al-button")
    if custom or target or problem:
        more.props["open"] = True
    if problem is not None:
        tags.notice("bad", "That range is not understood", problem, role="alert")
        return
    counts = await site.call(viewer.site.desk.counts, by=step, target=target or None, due_from=due_from, due_to=due_to)
    _shown(viewer, bars(counts, step), step, target)


def _shown(viewer: frame.Viewer, found: Bars, step: str, target: str) -> None:
    total = sum(found.totals)
    width = _STEP_MS[step]

    def schedules(start: int) -> str:
        ends = {"from": str(start), "to": str(start + width)}
        return payloads.address("/ui/schedules", target=target, **ends)

    with tags.sheet(f"{total:,} pending"):
        days = "Days are those of UTC." if step == "day" else f"Hours of {viewer.zone_name}."
        tags.tag("p", f"{days} Choose a bar to see its schedules.", "al-lead al-small")
        if not total:
            tags.empty("event_available", "Nothing is due in this range")
            return
        options = charts.pending(found.starts, found.by_target, step, viewer.zone, viewer.dark)
        chart = ui.echart(options, on_point_click=lambda e: ui.navigate.to(schedules(found.starts[e.data_index])))
        chart.classes("al-chart-tall")
        chart.props["role"] = "img"
        first, last = found.starts[0], found.starts[-1]
        chart.props["aria-label"] = (
            f"{total:,} pending schedules by {step}, from {charts.label(first, step, viewer.zone)} "
            f"to {charts.label(last, step, viewer.zone)}; the same as a table below"
        )
        _Zoom(chart, [charts.label(start, step, viewer.zone) for start in found.starts]).buttons()

    def recolour() -> None:
        chart.options.clear()
        chart.options.update(charts.pending(found.starts, found.by_target, step, viewer.zone, viewer.dark))
        chart.update()

    viewer.themed.append(recolour)
    with tags.sheet(""), tags.tag("details", classes="al-more"):
        tags.tag("summary", "The same as a table")
        full = [(start, number) for start, number in zip(found.starts, found.totals, strict=True) if number]
        rows = []
        for start, number in full[:_ROWS]:

            def bar(start: int = start) -> None:
                tags.link(charts.label(start, step, viewer.zone), schedules(start))

            rows.append((bar, f"{number:,}"))
        tags.table(f"Pending by {step}", (Column(step.capitalize()), Column("Pending", "al-number")), rows)
        if len(full) > _ROWS:
            tags.tag("p", f"The first {_ROWS} of {len(full):,}; choose a smaller range for others.", "al-lead al-small")


class _Zoom:
    """The chart's zoom by buttons, for who has no wheel to turn."""

    def __init__(self, chart: ui.echart, labels: Sequence[str]) -> None:
        self._chart, self._labels = chart, labels
        self._start, self._end = 0.0, 100.0
        chart.on("chart:datazoom", self._zoomed, js_handler=_ZOOMED)

    def _zoomed(self, event: Any) -> None:
        if isinstance(event.args, list) and len(event.args) == 2:
            self._start, self._end = (float(each) for each in event.args)
            self._tell()

    def buttons(self) -> None:
        with tags.tag("div", classes="al-actions", role="group", aria_label="Zoom"):
            tags.button("", lambda: self._to(0.5), icon="zoom_in", label="Zoom in", classes="al-little")
            tags.button("", lambda: self._to(2), icon="zoom_out", label="Zoom out", classes="al-little")
            tags.button("", lambda: self._to(1, -0.5), icon="chevron_left", label="Earlier", classes="al-little")
            tags.button("", lambda: self._to(1, 0.5), icon="chevron_right", label="Later", classes="al-little")
            self._range = tags.words("", "al-soft al-small")
            self._range.props["aria-live"] = "polite"
            self._tell()

    def _tell(self) -> None:
        """Which bars are seen, in words."""
        last = len(self._labels) - 1
        first, end = (self._labels[round(at / 100 * last)] for at in (self._start, self._end))
        self._range.set_text(f"{first} to {end}")

    def _to(self, factor: float, shift: float = 0.0) -> None:
        width = max(1.0, min(100.0, (self._end - self._start) * factor))
        middle = (self._start + self._end) / 2 + shift * width
        self._start = min(max(0.0, middle - width / 2), 100.0 - width)
        self._end = self._start + width
        self._tell()
        self._chart.run_chart_method("dispatchAction", {"type": "dataZoom", "start": self._start, "end": self._end})


_ZOOMED = "(e) => { const z = e.batch ? e.batch[0] : e; if (z.start !== undefined) emit([z.start, z.end]); }"
