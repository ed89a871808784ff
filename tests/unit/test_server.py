"""Where the REST interface listens."""

from __future__ import annotations

import socket
from typing import Any

import httpx
import pytest

from almanac import errors, server
from almanac.settings import Address, Settings


class Nobody:
    """A desk that is not asked."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"asked for {name}")


@pytest.mark.parametrize("host", ["127.0.0.1", ""])
def test_it_serves_and_ends(host: str) -> None:
    serving = server.Server(Settings(server_addr=f"{host}:0"), Nobody(), Address(host, 0)).start()  # type: ignore[arg-type]
    try:
        answer = httpx.get(f"http://127.0.0.1:{serving.port}/liveness")
        assert (answer.status_code, answer.content) == (200, b"")
        assert "content-type" not in answer.headers
        assert "server" not in answer.headers
    finally:
        serving.close()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{serving.port}/liveness")


def test_a_taken_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(errors.AddressTaken, match=f"127.0.0.1:{port}.*SERVER_ADDR"):
            server.Server(
                Settings(server_addr=f"127.0.0.1:{port}"),
                Nobody(),  # type: ignore[arg-type]
                Address("127.0.0.1", port),
            ).start()
