"""`almanac up` and `almanac run`: a runner in the foreground, until a signal or a later owner ends it.

Exit codes: 0 after Ctrl-C or SIGTERM, 3 when another scheduler of the group took over; the rest in `errors`.
"""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import psutil
from rich.console import Console
from rich.live import Live

from almanac import board, broker, desk, doors, errors, exporter, metrics, server
from almanac.runner import Runner
from almanac.settings import Settings

log = logging.getLogger("almanac.service")

STOP_SECONDS = 9.0  # what has not ended by then is killed
LINE_SECONDS = 10.0  # between status lines where there is no terminal


def up(settings: Settings) -> None:
    """An embedded Kafka and the scheduler on it."""
    folder = Path(settings.data_folder).expanduser().absolute()
    stop = _stopped_by_signal()
    config = broker.Config(folder=folder / "kafka", port=settings.kafka_port, controller_port=settings.kafka_port + 1)
    kafka = broker.Broker(config)
    try:
        with _interrupted_by(stop):
            kafka.start(_say)
        if stop.is_set():
            return
        mine = settings.replaced(bootstrap_servers=kafka.bootstrap_servers)
        (folder / "log").mkdir(parents=True, exist_ok=True)
        _serve(Runner(mine, progress=_say), stop, lambda: kafka.check(), folder / "log" / "spark.log")
    finally:
        kafka.stop()


def run(settings: Settings) -> None:
    """The scheduler on an existing Kafka."""
    _serve(Runner(settings, progress=_say), _stopped_by_signal(), lambda: None, None)


def _serve(runner: Runner, stop: threading.Event, check: Callable[[], None], spark_log: Path | None) -> None:
    opened = doors.Doors(_say)
    if (metrics_at := runner.settings.metrics_address) is not None:
        opened.open("Metrics", lambda: exporter.Exporter(metrics_at, metrics.registry(runner)))
    errors_to = _Diversion(spark_log)
    starting = threading.Thread(target=_start, args=(runner, stop, errors_to), daemon=True)
    try:
        starting.start()
        while starting.is_alive() and not stop.is_set():
            starting.join(0.1)
            check()
        if not stop.is_set():
            with _open_to_people(runner, opened):
                _watch(runner, stop, check)
    finally:
        errors_to.end()  # what is said from here on, people must see
        _say("Stopping")
        _not_longer_than(STOP_SECONDS, sys.exc_info()[1] or runner.failure)
        opened.close()
        runner.close()
        _say("Stopped")
    if runner.failure is not None:
        raise runner.failure


@contextmanager
def _open_to_people(runner: Runner, opened: doors.Doors) -> Iterator[None]:
    """The REST interface and the page, while the wheels turn."""
    settings = runner.settings
    address = settings.server_address
    if address is None or settings.shadow:  # a shadow changes nothing, and has nothing of its own
        yield
        return
    with desk.Desk(settings, runner) as at:
        opened.open("Serving", lambda: server.Server(settings, at, address).start())
        threading.Thread(target=_connect, args=(at,), daemon=True).start()
        try:
            yield
        finally:
            opened.close()


def _connect(at: desk.Desk) -> None:
    with suppress(errors.AlmanacError):  # the first act connects then
        at.open()


def _exit_code(failure: BaseException | None) -> int:
    if failure is None:
        return 0
    return failure.exit_code if isinstance(failure, errors.AlmanacError) else 1


def _start(runner: Runner, stop: threading.Event, errors_to: "_Diversion") -> None:
    try:
        with errors_to:
            runner.start()
    except BaseException as error:
        if not stop.is_set():
            runner.failure = error
            stop.set()


def _watch(runner: Runner, stop: threading.Event, check: Callable[[], None]) -> None:
    settings = runner.settings
    what = "a shadow, which fires nothing: group" if settings.shadow else "group"
    title = f"Almanac: {what} {settings.group_id} on {settings.bootstrap_servers}, {', '.join(settings.topics)}"
    seen = board.Board(title)
    console = Console()
    if not console.is_terminal:
        _say(f"Up: {title}")
        while not stop.is_set() and not runner.wait(0):
            _say(seen.line(seen.overview(runner.pending_in_book, runner.statuses), runner.duties))
            _wait(runner, stop, check, LINE_SECONDS)
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while not stop.is_set() and not runner.wait(0):
            statuses = runner.statuses
            view = seen.overview(runner.pending_in_book, statuses)
            live.update(seen.picture(view, statuses, runner.duties), refresh=True)
            _wait(runner, stop, check, 0.5)


def _wait(runner: Runner, stop: threading.Event, check: Callable[[], None], seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not stop.wait(0.2) and not runner.wait(0):
        check()


def _stopped_by_signal() -> threading.Event:
    stop = threading.Event()

    def told(number: int, _: FrameType | None) -> None:
        if stop.is_set():  # a second Ctrl-C: at once
            _end_now(130)
        stop.set()

    signal.signal(signal.SIGINT, told)
    signal.signal(signal.SIGTERM, told)
    return stop


def _not_longer_than(seconds: float, failure: BaseException | None) -> None:
    """Whatever hangs while stopping, nothing is left running; nothing is lost by that either."""

    def end() -> None:
        _say(f"Stopped: what had not ended after {seconds:g} s was killed")
        if failure is not None:  # nobody else will say it any more
            print(f"almanac: {failure}", file=sys.stderr, flush=True)
        _end_now(_exit_code(failure))

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


def _end_now(code: int) -> None:
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            child.kill()
    os._exit(code)


@contextmanager
def _interrupted_by(stop: threading.Event) -> Iterator[None]:
    """A signal ends what is inside at once, not only after it."""

    def told(*_: object) -> None:
        stop.set()
        raise KeyboardInterrupt

    before = {number: signal.signal(number, told) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except KeyboardInterrupt:
        _say("Stopped")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Diversion:
    """What is started meanwhile (Spark's JVM, its Python workers) writes its errors to a file, not over the status."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._kept: int | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if self._path is not None:
            self._kept = os.dup(2)
            with self._path.open("ab") as file:
                os.dup2(file.fileno(), 2)

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Errors are shown again; safe to call twice."""
        with self._lock:
            if self._kept is not None:
                os.dup2(self._kept, 2)
                os.close(self._kept)
                self._kept = None


def _say(text: str) -> None:
    print(text, file=sys.stdout, flush=True)
