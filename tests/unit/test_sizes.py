"""Rule 9: what does not fit must neither be lost nor hold up the rest."""

from collections.abc import Sequence

import pytest
from memory import START, TOPIC, Rig

from almanac import ports
from almanac.outgoing import Outgoing
from almanac.record import first

pytestmark = pytest.mark.rule(9)

BAD = [("scheduler-epoch", b"no")]


def test_a_repeat_that_does_not_fit_holds_up_nobody() -> None:
    rig = Rig()
    turning = rig.wheel().begin()
    turning.run_for(100)
    rig.kafka.schedule(b"k", START + 1_000, b"v1")

    def update() -> None:
        rig.kafka.schedule(b"k", START + 60_000, b"x" * 100)
        rig.kafka.limits[TOPIC] = 50  # the repeat has more headers than what the user wrote

    turning.writer.before_ours.append(update)
    turning.run_for(2_000)
    rig.kafka.schedule(b"other", START + 3_000, b"other")
    turning.run_for(2_000)
    assert rig.kafka.fired() == [b"v1", b"other"]
    turning.run_for(60_000)
    assert rig.kafka.fired() == [b"v1", b"other", b"x" * 100], "the update itself is delivered in its time"


def test_only_the_dead_letter_that_does_not_fit_becomes_a_stub() -> None:
    rig = Rig()
    turning = rig.wheel().begin()
    rig.kafka.limits["dead-letters"] = 50
    for number in range(3):
        rig.kafka.write(TOPIC, b"k%d" % number, b"x" * (100 if number == 1 else 10), list(BAD))
    turning.run_for(500)
    letters = {letter.key: letter for letter in rig.kafka.read("dead-letters")}
    assert {key: letter.value for key, letter in letters.items()} == {
        b"k0": b"x" * 10, b"k1": None, b"k2": b"x" * 10,
    }  # fmt: skip
    assert b"almanac-source" in first(letters[b"k1"].headers).get("almanac-stub", b"")  # type: ignore[operator]
    assert len(rig.kafka.read("dead-letters")) == 3


def test_garbage_whose_disposal_does_not_fit_holds_up_nobody() -> None:
    rig = Rig()
    turning = rig.wheel().begin()
    rig.kafka.write(TOPIC, b"k" * 100, b"", list(BAD))
    rig.kafka.limits[TOPIC] = 99
    rig.kafka.write(TOPIC, b"other", b"", list(BAD))
    rig.kafka.schedule(b"a", START + 500, b"a")
    turning.run_for(1_000)
    assert rig.kafka.fired() == [b"a"]
    assert [letter.key for letter in rig.kafka.read("dead-letters")] == [b"other"]


def test_a_history_copy_that_does_not_fit_becomes_a_stub() -> None:
    rig = Rig()
    turning = rig.wheel().begin()
    rig.kafka.limits["history"] = 50
    rig.kafka.schedule(b"large", START + 500, b"x" * 100)
    rig.kafka.schedule(b"small", START + 500, b"x")
    turning.run_for(1_000)
    assert sorted(map(bytes, filter(None, rig.kafka.fired()))) == [b"x", b"x" * 100]
    copies = {first(copy.headers)["almanac-id"]: copy.value for copy in rig.kafka.read("history")}
    assert copies == {b"large": None, b"small": b"x"}


def test_a_key_too_large_for_its_tombstone_holds_up_nobody() -> None:
    rig = Rig()
    turning = rig.wheel().begin()
    rig.kafka.schedule(b"k" * 100, START + 500, b"never")
    rig.kafka.schedule(b"a", START + 500, b"a")
    rig.kafka.schedule(b"b", START + 800, b"b")
    rig.kafka.limits[TOPIC] = 99
    turning.run_for(1_000)
    turning.claims.say(ports.Turn(rig.page()))  # its row comes again
    rig.kafka.schedule(b"c", START + 1_500, b"c")
    turning.run_for(2_000)
    assert rig.kafka.fired() == [b"a", b"b", b"c"]


def test_chores_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(bytes=5_000)
    turning = rig.wheel().begin()
    sizes: list[int] = []
    attempt = turning.writer.attempt

    def measured(records: Sequence[Outgoing]) -> dict[int, ports.Fault]:
        sizes.append(sum(len(record.value or b"") for record in records))
        return attempt(records)

    monkeypatch.setattr(turning.writer, "attempt", measured)
    for number in range(20):
        rig.kafka.write(TOPIC, b"k%d" % number, b"x" * 1_000, list(BAD))
    turning.run_for(1_000)
    assert len(rig.kafka.read("dead-letters")) == 20
    assert max(sizes) <= 5_000


def test_a_batch_that_is_refused_for_its_size_is_halved_not_singled(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    turning = rig.wheel().begin()
    turning.run_for(100)
    attempt, tries = turning.writer.attempt, []

    def judged(records: Sequence[Outgoing]) -> dict[int, ports.Fault]:  # as the broker does: a batch as a whole
        tries.append(len(records))
        targets = [number for number, record in enumerate(records) if record.topic == "target"]
        if len(targets) > 100:
            return {number: ports.Fault("size", "too large") for number in targets}
        return attempt(records)

    def refuse() -> None:
        raise ports.Refused("too large")

    monkeypatch.setattr(turning.writer, "attempt", judged)
    for number in range(1_000):
        rig.kafka.schedule(b"k%d" % number, START + 1_000, b"v")
    turning.writer.before_commit.append(refuse)
    turning.run_for(2_000)
    assert len(rig.kafka.fired()) == 1_000
    assert len(tries) < 40
