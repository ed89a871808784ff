"""Serves metrics at METRICS_HTTP_ADDR, `/metrics`, in threads of the driver."""

import errno
import logging
import os
import socket
import socketserver
import threading
from collections.abc import Callable, Iterable
from typing import Any, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from almanac import errors
from almanac.settings import Address

log = logging.getLogger("almanac.exporter")

PATH = "/metrics"
PATIENCE = 10.0  # seconds that a client may take to say what it wants


class Exporter:
    """Listens from the moment it is made; `close` ends it."""

    def __init__(self, address: Address, registry: CollectorRegistry) -> None:
        self._server = _bound(address)
        self._server.set_app(_only_metrics(make_wsgi_app(registry)))
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="almanac metrics", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens; of interest if any free one was asked for."""
        return self._server.server_port

    @property
    def url(self) -> str:
        """For people on this machine."""
        host = str(self._server.server_address[0])
        host = {"0.0.0.0": "localhost", "::": "localhost"}.get(host, host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}{PATH}"

    def close(self) -> None:
        """Ends it; safe to call twice."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(2)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False  # a client that hangs does not hold up the end

    def server_bind(self) -> None:
        # Not HTTPServer's: it asks the name service who we are, which may take as long as it likes.
        if self.address_family == socket.AF_INET6 and self.server_address[0] == "::":
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a client of the metrics went away", exc_info=True)


class _Handler(WSGIRequestHandler):
    timeout = PATIENCE

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (its name there)
        log.debug(format, *args)


def _bound(address: Address) -> _Server:
    host = address.host or ("::" if socket.has_dualstack_ipv6() else "0.0.0.0")
    given = f"METRICS_HTTP_ADDR={f'[{address.host}]' if ':' in address.host else address.host}:{address.port}"
    try:
        family = socket.getaddrinfo(host, address.port, type=socket.SOCK_STREAM)[0][0]
        kind = type("_Server", (_Server,), {"address_family": family})
        server: _Server = kind((host, address.port), _Handler)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise errors.AddressTaken(
                f"{given}: somebody listens on port {address.port} already, maybe another scheduler on this machine. "
                "Give this one another METRICS_HTTP_ADDR, such as 127.0.0.1:8011, or an empty one for no metrics"
            ) from None
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise errors.UsageError(f"{given}: cannot listen there: {reason}. Name an address of this machine") from None
    return server


App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def _only_metrics(app: App) -> App:
    """The library's answers every path; a wrong one should not look right."""

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] == PATH:
            return app(environ, start)
        start("404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
        return [f"Metrics are at {PATH}.\n".encode()]

    return answer
