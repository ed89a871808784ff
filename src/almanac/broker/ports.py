"""The ports of the embedded Kafka."""

import errno
import random
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


# Below those that systems give to connections: nobody takes one of these by chance before it is listened on.
_QUIET = range(20_000, 32_000)


def free(following: int = 0) -> int:
    """A port that nobody listens on now, nor on so many that follow it."""
    while True:
        port = random.choice(_QUIET)
        if all(_is_free(each) for each in range(port, port + 1 + following)):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return False
        return True
