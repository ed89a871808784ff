"""When a book is thrown away, and when pages turn: decided without Spark and Kafka."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from almanac import ports, runner, tail
from almanac.book import fired, pages
from almanac.keeper import Keeper
from almanac.settings import Settings


@pytest.fixture
def keeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keeper:
    nothing: Any = None
    settings = Settings(bootstrap_servers="127.0.0.1:1", book_location=str(tmp_path))
    made = Keeper(settings, nothing, nothing, {}, [], 1, threading.Event(), lambda text: None)
    monkeypatch.setattr(made, "_unfinished", False)
    monkeypatch.setattr(tail, "beginnings", lambda admin, sources: {})
    monkeypatch.setattr(fired.Fired, "open", lambda self: None)
    monkeypatch.setattr(tail, "ends", lambda admin, sources, isolation: {})
    return made


@pytest.mark.parametrize(
    ("error", "distrust", "times", "rebuilt"),
    [
        (ports.Unavailable("Kafka is away"), "it cannot be read", 10, 0),
        (RuntimeError("no space left"), None, 10, 0),
        (RuntimeError("a file is missing"), "it cannot be read", 2, 0),
        (RuntimeError("a file is missing"), "it cannot be read", 3, 1),
    ],
    ids=["Kafka is away", "the book is good", "twice may be chance", "the book is damaged"],
)
def test_a_book_is_built_again_only_if_it_is_the_trouble(
    error: Exception, distrust: str | None, times: int, rebuilt: int, keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[int] = []
    monkeypatch.setattr(keeper, "_distrust", lambda starts, ends: distrust)
    monkeypatch.setattr(keeper, "bring_up_to_date", lambda: built.append(1))
    told = [keeper.failed(error) for _ in range(times)]
    assert (len(built), sum(told)) == (rebuilt, rebuilt)


def _page(ahead: float) -> pages.PageSpec:
    now = int(time.time() * 1000)
    return pages.PageSpec(
        number=1, path="", version=0, offsets={}, horizon=now + int(ahead * 1000), shards=1, made=now
    )  # fmt: skip


def test_the_book_is_late_if_its_page_or_its_merge_is(keeper: Keeper) -> None:
    assert keeper.late() == "the next page is late"  # there is none
    keeper.page = _page(599)
    assert keeper.late() is None
    keeper.page = _page(301)  # it is time for the next one, which is being written
    assert keeper.late() is None
    keeper.page = _page(260)
    assert keeper.late() == "the next page is late"
    keeper.page = _page(599)
    keeper.progress.begin()
    assert keeper.late() is None
    keeper.progress._begun = time.monotonic() - 61
    assert keeper.late() == "a merge takes 61 s"
    keeper.progress.end()
    assert keeper.late() is None


def test_what_is_half_built_makes_no_page_and_is_built_on(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []
    monkeypatch.setattr(keeper, "_unfinished", True)
    monkeypatch.setattr(keeper, "bring_up_to_date", lambda: built.append(1))
    with pytest.raises(ports.Unavailable) as refused:
        keeper.write_page()
    assert keeper.failed(refused.value)
    assert built == [1]


def test_a_page_is_made_in_time_though_wheels_ask_for_one_all_the_while(monkeypatch: pytest.MonkeyPatch) -> None:
    made = runner.Runner(Settings(bootstrap_servers="127.0.0.1:1", page_length=2))
    written: list[float] = []

    class Pages:
        def described(self) -> dict[str, Any]:
            return {"made": time.time() * 1000}

        def has_news(self) -> bool:
            made._turn_now.set()  # as the listener does while a wheel has seen too much
            return False

        def write_page(self) -> None:
            written.append(time.monotonic())
            made._stopping.set()

    monkeypatch.setattr(made, "_keeper", Pages(), raising=False)
    monkeypatch.setattr(made, "_announce", lambda: None)
    made._turn_now.set()
    turning = threading.Thread(target=made._turn_pages, daemon=True)
    turning.start()
    turning.join(10)
    assert len(written) == 1
