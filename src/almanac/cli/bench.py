"""`almanac bench`: how fast and how late, against what this machine can do at all."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from almanac import errors
from almanac.cli import common
from almanac.settings import Settings

if TYPE_CHECKING:
    from almanac.bench import measure, report

    Measures = Callable[[measure.Bench], Iterator[report.Figures]]

LINE_SECONDS = 5.0  # between lines of progress where there is no terminal
LEAD = 20  # seconds to feed a burst in
BOOK_LEAD = 90  # seconds to feed it in, to have the book read it, and to restart
STEADY_LEAD = 10

Up = Annotated[
    bool,
    typer.Option(
        "--up", help="Measure a scheduler of its own, with an embedded Kafka, in a folder that goes afterwards."
    ),
]
Runs = Annotated[int, typer.Option(min=1, max=100, help="How often; machines are noisy.")]
PerSecond = Annotated[int, typer.Option(min=1, max=100_000, help="Schedules due in each second.")]
Seconds = Annotated[int, typer.Option(min=1, max=3600, help="For how long.")]
_OFFERED = ("schedules_topics", "shards", "page_length")


@common.command(*_OFFERED)
def burst(
    settings: Settings,
    count: Annotated[int, typer.Option(min=1, max=5_000_000, help="Schedules due in one whole second.")] = 200_000,
    lead: Annotated[
        int | None,
        typer.Option(min=2, max=3600, help="Seconds until they are due.", show_default="20; 90 from the book"),
    ] = None,
    from_book: Annotated[
        bool, typer.Option("--from-book", help="Restart the scheduler before they are due. Needs --up.")
    ] = False,
    runs: Runs = 1,
    up: Up = False,
    as_json: common.Json = False,
) -> None:
    """Fire many schedules that are due in the same second: fires a second, over the machine's limit.

    Example: [bold]almanac bench burst --up --count 200000 --from-book[/bold]
    """
    if from_book and not up:
        raise errors.UsageError("--from-book restarts the scheduler, and so needs one of its own: add --up")
    seconds = lead or (BOOK_LEAD if from_book else LEAD)
    _bench(settings, up, runs, as_json, lambda bench: iter((bench.burst(count, seconds, from_book),)))


@common.command(*_OFFERED)
def steady(
    settings: Settings,
    per_second: PerSecond = 1_000,
    seconds: Seconds = 60,
    lead: Annotated[int, typer.Option(min=2, max=3600, help="Seconds until the first is due.")] = STEADY_LEAD,
    runs: Runs = 1,
    up: Up = False,
    as_json: common.Json = False,
) -> None:
    """Fire some at each whole second: how late they are, over the least that this machine can do.

    Example: [bold]almanac bench steady --up --per-second 1000 --seconds 60 --page-length 20[/bold]
    """
    _bench(settings, up, runs, as_json, lambda bench: iter((bench.steady(per_second, seconds, lead),)))


@common.command(*_OFFERED)
def live(
    settings: Settings,
    per_second: PerSecond = 200,
    seconds: Seconds = 20,
    ahead: Annotated[int, typer.Option(min=0, max=60_000, help="Milliseconds from writing to due time.")] = 200,
    runs: Runs = 1,
    up: Up = False,
    as_json: common.Json = False,
) -> None:
    """Fire schedules that are due a moment after they are written: how late they are.

    Example: [bold]almanac bench live --up --ahead 200 --json[/bold]
    """
    _bench(settings, up, runs, as_json, lambda bench: iter((bench.live(per_second, seconds, ahead),)))


@common.command("spark_driver_memory")
def ingest(
    settings: Settings,
    form: Annotated[
        list[str] | None,
        typer.Option("--format", help="A wire format; several may be named.", show_default="all of them"),
    ] = None,
    count: Annotated[
        int, typer.Option(min=1_000, max=5_000_000, help="Records of a fill, and of a merge.")
    ] = 2_000_000,
    new: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Share of new schedules among them; the others update, cancel and acknowledge what waits.",
        ),
    ] = 0.5,
    runs: Runs = 1,
    as_json: common.Json = False,
) -> None:
    """Read a log into a book, on a Kafka and a Spark of its own: records a second, of each format.

    About three minutes for each format. The first format's first run is that of a new JVM, which compiles as it goes.
    Each batch has some seconds of planning, whatever its size: with few records these are most of what is measured.
    New schedules (--new 1) are the heaviest: each of them becomes a row.

    Example: [bold]almanac bench ingest --format etf1 --format sky-avro --count 400000[/bold]
    """
    from almanac import formats
    from almanac.bench import ingest as bench

    known = (*formats.NAMES, formats.BRIDGED)
    if unknown := set(form or ()) - set(known):
        raise errors.UsageError(f"unknown format {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with _progress() as progress, tempfile.TemporaryDirectory(prefix="almanac-bench-") as folder:
        figures = []
        for each in bench.measure(settings, form or known, new, count, runs, Path(folder), progress):
            speed = f"{each.rows_per_s:,} rows/s, {each.ratio:.2f} of the limit"
            common.note(f"{each.format}, {each.measure}, run {each.run}: {speed}")
            figures.append(each)
    told = bench.to_json(figures)
    if as_json:
        common.show_json(told)
    else:
        common.show_table(bench.COLUMNS, bench.rows(figures))
    if not told["exact"]:
        common.note("a book does not say what was fed")
        raise typer.Exit(1)


@common.command(*_OFFERED)
def everything(settings: Settings, runs: Runs = 1, up: Up = False, as_json: common.Json = False) -> None:
    """Burst, steady and live, one after the other, on one scheduler.

    Example: [bold]almanac bench all --up --runs 3[/bold]
    """

    def measures(bench: measure.Bench) -> Iterator[report.Figures]:
        yield bench.burst(200_000, LEAD)
        yield bench.steady(1_000, 60, STEADY_LEAD)
        yield bench.live(200, 20, 200)

    _bench(settings, up, runs, as_json, measures)


def _bench(settings: Settings, up: bool, runs: int, as_json: bool, measures: Measures) -> None:
    from almanac.bench import report  # brings the book's libraries, which the other commands do without

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was started is ended, as after Ctrl-C
    with _progress() as progress, _measured(settings, up, progress) as bench:
        figures = [each for _ in range(runs) for each in measures(bench)]
    if as_json:
        common.show_json(report.to_json(figures))
    else:
        common.show_table(report.COLUMNS, report.rows(figures))
    if not all(each.seen.exact for each in figures):
        common.note("something was early, double or missing")
        raise typer.Exit(1)


@contextmanager
def _measured(settings: Settings, up: bool, progress: Callable[[str, int, int], None]) -> Iterator[measure.Bench]:
    """The scheduler that runs, if there is one; else one of our own."""
    from almanac.bench import measure, scheduler

    chosen = settings.origin("bootstrap_servers").startswith("argument")
    servers = settings.bootstrap_servers
    if up and chosen:
        raise errors.UsageError("--up starts a Kafka of its own: leave --bootstrap-servers out")
    if not up and not chosen and not scheduler.is_here(settings):
        raise errors.UsageError(
            f"BOOTSTRAP_SERVERS={servers} is another machine, and a bench is a load on it: if you mean it, name it on "
            f"the command line (--bootstrap-servers {servers}); else add --up"
        )
    progress(f"looking for a scheduler on {servers}", 0, 0)
    if not up and (chosen or scheduler.answers(settings)):
        if not scheduler.turns(settings):
            raise errors.UsageError(
                f"Kafka answers on {servers}, but no wheel of group {settings.group_id} reports there: start one "
                "(`almanac run`), name its GROUP_ID, or add --up"
            )
        yield measure.Bench(settings, progress)
        return
    with (
        tempfile.TemporaryDirectory(prefix="almanac-bench-") as folder,
        scheduler.Embedded(settings, Path(folder), progress) as embedded,
    ):
        yield measure.Bench(embedded.settings, progress, embedded)


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """A bar on a terminal, else a line now and then; on stderr, as stdout is for the figures."""
    console = Console(stderr=True, highlight=False)
    if console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as bars:
            task = bars.add_task("", total=None)
            yield lambda what, done, of: bars.update(task, description=what, completed=done, total=of or None)
        return
    last, before = "", 0.0

    def line(what: str, done: int, of: int) -> None:
        nonlocal last, before
        now = time.monotonic()
        if what != last or now - before >= LINE_SECONDS:
            last, before = what, now
            console.print(f"{what}{f': {done:,} of {of:,}' if of else ''}", soft_wrap=True)

    yield line
