"""What the charts show, as options of ECharts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import tzinfo
from typing import Any

from almanac.ui import site, times

Options = dict[str, Any]

_LIGHT = {"ink": "#59636f", "line": "#e4e6e2", "sheet": "#ffffff", "text": "#1d2530"}
_DARK = {"ink": "#9fabb8", "line": "#2c343e", "sheet": "#222932", "text": "#e4e8ed"}
# Told apart by those who do not see all colours, and readable on both themes' sheets.
_SERIES = ("#3f86bd", "#d08a2e", "#4f9d76", "#a873b5", "#c2605a", "#7f8fa6", "#8c8c3f")


def _base(dark: bool) -> Options:
    look = _DARK if dark else _LIGHT
    return {
        "animation": False,
        "color": list(_SERIES),
        "textStyle": {"fontFamily": "Roboto, system-ui, sans-serif", "color": look["ink"]},
        "grid": {"left": 8, "right": 24, "top": 36, "bottom": 8, "containLabel": True},
        "legend": {"top": 0, "left": 0, "itemWidth": 14, "itemHeight": 8, "textStyle": {"color": look["ink"]},
                   "type": "scroll", "pageTextStyle": {"color": look["ink"]}, "pageIconColor": look["ink"]},
        "tooltip": {"trigger": "axis", "confine": True, "backgroundColor": look["sheet"], "borderColor": look["line"],
                    "textStyle": {"color": look["text"], "fontSize": 13}},
    }  # fmt: skip


def _axes(dark: bool) -> tuple[Options, Options]:
    look = _DARK if dark else _LIGHT
    line = {"lineStyle": {"color": look["line"]}}
    across = {"axisLine": line, "axisTick": {"show": False}, "splitLine": {"show": False},
              "axisLabel": {"color": look["ink"], "hideOverlap": True}}  # fmt: skip
    up = {"type": "value", "min": 0, "splitLine": line, "axisLabel": {"color": look["ink"]}, "splitNumber": 4}
    return across, up


def _lines(dark: bool, unit: str, series: Sequence[tuple[str, list[list[float | None]]]]) -> Options:
    across, up = _axes(dark)
    options = _base(dark)
    options["xAxis"] = {"type": "time", **across, "splitNumber": 4}
    options["yAxis"] = {**up, "name": "", "minInterval": 1 if unit == "ms" else 0}
    options["series"] = [
        {"type": "line", "name": name, "data": data, "showSymbol": False, "smooth": False, "connectNulls": False,
         "lineStyle": {"width": 2}, "areaStyle": {"opacity": 0.14 if at == 0 else 0}}
        for at, (name, data) in enumerate(series)
    ]  # fmt: skip
    return options


def rate(samples: Sequence[site.Sample], dark: bool) -> Options:
    """Fires per second."""
    options = _lines(dark, "/s", [("fires per second", [[each.at, round(each.per_second, 1)] for each in samples])])
    options["legend"] = {"show": False}  # the heading says it
    options["grid"] = {**options["grid"], "top": 12}
    return options


def lateness(samples: Sequence[site.Sample], dark: bool) -> Options:
    """How late what fires is; nothing where nothing fired."""
    return _lines(
        dark,
        "ms",
        [
            ("p50, ms", [[each.at, each.late_p50] for each in samples]),
            ("p99, ms", [[each.at, each.late_p99] for each in samples]),
        ],
    )


def pending(
    starts: Sequence[int], by_target: Mapping[str, Sequence[int]], step: str, tz: tzinfo, dark: bool
) -> Options:
    """Bars of an hour or a day each, the targets on top of one another, to zoom into."""
    across, up = _axes(dark)
    look = _DARK if dark else _LIGHT
    options = _base(dark)
    options["grid"] = {**options["grid"], "bottom": 56}
    options["tooltip"] = {**options["tooltip"], "axisPointer": {"type": "shadow"}}
    labels = [label(start, step, tz) for start in starts]
    lines = {"lineHeight": 15, ":formatter": "(text) => text.replace(' ', '\\n')"}  # a day above its hour
    options["xAxis"] = {"type": "category", "data": labels, **across, "axisLabel": {**across["axisLabel"], **lines}}
    options["yAxis"] = {**up, "minInterval": 1}
    options["dataZoom"] = [
        {"type": "inside", "zoomOnMouseWheel": "ctrl", "moveOnMouseWheel": False},
        {"type": "slider", "height": 24, "bottom": 8, "borderColor": look["line"], "textStyle": {"color": look["ink"]},
         "brushSelect": False, "showDetail": False},
    ]  # fmt: skip
    options["series"] = [
        {"type": "bar", "stack": "pending", "name": target, "data": list(numbers), "barMaxWidth": 40, "large": False,
         "cursor": "pointer"}
        for target, numbers in by_target.items()
    ]  # fmt: skip
    return options


def label(start: int, step: str, tz: tzinfo) -> str:
    """Of a bar. Days are those of UTC, as they are counted."""
    return times.utc(start)[:10] if step == "day" else times.show(start, tz)[:16]
