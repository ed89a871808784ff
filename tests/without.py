"""The protocol with one rule taken out: `pytest -p without --only-rule 4 --without-rule 4`. For `make rules` alone.

Each entry below is the smallest change that undoes its rule. The rule's tests must fail then.
"""

from collections.abc import Callable
from typing import Any

import pytest

from almanac import chores, ledger, outgoing, poison, pulse, wheel, words

Patch = Callable[[pytest.MonkeyPatch], None]


def _no_catching_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(wheel.Wheel, "_catch_up", lambda self: None)


def _tombstone_through_a_partitioner(patch: pytest.MonkeyPatch) -> None:
    explicit = outgoing.tombstone
    patch.setattr(outgoing, "tombstone", lambda entry: explicit(entry)._replace(partition=-1))


def _tombstone_kills_all_before_it(patch: pytest.MonkeyPatch) -> None:
    read = words.read

    def plain(record: Any, form: Any, topic_id: str) -> words.Said:
        said = read(record, form, topic_id)
        return words.Kill(record.offset, True) if isinstance(said, words.Kill) else said

    patch.setattr(words, "read", plain)


def _no_repeats(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger.Ledger, "_drift", lambda self, key, repeat: None)


def _garbage_cancels(patch: pytest.MonkeyPatch) -> None:
    read = words.read

    def hasty(record: Any, form: Any, topic_id: str) -> words.Said:
        said = read(record, form, topic_id)
        return words.Kill(record.offset, False) if isinstance(said, words.Garbage) else said

    patch.setattr(words, "read", hasty)


def _go_on_after_an_unclear_answer(patch: pytest.MonkeyPatch) -> None:
    take_over = wheel.Wheel.take_over

    def once(self: wheel.Wheel) -> str | None:
        if getattr(self, "_taken", False):
            return None
        self._taken = True  # type: ignore[attr-defined]
        return take_over(self)

    patch.setattr(wheel.Wheel, "take_over", once)


def _no_waiting_for_the_due_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(wheel.Wheel, "_await", lambda self, batch: True)


def _no_search_for_the_culprit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(poison.Ward, "sort_out", lambda self, batch: self._give_back(batch))


def _no_stubs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(chores.Chores, "_shrink", lambda self, chore: None)


def _batches_are_taken_as_they_come(patch: pytest.MonkeyPatch) -> None:
    from almanac.book import batch, stretch, table

    patch.setattr(table.Book, "_numbered", staticmethod(lambda writer, number: writer.format("delta")))
    patch.setattr(batch, "unread", lambda known, ends: dict.fromkeys(ends, stretch.BEGINNING))


def _staged_messages_go_out_whatever_is_said(patch: pytest.MonkeyPatch) -> None:
    take = ledger.Ledger.take
    patch.setattr(ledger.Ledger, "take", lambda self, record, keep: take(self, record, keep) and None)


def _fire_on_a_stalled_tail(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pulse.Pulse, "_stalled", lambda self, now: None)
    patch.setattr(wheel.Wheel, "_fresh", lambda self, batch: batch)


WITHOUT: dict[int, Patch] = {
    1: _no_catching_up,
    2: _tombstone_through_a_partitioner,
    3: _tombstone_kills_all_before_it,
    4: _no_repeats,
    5: _garbage_cancels,
    6: _go_on_after_an_unclear_answer,
    7: _no_waiting_for_the_due_time,
    8: _no_search_for_the_culprit,
    9: _no_stubs,
    10: _batches_are_taken_as_they_come,
    11: _staged_messages_go_out_whatever_is_said,
    12: _fire_on_a_stalled_tail,
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--only-rule", type=int, help="run the tests of this rule only")
    parser.addoption("--without-rule", type=int, help="take this rule out of the protocol first")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    number = config.getoption("--only-rule")
    if number is not None:
        marked = [item for item in items if any(number in mark.args for mark in item.iter_markers("rule"))]
        config.hook.pytest_deselected(items=[item for item in items if item not in marked])
        items[:] = marked


@pytest.fixture(autouse=True)
def _without_rule(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    number = request.config.getoption("--without-rule")
    if number is not None:
        WITHOUT[number](monkeypatch)
