"""The daily counts and the record of a partition's state, as karafka's users read it."""

import json
import zlib

from almanac import formats, states, words
from almanac.listing import Since
from almanac.record import Record
from almanac.settings import Settings

DAY = 86_400_000


def said(version: int, day: int | None = None, kill: int = -1) -> Since:
    if day is None:
        return Since(kill=kill)
    record = Record("rails", 0, version, 0, b"k", b"", [])
    schedule = formats.Schedule(day * DAY + 5, "target", None, -1, b"", [], None)
    return Since(kill=kill, word=words.Word(version, record, schedule, False))


def test_what_the_log_said_since_corrects_the_books_counts() -> None:
    days = {(0, 0): 3, (0, 1): 1, (1, 0): 7}
    rows = {(0, b"cancelled"): (4, 0), (0, b"moved"): (5, DAY), (0, b"left alone"): (6, 1)}
    since = {
        (0, b"cancelled"): said(0, kill=9),
        (0, b"moved"): said(10, day=2),
        (0, b"new"): said(11, day=2),
        (0, b"new and over"): said(12, day=2, kill=13),
        (0, b"left alone"): said(0, kill=2),
        (1, b"unknown to the book"): said(0, kill=14),
    }
    found = states.corrected(days, rows, since)
    assert found == {0: {"1970-01-01": 2, "1970-01-03": 2}, 1: {"1970-01-01": 7}}


def test_the_record() -> None:
    count = states.Count(3, 41, {"2030-01-01": 2})
    key, value = states.record("loaded", count, started=1_700_000_000.9, reloads=2, now=1_700_000_005.25)
    assert key == b"loaded_state"
    assert json.loads(zlib.decompress(value)) == {
        "schema_version": "1.0.0", "dispatched_at": 1_700_000_005.25, "state": "loaded",
        "offsets": {"low": 3, "high": 41}, "daily": {"2030-01-01": 2}, "started_at": 1_700_000_000, "reloads": 2,
    }  # fmt: skip


def test_the_state_of_a_partition_is_its_wheels_unless_it_halts() -> None:
    firing = {"state": "firing", "halted": [["rails", 1, "offset 5: newer"]]}
    assert states.state(("rails", 0), {}) == "loading"
    assert states.state(("rails", 0), {"state": "catching-up"}) == "loading"
    assert states.state(("rails", 0), firing) == "loaded"
    assert states.state(("rails", 1), firing) == "incompatible"
    assert states.state(("rails", 0), {"state": "paused"}) == "paused"


def test_only_karafka_topics_have_states_and_their_name_is_a_setting() -> None:
    told = {"schedules_topics": "schedules, rails=karafka"}
    assert Settings.load(told).states_topics == {"rails": "rails_states"}
    assert Settings.load({**told, "states_topic": "s-{topic}"}).states_topics == {"rails": "s-rails"}
    assert Settings.load({**told, "states_topic": ""}).states_topics == {}
