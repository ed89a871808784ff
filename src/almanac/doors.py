"""What a scheduler opens to people and programs while it runs: metrics, the REST interface, the page.

A port that is taken keeps no wheel from firing: it is told, with the setting's name, and tried again until it is free.
The scheduler that this one replaces holds the same ports until it has noticed.
"""

import threading
from collections.abc import Callable
from typing import Protocol, Self

from almanac import errors

AGAIN = 1.0  # seconds between tries


class Served(Protocol):
    """Something that listens."""

    @property
    def url(self) -> str: ...
    def close(self) -> None: ...


class Doors:
    """Opens doors and keeps them open; `close` shuts them all."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._served: list[Served] = []

    def open(self, name: str, serve: Callable[[], Served]) -> None:
        """Opens one, now if its port is free, else as soon as it is. Any other error than a taken port is raised."""
        try:
            self._serve(name, serve)
        except errors.AddressTaken as error:
            self._say(f"{name}: {error}. The wheels fire meanwhile; the port is tried again")
            threading.Thread(target=self._later, args=(name, serve), name=f"almanac {name}", daemon=True).start()

    def _serve(self, name: str, serve: Callable[[], Served]) -> None:
        with self._lock:  # so that nothing is opened after `close`
            if not self._closing.is_set():
                served = serve()
                self._served.append(served)
                self._say(f"{name}: {served.url}")

    def _later(self, name: str, serve: Callable[[], Served]) -> None:
        while not self._closing.wait(AGAIN):
            try:
                self._serve(name, serve)
                return
            except errors.AlmanacError:
                continue

    def close(self) -> None:
        """Shuts them; safe to call twice."""
        self._closing.set()
        with self._lock:
            while self._served:
                self._served.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
