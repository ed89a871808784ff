"""What a trial of a refused transaction makes of librdkafka's answers; the answers themselves: test_engine, poison."""

from typing import Any

import pytest

from almanac import ports, writer
from almanac.settings import Settings

GAP, SIZE = ports.Fault("gap", "skipped sequence numbers"), ports.Fault("size", "too large")


@pytest.mark.parametrize(
    ("answers", "told", "tries"),
    [
        ([{}], {}, 1),
        ([{-1: GAP}, {}], {}, 2),
        ([{-1: GAP}, {1: SIZE, 4: GAP}], {1: SIZE, 4: GAP}, 2),
        ([{-1: GAP}] * 9, {-1: GAP}, 1 + writer.GAPS),
    ],
)
def test_a_gap_that_another_transaction_left_is_no_answer(
    monkeypatch: pytest.MonkeyPatch, answers: list[Any], told: Any, tries: int
) -> None:
    made = writer.KafkaWriter(Settings.load({}, {"BOOTSTRAP_SERVERS": "127.0.0.1:9"}), "wheel-0", 1_000_000)
    waiting = iter(answers)
    asked: list[Any] = []

    def attempt(records: Any, _: Any) -> Any:
        asked.append(records)
        return next(waiting)

    monkeypatch.setattr(made, "_attempt", attempt)
    assert made.attempt([]) == told
    assert len(asked) == tries
