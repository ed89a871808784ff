"""Points in time as people write them, as epoch milliseconds.

    2027-03-01T09:00:00+01:00, 2027-03-01 08:00Z    ISO 8601 with an offset
    2027-03-01 09:00                                ISO 8601, in the time zone given
    1893456000, 1893456000000                       epoch: seconds below 100 billion, milliseconds from there on
    +90s, +2h, +1d12h, +500ms                       from now; w, d, h, m, s, ms; a day is 24 hours
    now
    today 18:00, tomorrow 09:00, monday 09:00       in the time zone given; a weekday is its next 09:00 to come

A date alone is refused: it would be anybody's guess which moment of the day is meant. A local time that a change of
clocks repeats or skips is refused too, with the times that exist. Fractions of a millisecond are rounded up, as nothing
may fire early. The last moment is the end of the year 9999.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import zoneinfo
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from almanac import errors
from almanac.formats import LAST_DUE

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_FIRST_MILLISECONDS: Final = 100_000_000_000  # as seconds this is the year 5138, as milliseconds 1973
_UNITS: Final = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_PART: Final = re.compile(r"(\d{1,15})(ms|[wdhms])")
_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_EXAMPLES: Final = (
    "2027-03-01T09:00:00+01:00, 2027-03-01 09:00, 1893456000, +90s, +1d12h, tomorrow 09:00 or monday 09:00"
)


def parse(text: str, now: datetime, tz: tzinfo) -> int:
    """The moment in epoch ms. `now` is aware; `tz` is the zone of times without an offset."""
    words = text.strip().lower().split()
    if words == ["now"]:
        return milliseconds(now)
    if text.strip().startswith(("+", "-")):
        ahead = _duration("".join(words)[1:], text)
        return _bounded(milliseconds(now) + (ahead if text.strip().startswith("+") else -ahead), text)
    if len(words) == 1 and words[0].isdecimal() and words[0].isascii() and len(words[0]) != len("20270301"):
        number = int(words[0])
        return _bounded(number * 1000 if number < _FIRST_MILLISECONDS else number, text)
    if words and words[0] in ("today", "tomorrow", *_DAYS):
        return _bounded(_on_day(words, now.astimezone(tz), tz, text), text)
    return _bounded(_iso(text.strip(), tz), text)


def milliseconds(moment: datetime) -> int:
    """Epoch ms of an aware moment, rounded up."""
    return -((_EPOCH - moment) // _MILLISECOND)


def floor(now: int, days: int | None) -> int:
    """The start of the day so many days from now's (-1: yesterday's), UTC, in epoch ms; -1 for None, no limit."""
    if days is None:
        return -1
    today = datetime.fromtimestamp(now / 1000, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return milliseconds(today + timedelta(days=days))


def render(ms: int, tz: tzinfo) -> str:
    """ISO 8601 with offset, milliseconds only where there are some; `parse` reads it back."""
    moment = _EPOCH + timedelta(milliseconds=ms)
    with contextlib.suppress(OverflowError):  # the last hours of the year 9999, east of Greenwich: in UTC
        moment = moment.astimezone(tz)
    return moment.isoformat(sep=" ", timespec="milliseconds" if ms % 1000 else "seconds")


def distance(ms: int) -> str:
    """How far off a moment is, in its two largest units: 1d 12h, 90s is 1m 30s; a minus for the past."""
    left, parts = abs(ms), []
    for unit in ("d", "h", "m", "s", "ms"):
        number, left = divmod(left, _UNITS[unit])
        if number:
            parts.append(f"{number}{unit}")
    return ("-" if ms < 0 else "") + (" ".join(parts[:2]) or "0s")


def zone(name: str | None) -> tzinfo:
    """The zone of that name; the machine's own for None."""
    if name is None:
        return _local()
    try:
        return ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        near = difflib.get_close_matches(name, zoneinfo.available_timezones(), n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ", such as Europe/Paris or UTC"
        raise errors.TimeRefused(f"--tz {name!r} is no time zone{hint}") from None


def _local() -> tzinfo:
    name = os.environ.get("TZ", "").removeprefix(":")
    try:
        if name:
            return _file(Path(name)) if name.startswith("/") else ZoneInfo(name)
        return _file(Path("/etc/localtime"))
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        if not name:
            return UTC  # a machine that does not say
    raise errors.TimeRefused(
        f"TZ={os.environ['TZ']!r} is no time zone that is known here (rules such as CET-1CEST are not understood); "
        "set TZ to a name such as Europe/Paris, or to : and the path of a tz file, or give --tz"
    )


def _file(place: Path) -> tzinfo:
    with place.open("rb") as file:
        return ZoneInfo.from_file(file, key=str(place.resolve()).partition("zoneinfo/")[2] or str(place))


def _refused(text: str, why: str) -> errors.TimeRefused:
    return errors.TimeRefused(f"the time {text!r} {why}")


def _bounded(ms: int, text: str) -> int:
    if ms < 0:
        raise _refused(text, "is before 1970")
    if ms > LAST_DUE:
        raise _refused(text, "is after the year 9999")
    return ms


def _duration(text: str, whole: str) -> int:
    parts = _PART.findall(text)
    units = [unit for _, unit in parts]
    if not parts or "".join(number + unit for number, unit in parts) != text or len(set(units)) < len(units):
        raise _refused(whole, "is no duration; write +90s, +2h, +1d12h or +500ms (w, d, h, m, s, ms, each once)")
    return sum(int(number) * _UNITS[unit] for number, unit in parts)


def _on_day(words: list[str], now: datetime, tz: tzinfo, text: str) -> int:
    try:
        clock = time.fromisoformat(words[1]) if len(words) == 2 and ":" in words[1] else None
    except ValueError:
        clock = None
    if clock is None or clock.tzinfo is not None:
        raise _refused(text, f"needs a time of day: {words[0]} 09:00")
    if words[0] in _DAYS:
        ahead = (_DAYS.index(words[0]) - now.weekday()) % 7
        if ahead == 0 and clock <= now.time():
            ahead = 7
    else:
        ahead = int(words[0] == "tomorrow")
    try:
        return _local_time(datetime.combine(now.date() + timedelta(days=ahead), clock), tz, text)
    except OverflowError:
        raise _refused(text, "is after the year 9999") from None


def _iso(text: str, tz: tzinfo) -> int:
    if _is_date(text):
        raise _refused(text, f"needs a time of day: {text} 09:00")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise _refused(text, f"is not understood; write {_EXAMPLES}") from None
    return milliseconds(moment) if moment.tzinfo else _local_time(moment, tz, text)


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _local_time(naive: datetime, tz: tzinfo, text: str) -> int:
    """A time on the clocks of that zone, if they show it exactly once."""
    first, second = (naive.replace(tzinfo=tz, fold=fold) for fold in (0, 1))
    before, after = first.utcoffset(), second.utcoffset()
    if before == after or before is None or after is None:
        return milliseconds(first)
    if before > after:  # clocks go back: it comes twice
        choices = " or ".join(each.isoformat(sep=" ") for each in (first, second))
        raise _refused(text, f"comes twice in {tz}, as clocks go back; write {choices}")
    next_valid = render(_change(milliseconds(second), milliseconds(first), tz), tz)
    raise _refused(text, f"does not exist in {tz}, as clocks go forward; the next that does is {next_valid}")


def _change(low: int, high: int, tz: tzinfo) -> int:
    """The moment between two, in ms, at which the zone's offset changes."""

    def offset(ms: int) -> timedelta | None:
        return (_EPOCH + timedelta(milliseconds=ms)).astimezone(tz).utcoffset()

    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if offset(middle) == offset(low) else (low, middle)
    return high
