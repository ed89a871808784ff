"""Counts of wheels that may be started again at any time."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from almanac import totals
from almanac.totals import Totals


def report(start: int, fired: int, **more: Any) -> dict[str, Any]:
    return {"start": start, "fired": fired, "state": "firing", **more}


def test_a_wheel_that_is_started_again_goes_on_counting() -> None:
    found = Totals()
    found.hear(0, report(17, 100, dead_letters={"invalid": 2}, late=[1, 2, 3]))
    found.hear(0, report(17, 250, dead_letters={"invalid": 3}, late=[2, 2, 3]))
    found.hear(1, report(18, 7))
    found.hear(0, report(93, 0, dead_letters={}, late=[0, 0, 0]))
    found.hear(0, report(93, 40, dead_letters={"invalid": 1, "outdated": 1}, late=[0, 1, 0]))
    counts = found.counts()
    assert counts["fired",] == 297
    assert (counts["dead_letters", "invalid"], counts["dead_letters", "outdated"]) == (4, 1)
    assert totals.histogram(counts, "late", (1, 2)) == [2, 5, 8]
    assert found.starts() == {0: 2, 1: 1}


def test_one_that_was_replaced_and_reports_once_more_is_not_counted_twice() -> None:
    found = Totals()
    for status in (report(1, 10), report(2, 5), report(1, 11), report(2, 6)):
        found.hear(0, status)
    assert found.counts()["fired",] == 17


def test_a_report_from_long_ago_is_counted_already() -> None:
    found = Totals()
    for start in range(10):
        found.hear(0, report(start, 1))
    found.hear(0, report(0, 1))
    assert found.counts()["fired",] == 10


def test_targets_of_starts_that_are_over_are_bounded() -> None:
    found = Totals()
    for start in range(30):
        found.hear(0, report(start, 0, targets={f"t{start}-{n}": n for n in range(100)}))
    names = [name for name in found.counts() if name[0] == "targets"]
    assert len(names) <= totals.MOST_TARGETS + totals.STARTS * 100
    assert ("targets", "t0-99") in names, "the most frequent ones are kept"


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.integers(0, 50)), max_size=60))
def test_a_counter_never_goes_back(steps: list[tuple[int, bool, int]]) -> None:
    found, starts, fired, before = Totals(), [0, 0, 0], [0, 0, 0], 0
    all_of_it = 0
    for offset, (wheel, again, more) in enumerate(steps):
        if again or not starts[wheel]:
            starts[wheel], fired[wheel] = offset + 1, 0
        fired[wheel] += more
        all_of_it += more
        found.hear(wheel, report(starts[wheel], fired[wheel]))
        now = found.counts()["fired",]
        assert now >= before
        before = now
    assert before == all_of_it
