"""The ports of the embedded Kafka."""

import errno
import socket

from almanac.broker import reasons
from almanac.broker.config import Config


def check(config: Config) -> None:
    for port in (config.port, config.controller_port):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that linger do not count
            try:
                probe.bind((config.host, port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                raise reasons.port_taken(port) from None


def free() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
