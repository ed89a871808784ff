"""`almanac mini`: a scheduler and a Kafka in one small process, for tests."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from almanac import errors
from almanac.cli import common
from almanac.settings import Settings, is_topic

CHECK = 0.5  # seconds between looks at the wheels

_SETTINGS = ("schedules_topics", "history_topic", "dead_letters_topic", "schedule_grace_interval", "since_delta")


@common.command(*_SETTINGS)
def mini(
    settings: Settings,
    topics: Annotated[
        str, typer.Option(help="Topics to make at once, separated by commas. Others are made when they are written to.")
    ] = "",
    address_file: Annotated[
        str | None, typer.Option(help="Write Kafka's address to this file when it is up; removed at the end.")
    ] = None,
    as_json: common.Json = False,
) -> None:
    """Start a scheduler with a Kafka in memory, for tests: no Java, no Spark, up in a moment; Ctrl-C ends it.

    It prints the address that Kafka clients of this machine can connect to; the port cannot be chosen. All that is
    in it is gone at the end. docs/testing.md says how it differs from the real thing.

    Example: [bold]almanac mini --topics reminders --address-file kafka.address[/bold]
    """
    stop = _stopped_by_signal()  # before all that takes a moment
    from almanac.mini import Mini  # the other commands do without

    if settings.origin("bootstrap_servers") != "default":
        common.note(f"{settings.origin('bootstrap_servers')} is not used: mini is its own Kafka")
    names = [name for part in topics.split(",") if (name := part.strip())]
    for name in names:
        if not is_topic(name):
            raise errors.UsageError(f"--topics {name!r} is no topic's name: 1 to 249 of a-z A-Z 0-9 . _ -")
    _forget(address_file)
    with Mini(settings) as running:
        for name in names:
            running.make_topic(name)
        with _written(address_file, running.bootstrap_servers):
            _show(running.settings, names, as_json)
            while not stop.wait(CHECK):
                running.check()
        fired = running.fired
    if not as_json:
        common.say(f"Stopped. Messages delivered: {fired}")


def _forget(file: str | None) -> None:
    """Of one that was killed: who waits for the file must not read a dead address."""
    if file is None:
        return
    try:
        Path(file).unlink(missing_ok=True)
        if not Path(file).parent.is_dir():
            raise NotADirectoryError(0, f"there is no folder {Path(file).parent}")
    except OSError as error:
        raise errors.UsageError(f"--address-file {file!r} cannot be written: {error.strerror}") from None


def _show(settings: Settings, names: list[str], as_json: bool) -> None:
    schedules = ", ".join(f"{topic} ({form})" for topic, form in settings.schedules_topics)
    if as_json:  # one line: a script reads it while the process runs
        told: dict[str, Any] = {
            "bootstrap_servers": settings.bootstrap_servers,
            "schedules_topics": dict(settings.schedules_topics),
            "history_topic": settings.history_topic or None,
            "dead_letters_topic": settings.dead_letters_topic,
            "topics": names,
            "pid": os.getpid(),
        }
        print(json.dumps(told), flush=True)
        return
    rows = [("schedules", schedules), ("history", settings.history_topic or "none"),
            ("dead letters", settings.dead_letters_topic)]  # fmt: skip
    common.show_table(("Kafka", settings.bootstrap_servers), rows)
    common.say("Ctrl-C ends it; nothing is kept.")


@contextmanager
def _written(file: str | None, address: str) -> Iterator[None]:
    """The address is in the file meanwhile; whoever sees the file sees all of it."""
    if file is None:
        yield
        return
    path = Path(file)
    part = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        part.write_text(address + "\n", encoding="ascii")
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise errors.UsageError(f"--address-file {file!r} cannot be written: {error.strerror}") from None
    try:
        yield
    finally:
        with suppress(OSError):  # of another that was started since, it is left alone
            if path.read_text(encoding="ascii").strip() == address:
                path.unlink()


def _stopped_by_signal() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop
