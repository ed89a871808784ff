"""What people tell the wheels: how it is written down, who has it, and what it leaves of what is due."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from almanac import controls, errors, gate

ALL = controls.Controls(
    paused=True, paused_targets=("b", "a", "b"), missed_per_second=0, target_per_second={"t": 5}, by="Ada", at=7
)


def test_controls_as_text_and_back() -> None:
    assert controls.Controls.from_json(ALL.to_json()) == ALL
    assert controls.Controls.of({"paused": True, "of a later version": 1}) == controls.Controls(paused=True)
    assert ALL.paused_targets == ("a", "b")
    assert dataclasses.replace(ALL, paused=False).target_per_second == {"t": 5}
    assert controls.Controls(by="Ada", at=7).free
    assert not any(
        controls.Controls(**{name: getattr(ALL, name)}).free
        for name in ("paused", "paused_targets", "missed_per_second", "target_per_second")
    )


@pytest.mark.parametrize("cap", [-1, 1.5, "5", True])
def test_a_cap_is_a_whole_number(cap: object) -> None:
    with pytest.raises(errors.UsageError, match="whole number"):
        controls.Controls(target_per_second={"t": cap})  # type: ignore[dict-item]  # that is the point


def test_of_two_that_are_told_at_once_every_partition_knows_the_same_as_the_later() -> None:
    first, second = controls.Controls(paused=True), controls.Controls(paused_targets=("t",))
    told = [controls.Told(10, first), controls.Told(11, second)]
    for order in (told, told[::-1]):  # in which they may come to a partition that is not the first
        kept = controls.Kept()
        for offset, each in enumerate(order, 99):
            heard = controls.heard(1, offset, "controls", each.value())
            assert heard == each
            kept.learn(1, each)
        assert kept.controls == second
    assert controls.heard(0, 12, "controls", {**first.fields(), "version": 3}) == controls.Told(12, first)
    assert controls.heard(0, 12, "controls-again", {**first.fields(), "version": 3}) == controls.Told(3, first)


@pytest.mark.parametrize("value", [{}, {"version": 3, "missed_per_second": -1}, {"version": 3, "paused_targets": 5}])
def test_what_is_not_understood_is_not_obeyed(value: dict[str, object]) -> None:
    assert controls.heard(1, 5, "controls", value) is None
    assert controls.heard(1, 5, "page", {"version": 3}) is None


def test_a_partition_that_lacks_the_last_ones_for_a_second_is_named() -> None:
    kept = controls.Kept()
    assert kept.lacking([0, 1], 0.0) == []
    kept.learn(0, controls.Told(5, ALL))
    assert kept.lacking([0, 1], 1.0) == []
    assert kept.lacking([0, 1], 2.5) == [1]
    kept.learn(1, controls.Told(5, ALL))
    assert kept.lacking([0, 1], 3.0) == []
    kept.learn(1, controls.Told(4, controls.Controls()))
    assert kept.lacking([0, 1], 9.0) == []
    assert kept.controls == ALL


@given(st.integers(1, 5_000), st.integers(1, 4), st.lists(st.integers(0, 400), max_size=60))
def test_no_second_sees_more_than_the_cap_and_a_quarter(cap: int, shards: int, waits: list[int]) -> None:
    made = gate.Gate(shards)
    made.steer(controls.Controls(target_per_second={"t": cap}), 0)
    now, went = 0, []
    for wait in waits:
        now += wait
        went.append((now, made.grant("t", 1 << 40, now)))
        assert made.grant("t", 1 << 40, now) == 0
    rate = cap / shards
    for start, _ in went:
        assert sum(number for at, number in went if start <= at < start + 1_000) <= rate * 1.25 + 1
    assert made.leaves("another", now) == gate.UNBOUNDED


def test_a_cap_is_reached_and_a_cap_of_none_lets_nothing_pass() -> None:
    made = gate.Gate(2)
    made.steer(controls.Controls(target_per_second={"t": 100, "none": 0}, missed_per_second=1), 0)
    assert sum(made.grant("t", 100, now) for now in range(0, 10_000, 20)) in range(495, 502)
    assert sum(made.grant("none", 100, now) for now in range(0, 10_000, 20)) == 0
    missed = 0
    for now in range(10_000, 20_000, 20):
        missed += (may := made.leaves_missed(now))
        made.spend_missed(may)
    assert missed in (5, 6), "one a second, shared by two"


def test_the_same_cap_told_again_fills_no_bucket() -> None:
    made = gate.Gate()
    made.steer(controls.Controls(target_per_second={"t": 100}), 0)
    assert made.grant("t", 100, 1_000) == 25
    made.steer(controls.Controls(target_per_second={"t": 100}, by="Ada"), 1_000)
    assert made.grant("t", 100, 1_000) == 0
