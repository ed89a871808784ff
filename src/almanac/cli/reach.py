"""Where a command gets its answers: from a running scheduler's REST interface, or straight from Kafka and the book."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from almanac.cli import common
from almanac.settings import Settings

if TYPE_CHECKING:
    from almanac import desk, remote

TOKEN = "ALMANAC_API_TOKEN"

Api = Annotated[
    str | None,
    typer.Option(
        "--api",
        metavar="URL",
        envvar="ALMANAC_API",
        show_envvar=False,
        show_default="straight on Kafka and the book",
        help=r"Ask a running scheduler, such as http://localhost:8000. \[ALMANAC_API, its token: ALMANAC_API_TOKEN]",
    ),
]


@contextmanager
def at(settings: Settings, api: str | None) -> Iterator[desk.Desk | remote.Remote]:
    """Somebody to ask."""
    if api:
        from almanac import remote

        yield remote.Remote(api, os.environ.get(TOKEN, ""))
        return
    from almanac import desk  # brings the book's libraries, which other commands do without

    with desk.Desk(settings) as counter:
        yield counter
        if (why := counter.note()) is not None:
            common.note(f"the book is not to be trusted ({why}): the log was read from its beginning")


def who() -> str:
    """For the audit log."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in many containers
        name = str(os.getuid()) if hasattr(os, "getuid") else "?"
    return f"cli {name}@{socket.gethostname()}"
