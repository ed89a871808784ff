"""The live status, as a log and as a picture."""

import time
from typing import Any

from rich.console import Console

from almanac import tally
from almanac.board import Board


def status(page: int = 1, *, age_ms: int = 0, **more: Any) -> dict[str, Any]:
    late = [0] * (len(tally.BOUNDS) + 1)
    return {"state": "firing", "page": page, "reported": time.time() * 1000 - age_ms, "late": late, "fired": 0, **more}


def test_pending_is_the_book_of_the_page_in_use_and_what_came_since() -> None:
    board = Board("title")
    assert board.overview({1: 100}, {0: status(net=5), 1: status(net=-2)}).pending == 103
    # page 2 is written and holds what the wheels counted, but none of them is on it yet
    assert board.overview({1: 100, 2: 103}, {0: status(net=5), 1: status(net=-2)}).pending == 103
    assert board.overview({1: 100, 2: 103}, {0: status(2, net=0), 1: status(2, net=0)}).pending == 103


def test_a_wheel_that_says_nothing_is_not_said_to_fire() -> None:
    line = Board("title").line(Board("title").overview({}, {0: status(), 1: status(age_ms=12_000)}))
    assert line.endswith("shards: 0 firing, 1 silent for 12 s")


def test_lateness_and_rate_are_those_of_the_last_seconds() -> None:
    board = Board("title")
    board.overview({}, {0: status(fired=10)})
    late = status()["late"]
    late[3] = 40  # at most 10 ms
    view = board.overview({}, {0: status(fired=50, late=late)})
    assert (view.fired, view.late_p50, view.late_p99) == (50, 10, 10)
    assert 0 < view.per_second <= 40


def test_the_picture_shows_each_shard() -> None:
    board, console = Board("Almanac: group g"), Console(width=120, record=True, file=None, quiet=False)
    statuses = {0: status(in_memory=7), 1: status(state="waiting", why="Kafka does not answer")}
    with console.capture() as shown:
        console.print(board.picture(board.overview({1: 3}, statuses), statuses))
    text = shown.get()
    assert "Almanac: group g" in text
    assert "Kafka does not answer" in text
    assert "waiting" in text


def test_a_partition_that_halts_is_seen_wherever_one_looks() -> None:
    board, console = Board("title"), Console(width=160)
    why = "offset 7: header schedule_schema_version is 2.0.0; this version understands up to 1.0.0: upgrade it"
    statuses = {0: status(), 1: status(halted=[["rails", 3, why]])}
    view = board.overview({}, statuses)
    assert board.line(view).endswith("INCOMPATIBLE, upgrade Almanac: rails/3")
    with console.capture() as shown:
        console.print(board.picture(view, statuses))
    assert f"rails/3 is incompatible and halts at {why}" in shown.get()
