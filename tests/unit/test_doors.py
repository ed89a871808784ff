"""What a scheduler opens to the outside, and that a taken port holds up nothing."""

import socket

from prometheus_client import CollectorRegistry
from waiting import until

from almanac import doors, exporter
from almanac.settings import Address


def test_a_taken_port_is_told_and_opened_when_it_is_free() -> None:
    said: list[str] = []
    with doors.Doors(said.append) as opened:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            opened.open("Metrics", lambda: exporter.Exporter(Address("127.0.0.1", port), CollectorRegistry()))
            assert f"METRICS_HTTP_ADDR=127.0.0.1:{port}" in said[0]
            assert "The wheels fire meanwhile" in said[0]
        until(lambda: len(said) == 2, 10, "it is opened")
        assert said[1] == f"Metrics: http://127.0.0.1:{port}/metrics"
        socket.create_connection(("127.0.0.1", port), 5).close()
    with socket.socket() as free:
        assert free.connect_ex(("127.0.0.1", port)) != 0


def test_nothing_is_opened_after_the_end() -> None:
    said: list[str] = []
    opened = doors.Doors(said.append)
    opened.close()
    opened.open("Metrics", lambda: exporter.Exporter(Address("127.0.0.1", 0), CollectorRegistry()))
    assert said == []
