"""The admin page without a browser: times, payloads, bars, forms. tests/ui has the rest."""

from __future__ import annotations

from datetime import UTC
from zoneinfo import ZoneInfo

import desks
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from almanac import desk, errors, server
from almanac.settings import Address, Settings
from almanac.ui import charts, creation, payloads, timeline, times

PARIS = ZoneInfo("Europe/Paris")
NOON = 1_793_534_400_000  # 2026-11-01 12:00 UTC


def test_times_are_shown_in_the_viewers_zone_and_in_utc() -> None:
    assert times.show(NOON, PARIS) == "2026-11-01 13:00:00"
    assert times.show(NOON + 5, UTC) == "2026-11-01 12:00:00.005"
    assert times.utc(NOON) == "2026-11-01 12:00:00 UTC"
    assert times.show(NOON, ZoneInfo("America/New_York")) == "2026-11-01 07:00:00"


def test_a_zone_that_is_not_known_is_utc() -> None:
    assert times.zone("Europe/Paris") == PARIS
    assert times.zone("Moon/Tycho") is UTC
    assert times.zone("../etc") is UTC


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("", None),
        ("  ", None),
        ("now", NOON),
        ("+90s", NOON + 90_000),
        ("-2h", NOON - 7_200_000),
        ("2026-11-01 13:00", NOON),
        (str(NOON), NOON),
    ],
)
def test_times_are_read_as_they_are_typed(text: str, ms: int | None) -> None:
    assert times.read(text, NOON, PARIS) == ms


@pytest.mark.parametrize("text", ["-", "-9999999w", "soon", "2026-11-01", "-x"])
def test_times_that_are_not_understood(text: str) -> None:
    with pytest.raises(errors.TimeRefused):
        times.read(text, NOON, PARIS)
    assert times.meant(text, NOON, PARIS)[1] is False


def test_how_far_and_how_late() -> None:
    assert [times.away(NOON + ms, NOON) for ms in (0, 999, 65_000, -3_600_000)] == ["now", "now", "in 1m 5s", "1h ago"]
    assert [times.span(ms) for ms in (None, 12, 3_400, 125_000, -5)] == ["–", "12 ms", "3.4 s", "2m 5s", "-5 ms"]


@given(st.binary(min_size=1), st.text())
def test_links_carry_ids_of_any_bytes(raw: bytes, target: str) -> None:
    path, _, query = payloads.address("/ui/schedule", id=raw, target=target, partition=0, none=None).partition("?")
    found = payloads.parameters(query)
    assert (path, found["id"], found["partition"]) == ("/ui/schedule", raw, b"0")
    assert found.get("target", b"").decode("utf-8", "surrogatepass") == target if target.isprintable() else True
    assert "none" not in found


@given(st.binary())
def test_any_payload_can_be_shown(raw: bytes) -> None:
    assert payloads.best(raw) in ("text", "json", "hex")
    payloads.readable(raw)
    payloads.pretty(raw)
    assert len(payloads.dump(raw).splitlines()) == -(-len(raw) // 16)
    assert payloads.text(raw).isprintable()


def test_payloads_as_text_json_and_hexadecimal() -> None:
    assert (payloads.best(b'{"a": 1}'), payloads.pretty(b'{"a": 1}')) == ("json", '{\n  "a": 1\n}')
    assert (payloads.best(b"17"), payloads.best(b"\xff"), payloads.pretty(b"{")) == ("text", "hex", None)
    assert payloads.dump(b"abc\x00") == f"000000  {'61 62 63 00':<47}  abc."
    assert payloads.pretty(b"[" * 100_000) is None


def _count(start: int, target: str, number: int) -> desk.Count:
    return desk.Count(start=start, target=target, number=number)


def test_bars_have_no_holes() -> None:
    hour = 3_600_000
    found = timeline.bars([_count(0, "a", 2), _count(3 * hour, "a", 1), _count(3 * hour, "b", 5)], "hour")
    assert found.starts == [0, hour, 2 * hour, 3 * hour]
    assert found.by_target == {"b": [0, 0, 0, 5], "a": [2, 0, 0, 1]}
    assert found.totals == [2, 0, 0, 6]
    assert timeline.bars([], "day").totals == []


def test_bars_of_a_far_future_are_few() -> None:
    found = timeline.bars([_count(0, "a", 2), _count(86_400_000 * 3_000_000, "a", 1)], "day")
    assert found.totals == [2, 1]


def test_only_the_largest_targets_have_a_colour() -> None:
    counts = [_count(0, f"t{number}", number + 1) for number in range(20)]
    found = timeline.bars(counts, "hour")
    assert list(found.by_target) == ["t19", "t18", "t17", "t16", "t15", "t14", "all others"]
    assert found.totals == [sum(range(1, 21))]
    assert len(charts.pending(found.starts, found.by_target, "hour", UTC, dark=True)["series"]) == 7


def test_what_is_typed_as_a_payload() -> None:
    assert creation.read_payload("00 fF\n7a", "hex") == b"\x00\xffz"
    assert creation.read_payload("0x0a", "hex") == b"\n"
    assert creation.read_payload("é", "text") == "é".encode()
    for text, kind in (("0", "hex"), ("xx", "hex"), ("{", "json")):
        with pytest.raises(ValueError, match=r"hexadecimal|JSON"):
            creation.read_payload(text, kind)


def test_what_is_typed_as_headers() -> None:
    assert creation.read_headers("a: 1\n\n b:c:d \n") == [("a", b"1"), ("b", b"c:d")]
    for text in ("a", ": x"):
        with pytest.raises(ValueError, match="name: value"):
            creation.read_headers(text)


def test_one_process_may_serve_it_again() -> None:
    for _ in range(2):
        settings = Settings(server_addr="127.0.0.1:0")
        serving = server.Server(settings, desks.Fake(settings), Address("127.0.0.1", 0)).start()
        try:
            assert httpx.get(f"{serving.url}/ui/fired").status_code == 200
            assert httpx.get(f"{serving.url}/none-such").headers["content-type"] == "application/problem+json"
        finally:
            serving.close()
