"""What the pages are about: the desk, the settings, and the last minutes of the scheduler."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from almanac import desk, errors
from almanac.settings import Settings

KEPT_S = 600  # how far back the charts reach
WATCHED_S = 10.0  # nobody has looked for so long: nothing is asked any more
EVERY_S = 1.0

_log = logging.getLogger("almanac.ui")
T = TypeVar("T")


@dataclass(frozen=True)
class Sample:
    """A second of the scheduler."""

    at: int  # epoch ms
    per_second: float
    late_p50: int | None
    late_p99: int | None


class Watch:
    """Asks the desk once a second for all who look at the overview together, and not at all if nobody does."""

    def __init__(self, at: desk.Desk) -> None:
        self._desk = at
        self.samples: deque[Sample] = deque(maxlen=KEPT_S)
        self.last: desk.Overview | None = None
        self.problem: str | None = None  # why the last question has no answer
        self._looked = 0.0
        self._task: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Somebody is looking now."""
        self._looked = time.monotonic()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while time.monotonic() - self._looked < WATCHED_S:
            began = time.monotonic()
            await self._ask()
            await asyncio.sleep(max(0.1, EVERY_S - (time.monotonic() - began)))

    async def _ask(self) -> None:
        try:
            seen = await call(self._desk.overview)
        except Exception as error:  # whatever it is, the page says so and asks again
            self.problem = told(error)
            return
        self.problem, self.last = None, seen
        board = seen.board
        self.samples.append(Sample(seen.now, board.per_second, board.late_p50, board.late_p99))


@dataclass(frozen=True)
class Site:
    desk: desk.Desk
    settings: Settings
    watch: Watch


_site: Site | None = None


def open_on(at: desk.Desk, settings: Settings) -> None:
    """From now on the pages are about this desk. NiceGUI has one app in a process, so there is one site."""
    global _site
    _site = Site(at, settings, Watch(at))


def current() -> Site:
    if _site is None:
        raise errors.AlmanacError("The page is not mounted: call almanac.ui.mount(app, desk, settings) first.")
    return _site


async def call(ask: Callable[..., T], *arguments: object, **named: object) -> T:
    """A blocking call of the desk, in a thread."""
    return await asyncio.to_thread(ask, *arguments, **named)


def told(error: BaseException) -> str:
    """An error in words for the viewer. What is not ours is logged, by its kind: its text may hold anything."""
    if isinstance(error, errors.AlmanacError):
        return str(error)
    _log.warning("the page could not be answered: %s", type(error).__name__)
    return f"The scheduler could not answer ({type(error).__name__}). Its log may say more."
