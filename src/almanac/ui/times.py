"""Points in time as the page shows and reads them: in the viewer's zone, and in UTC."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime, tzinfo

from almanac import errors, when


def zone(name: str) -> tzinfo:
    """The zone that a browser names; UTC if it is none that is known here."""
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


def show(ms: int, tz: tzinfo) -> str:
    """For lists, whose heading names the zone: 2027-03-01 09:00:00, with milliseconds only where there are some."""
    text = when.render(ms, tz)
    return text[: -len("+00:00")] if text[-6:-5] in "+-" else text


def utc(ms: int) -> str:
    return f"{show(ms, UTC)} UTC"


def away(ms: int, now: int) -> str:
    """in 2h 5m, 3s ago."""
    distance = ms - now
    if abs(distance) < 1000:
        return "now"
    text = when.distance(abs(distance) // 1000 * 1000)
    return f"in {text}" if distance > 0 else f"{text} ago"


def read(text: str, now: int, tz: tzinfo) -> int | None:
    """What was typed, as epoch ms; None for nothing. As the command line reads it, and -2h is two hours ago."""
    text = text.strip()
    if not text:
        return None
    moment = datetime.fromtimestamp(now / 1000, UTC)
    if text.startswith("-"):
        past = now - (when.parse(f"+{text[1:]}", moment, tz) - now)
        if past < 0:
            raise errors.TimeRefused(f"the time {text!r} is before 1970")
        return past
    return when.parse(text, moment, tz)


def meant(text: str, now: int, tz: tzinfo) -> tuple[str, bool]:
    """What a typed time means, in words, and whether it is understood."""
    try:
        ms = read(text, now, tz)
    except errors.TimeRefused as error:
        return str(error), False
    if ms is None:
        return "", False
    return f"{show(ms, tz)} here, {utc(ms)}, {away(ms, now)}", True


def span(ms: int | None) -> str:
    """A lateness: 12 ms, 3.4 s, 2m 5s."""
    if ms is None:
        return "–"
    if abs(ms) < 1000:
        return f"{ms} ms"
    if abs(ms) < 60_000:
        return f"{ms / 1000:.1f} s"
    return when.distance(ms)
