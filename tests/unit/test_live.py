"""The live tail laid over a book: whatever the book has read, the two say what the whole log says."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tails import ID, SOURCE, TOPIC, cancel, schedule, take, tombstone
from waiting import until

from almanac import errors, live, ports, words
from almanac.record import Headers, Record
from almanac.settings import Settings


@dataclass
class Fold:
    """Rule 3, for one key."""

    version: int = -1
    kill: int = -1

    def pending(self) -> int | None:
        return self.version if self.version > self.kill else None


def folded(log: list[Record]) -> dict[bytes, int]:
    keys: dict[bytes, Fold] = {}
    for record in log:
        fold = keys.setdefault(record.key or b"", Fold())
        acks = dict(record.headers).get(words.ACKS)
        if record.value is not None:
            fold.version = max(fold.version, record.offset)
        else:
            fold.kill = max(fold.kill, int(acks) if acks else record.offset)
    return {key: version for key, fold in keys.items() if (version := fold.pending()) is not None}


def listening(base: int, log: list[Record]) -> live.Live:
    made = live.Live(Settings.model_validate({"schedules_topics": TOPIC}))
    made._base, made._positions = {SOURCE: base}, {SOURCE: base}
    made._topic_ids = {TOPIC: ID}
    take(made, [record for record in log if record.offset >= base])
    return made


@st.composite
def logs(draw: st.DrawFn) -> list[Record]:
    log: list[Record] = []
    for offset in range(draw(st.integers(1, 20))):
        key = draw(st.sampled_from([b"a", b"b", b"c"]))
        kind = draw(st.sampled_from("SSCT"))
        versions = [record.offset for record in log if record.key == key and record.value is not None]
        if kind == "T" and versions:
            log.append(tombstone(offset, key, draw(st.sampled_from(versions))))
        else:
            log.append(cancel(offset, key) if kind == "C" else schedule(offset, key))
    return log


@given(logs(), st.data())
def test_the_book_and_the_tail_say_what_the_log_says(log: list[Record], data: st.DataObject) -> None:
    base = data.draw(st.integers(0, len(log)), "where the tail begins")
    end = data.draw(st.integers(base, len(log)), "where the book ends")
    book = folded(log[:end])
    made = listening(base, log)
    with made.held() as heard:
        found = {
            key: version for key, version in book.items()
            if not (said := heard.get((*SOURCE, key))) or not said.hides(version)
        }  # fmt: skip
        found |= {key[2]: word.version for key, word in made.alive.items() if word.version >= end}
    assert found == folded(log)


def _asks(made: live.Live, end: int) -> live.Reading:
    """A question that is being answered by a book that ends there."""
    reading = live.Reading(made._readings, {SOURCE: end})
    made._held.add(reading)
    return reading


@given(logs(), st.data())
def test_what_the_book_knows_may_be_forgotten(log: list[Record], data: st.DataObject) -> None:
    end = data.draw(st.integers(0, len(log)), "where the book ends")
    made = listening(0, log)
    older, newer = _asks(made, 0), _asks(made, end)
    made._forget()
    with made.held(older) as heard:  # somebody still asks of the older book
        assert {key[2] for key in heard} == {record.key for record in log}
    del older
    made._forget()
    with made.held(newer) as heard:
        assert all(said.last >= end for said in heard.values())
        assert {key[2] for key in made.alive} == {
            key for key, version in folded(log).items() if any(r.key == key for r in log[end:])
        }


def test_what_fired_and_what_was_buried() -> None:
    made = listening(
        0, [schedule(0, b"a", due=5), tombstone(1, b"a", 0), schedule(2, b"b"), tombstone(3, b"b", 2, b"outdated")]
    )
    with made.held() as heard:
        assert heard[TOPIC, 0, b"a"].over == (live.Over(0, 2000, None, 5000, "target"),)
        assert heard[TOPIC, 0, b"b"].over[0].reason == "outdated"
    assert made.alive == {}


def test_what_fired_is_remembered_for_a_while_when_the_book_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "REMEMBERED", 1 << 60)
    made = listening(0, [schedule(0, b"a"), tombstone(1, b"a", 0), schedule(2, b"b"), schedule(3, b"c")])
    reading = _asks(made, 3)
    made._forget()
    ((key, heard),) = made.heard_of([(TOPIC, 0, b"a"), (TOPIC, 0, b"b")])
    assert (key[2], heard.over[-1].version) == (b"a", 0)
    monkeypatch.setattr(live, "REMEMBERED", 60_000)
    reading.starts[SOURCE] = 4
    made._forget()
    assert made.heard_of([(TOPIC, 0, b"a")]) == []


def test_a_book_older_than_what_is_kept() -> None:
    made = listening(3, [])
    assert made.has_dropped({SOURCE: 2})
    assert not made.has_dropped({SOURCE: 3})


def test_who_waits_for_a_reading_that_breaks_off_is_not_answered_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one begins at the end of somebody else's book."""
    monkeypatch.setattr(live.Live, "_read", lambda *_: None)
    made = live.Live(Settings.model_validate({"schedules_topics": TOPIC}))
    told: list[BaseException] = []

    def ask() -> None:
        try:
            made.follow({SOURCE: 0}, {TOPIC: ID}, {SOURCE: 5}, 20)
        except errors.Unreachable as error:
            told.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    until(lambda: made._held, 5, "it waits")
    with made.changed:
        made._end()
        made.follow({SOURCE: 5}, {TOPIC: ID}, {SOURCE: 5})
    asking.join(5)
    assert "ask once more" in str(told[0])


def test_a_watch_tells_which_version_was_acknowledged() -> None:
    made = listening(0, [schedule(0, b"a")])
    with made.watch([(TOPIC, 0, b"a"), (TOPIC, 1, b"a")]) as watch:
        take(made, [schedule(1, b"a"), cancel(2, b"a"), schedule(3, b"b"), schedule(4, b"a"), tombstone(5, b"a", 4)])
        assert [event.record.offset for event in watch.events] == [1, 2, 4, 5]
        assert watch.newest(SOURCE, before=2) == 1
        # Version 4 came after the cancel at 2 and fired: that says nothing of version 1.
        assert watch.acknowledged(SOURCE, 1, before=2) is None
        assert watch.acknowledged(SOURCE, 4) is not None
    assert not made._watches


def test_a_partition_halts_at_a_record_of_the_future() -> None:
    future: Headers = [("schedule_schema_version", b"9.0.0"), ("schedule_source_type", b"schedule")]
    log = [schedule(0, b"a"), Record(TOPIC, 0, 1, 1000, b"k", b"", future), schedule(2, b"b")]
    made = listening(0, log)
    assert {key[2] for key in made.alive} == {b"a"}
    assert made.at({SOURCE: 3}, 0.1)  # nobody waits for what cannot be read


def test_positions_follow_the_ends() -> None:
    made = listening(0, [schedule(0, b"a")])
    assert not made.at({SOURCE: 2}, 0.01)
    take(made, [ports.End(TOPIC, 0, 2)])  # a transaction's marker
    assert made.at({SOURCE: 2}, 0.01)
