"""What the wheel does for the native format: grace, what was missed, and how far back that reaches."""

import pytest
from memory import START, TOPIC, Rig

from almanac.formats import etf1
from almanac.record import first

DAY = 86_400_000
MIDNIGHT = START // DAY * DAY


def reasons(rig: Rig) -> dict[bytes | None, bytes | None]:
    return {letter.value: first(letter.headers)["almanac-reason"] for letter in rig.kafka.read("dead-letters")}


@pytest.mark.parametrize("grace", [0, 60_000])
def test_grace_is_judged_against_the_records_own_timestamp(grace: int) -> None:
    rig = Rig(grace=grace)
    wheel = rig.wheel().begin()
    last = START - grace - etf1.TOLERANCE
    rig.kafka.schedule(b"in time", last, b"in time")
    rig.kafka.schedule(b"outdated", last - 1, b"outdated")
    wheel.run_for(100)
    assert rig.kafka.fired() == [b"in time"]
    assert reasons(rig) == {b"outdated": b"outdated"}


def test_what_was_in_time_when_it_was_written_is_fired_however_late_the_scheduler_is() -> None:
    rig = Rig()
    for key, due in ((b"second", 2_000), (b"first", 1_000)):
        rig.kafka.schedule(key, START + due, key)
    rig.clock.time += 400 * DAY
    rig.wheel().begin().run_for(100)
    assert rig.kafka.fired() == [b"first", b"second"]
    assert reasons(rig) == {}


@pytest.mark.parametrize(("since_delta", "fired"), [(0, [b"today"]), (-1, [b"yesterday", b"today"])])
def test_since_delta_counts_days_from_midnight(since_delta: int, fired: list[bytes]) -> None:
    rig = Rig(since_delta=since_delta)
    rig.clock.time = MIDNIGHT - 2 * DAY  # when they are written
    rig.kafka.schedule(b"a", MIDNIGHT - DAY - 1, b"the day before")
    rig.kafka.schedule(b"b", MIDNIGHT - 1, b"yesterday")
    rig.kafka.schedule(b"c", MIDNIGHT, b"today")
    rig.clock.time = START
    rig.wheel().begin().run_for(100)
    assert rig.kafka.fired() == fired
    assert set(reasons(rig).values()) == {b"missed-too-old"}
    assert len(reasons(rig)) == 3 - len(fired)


def test_what_is_a_little_late_at_midnight_was_not_missed() -> None:
    """The wheel ran all the time: a transaction takes a few at once, and the others go out on the next day."""
    rig = Rig(since_delta=0, fires=4)
    rig.clock.time = MIDNIGHT - 1_000
    names = [b"%02d" % n for n in range(40)]
    for name in names:
        rig.kafka.schedule(name, MIDNIGHT - 10, name)
    wheel = rig.wheel().begin()

    def slow() -> None:
        rig.clock.time += 20

    wheel.writer.after_commit.append(slow)
    wheel.run_for(2_000)
    assert rig.kafka.read("target")[-1].timestamp > MIDNIGHT
    assert (rig.kafka.fired(), reasons(rig)) == (names, {})


def test_an_empty_payload_is_a_schedule_that_gets_its_tombstone() -> None:
    rig = Rig()
    rig.kafka.schedule(b"a", START + 100, b"")
    rig.wheel().begin().run_for(1_000)
    assert rig.kafka.fired() == [b""]
    assert rig.kafka.read(TOPIC)[-1].value is None
