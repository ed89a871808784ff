"""Points in time as people write them."""

from datetime import UTC, datetime, timedelta
from importlib import resources
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from almanac import errors, when
from almanac.formats import LAST_DUE

PARIS = ZoneInfo("Europe/Paris")
NOW = datetime(2026, 11, 15, 21, 0, tzinfo=UTC)  # a Sunday, 22:00 in Paris
HOUR = 3_600_000


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2027-03-01T09:00:00+01:00", "2027-03-01T08:00:00+00:00"),
        ("2027-03-01 08:00Z", "2027-03-01T08:00:00+00:00"),
        ("2027-03-01 09:00", "2027-03-01T08:00:00+00:00"),
        ("2027-07-01T09:00:00.250", "2027-07-01T07:00:00.250+00:00"),
        ("1893456000", "2030-01-01T00:00:00+00:00"),
        ("1893456000000", "2030-01-01T00:00:00+00:00"),
        ("now", "2026-11-15T21:00:00+00:00"),
        ("+90s", "2026-11-15T21:01:30+00:00"),
        ("+2h", "2026-11-15T23:00:00+00:00"),
        ("+1d12h", "2026-11-17T09:00:00+00:00"),
        ("+500ms", "2026-11-15T21:00:00.500+00:00"),
        ("+1w 1m", "2026-11-22T21:01:00+00:00"),
        ("today 23:30", "2026-11-15T22:30:00+00:00"),
        ("Tomorrow 09:00", "2026-11-16T08:00:00+00:00"),
        ("monday 09:00", "2026-11-16T08:00:00+00:00"),
        ("sunday 09:00", "2026-11-22T08:00:00+00:00"),
        ("sunday 22:30", "2026-11-15T21:30:00+00:00"),
        ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999+00:00"),
    ],
)
def test_understood(text: str, moment: str) -> None:
    assert when.parse(text, NOW, PARIS) == ms(moment)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not understood"),
        ("soon", "not understood"),
        ("9:00", "not understood"),
        ("2027-13-01 09:00", "not understood"),
        ("2027-03-01", "needs a time of day"),
        ("20270301", "needs a time of day"),
        ("tomorrow", "needs a time of day"),
        ("monday 9", "needs a time of day"),
        ("today 25:00", "needs a time of day"),
        ("+", "no duration"),
        ("+90", "no duration"),
        ("+1d1d", "no duration"),
        ("+1.5h", "no duration"),
        ("1969-12-31 23:00Z", "before 1970"),
        ("9999-12-31T23:59:59-01:00", "after the year 9999"),
        ("+999999999d", "after the year 9999"),
        ("99999999999999999999", "after the year 9999"),
    ],
)
def test_refused(text: str, says: str) -> None:
    with pytest.raises(errors.TimeRefused, match=says) as caught:
        when.parse(text, NOW, PARIS)
    assert caught.value.exit_code == 2
    assert repr(text.strip()) in str(caught.value)


def test_a_local_time_that_comes_twice_is_refused_with_both() -> None:
    with pytest.raises(errors.TimeRefused) as caught:
        when.parse("2027-10-31 02:30", NOW, PARIS)
    assert "2027-10-31 02:30:00+02:00 or 2027-10-31 02:30:00+01:00" in str(caught.value)


def test_a_local_time_that_is_skipped_is_refused_with_the_next() -> None:
    with pytest.raises(errors.TimeRefused) as caught:
        when.parse("2027-03-28 02:30", NOW, PARIS)
    assert "2027-03-28 03:00:00+02:00" in str(caught.value)


def test_a_day_of_a_duration_is_24_hours_also_when_clocks_change() -> None:
    eve = datetime(2027, 3, 27, 12, 0, tzinfo=UTC)
    assert when.parse("+1d", eve, PARIS) == when.milliseconds(eve) + 24 * HOUR
    assert when.parse("tomorrow 13:00", eve, PARIS) == when.milliseconds(eve) + 23 * HOUR


def test_fractions_of_a_millisecond_are_never_early() -> None:
    assert when.parse("2027-03-01T09:00:00.000001Z", NOW, UTC) == ms("2027-03-01T09:00:00+00:00") + 1


def test_the_last_hours_of_the_year_9999_are_shown_too() -> None:
    assert when.render(LAST_DUE, PARIS) == "9999-12-31 23:59:59.999+00:00"


def test_an_unknown_zone_is_refused_with_a_suggestion() -> None:
    with pytest.raises(errors.TimeRefused, match="Europe/Paris"):
        when.zone("Europe/Pari")
    assert when.zone("Asia/Tokyo") == ZoneInfo("Asia/Tokyo")


@pytest.mark.parametrize("name", ["Asia/Tokyo", ":Asia/Tokyo"])
def test_the_zone_of_the_machine(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("TZ", name)
    assert when.zone(None) == ZoneInfo("Asia/Tokyo")


@pytest.mark.parametrize("colon", [":", ""])
def test_the_zone_of_the_machine_may_be_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, colon: str) -> None:
    file = tmp_path / "localtime"
    file.write_bytes(resources.files("tzdata.zoneinfo.Asia").joinpath("Tokyo").read_bytes())
    monkeypatch.setenv("TZ", f"{colon}{file}")
    assert when.parse("2027-03-01 09:00", NOW, when.zone(None)) == ms("2027-03-01T00:00:00+00:00")


@pytest.mark.parametrize("name", ["CET-1CEST,M3.5.0,M10.5.0/3", "<+03>-3", "Nowhere/Land", ":/not/there", ":/dev/null"])
def test_a_zone_of_the_machine_that_is_not_understood_is_not_utc(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("TZ", name)
    with pytest.raises(errors.TimeRefused) as caught:
        when.zone(None)
    assert f"TZ={name!r}" in str(caught.value)
    assert "--tz" in str(caught.value)
    assert when.zone("UTC") == ZoneInfo("UTC"), "who names a zone need not care for TZ"


@given(st.integers(0, LAST_DUE), st.sampled_from(["UTC", "Europe/Paris", "America/New_York", "Asia/Kolkata"]))
def test_what_is_rendered_reads_back(moment: int, name: str) -> None:
    zone = ZoneInfo(name)
    rendered = when.render(moment, zone)
    # Offsets of long ago have seconds, which ISO 8601 as Python writes it keeps.
    assert when.parse(rendered, NOW, PARIS) == moment


@given(st.dictionaries(st.sampled_from(["w", "d", "h", "m", "s", "ms"]), st.integers(0, 5000), min_size=1))
def test_durations_add_up(parts: dict[str, int]) -> None:
    names = {"w": "weeks", "d": "days", "h": "hours", "m": "minutes", "s": "seconds", "ms": "milliseconds"}
    text = "+" + "".join(f"{number}{unit}" for unit, number in parts.items())
    expected = NOW + timedelta(**{names[unit]: number for unit, number in parts.items()})
    assert when.parse(text, NOW, PARIS) == when.milliseconds(expected)


@given(st.text(max_size=40))
def test_no_text_raises_anything_else(text: str) -> None:
    try:
        moment = when.parse(text, NOW, PARIS)
    except errors.TimeRefused:
        return
    assert 0 <= moment <= LAST_DUE


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0s"), (90_000, "1m 30s"), (-500, "-500ms"), (86_400_000 + 12 * HOUR + 5, "1d 12h"), (1_250, "1s 250ms")],
)
def test_distance(ms: int, text: str) -> None:
    assert when.distance(ms) == text
