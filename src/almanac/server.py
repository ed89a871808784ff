"""Serves the REST interface and the page, in a thread of the driver."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import socket
import threading
from typing import Self

import uvicorn

from almanac import api, desk, errors
from almanac.settings import Address, Settings

log = logging.getLogger("almanac.server")

START = 10.0  # seconds
STOP = 2.0  # seconds that requests under way have


class Server:
    """`start()` returns when it listens; `close()` ends it."""

    def __init__(self, settings: Settings, at: desk.Desk, address: Address) -> None:
        self._settings, self._desk, self._address = settings, at, address
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self.port = address.port  # the one that was given, where 0 asks for any

    @property
    def url(self) -> str:
        host = self._address.host or "localhost"
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def start(self) -> Self:
        """Raises errors.AddressTaken."""
        listening = self._listen()
        self.port = listening.getsockname()[1]
        page = importlib.util.find_spec("almanac.ui") is not None
        app = api.app(self._desk, self._settings, page=page)
        if page:
            # Asked for by name: the REST interface does without it.
            importlib.import_module("almanac.ui").mount(app, self._desk, self._settings)
        config = uvicorn.Config(
            app, log_config=None, log_level="warning", access_log=False, lifespan="on",
            timeout_graceful_shutdown=int(STOP),
            server_header=False, date_header=True, ws_max_size=1 << 20, h11_max_incomplete_event_size=1 << 16,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([listening],), name="almanac server", daemon=True
        )  # fmt: skip
        self._thread.start()
        wait = threading.Event()
        for _ in range(int(START / 0.02)):
            if self._server.started or not self._thread.is_alive():
                break
            wait.wait(0.02)
        return self

    def close(self) -> None:
        """Lets requests under way end; safe to call twice."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(STOP + 1)
            self._server = self._thread = None

    def _listen(self) -> socket.socket:
        """Bound here and not by uvicorn, which would end the process if it cannot."""
        host, port = self._address
        made = socket.socket(socket.AF_INET6 if ":" in host or not host else socket.AF_INET, socket.SOCK_STREAM)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if not host:  # every interface, of both kinds
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            made.bind((host or "::", port))
            made.listen(128)
        except OSError as error:
            made.close()
            raise errors.AddressTaken(
                f"the REST interface cannot listen on {self._settings.server_addr}: {error.strerror}. Another "
                "scheduler may run there: choose another SERVER_ADDR, or an empty one for none"
            ) from None
        return made
