"""What all commands share: options that are settings, errors without tracebacks, tables and JSON."""

from __future__ import annotations

import functools
import inspect
import json
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from confluent_kafka import KafkaException
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from almanac import errors, kafka, log, settings
from almanac.settings import Settings

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
SchedulesTopic = Annotated[
    str | None, typer.Option(help="The schedules topic to write to.", show_default="the first of SCHEDULES_TOPICS")
]

_EVERYWHERE = ("bootstrap_servers", "group_id", "configuration_file", "log_level")
_NAMES = {"configuration_file": ("--config", "--configuration-file")}
_WIDTH_OF_A_FILE = 200


def command(*offered: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a function with a first parameter `settings` a command.

    Every command takes the options of `_EVERYWHERE`; `offered` names further settings to be taken as options. They are
    all text here: the settings check them, so that a wrong option is refused in the same words as a wrong variable.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        names = (*offered, *_EVERYWHERE)
        hints = typing.get_type_hints(function, include_extras=True)
        own = [
            parameter.replace(annotation=hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in inspect.signature(function).parameters.values()
            if parameter.name != "settings"
        ]

        @functools.wraps(function)
        def run(**values: Any) -> None:
            debug = values.pop("debug")
            arguments = {name: values.pop(name) for name in names}
            _guarded(lambda: function(_settings(arguments), **values), debug)

        parameters = [*own, *(_option(name) for name in names), _DEBUG]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # functions have it
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def _option(name: str) -> inspect.Parameter:
    flags = _NAMES.get(name, ("--" + name.replace("_", "-"),))
    field = Settings.model_fields[name]
    variable = settings.environment(name)[0]
    help_text = f"{str(field.description)[0].upper()}{str(field.description)[1:]}. [{variable}]"
    option = typer.Option(*flags, help=help_text.replace("[", r"\["), rich_help_panel="Settings", show_default=False)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, option]
    )


_DEBUG = inspect.Parameter(
    "debug",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool, typer.Option("--debug", help="Show where an error comes from.", rich_help_panel="Settings")
    ],
)


def _settings(arguments: dict[str, Any]) -> Settings:
    loaded = Settings.load(arguments)
    log.configure(loaded)
    return loaded


def _guarded(work: Callable[[], None], debug: bool) -> None:
    """Runs a command; an error becomes a message and an exit code, a traceback only where it is asked for."""
    try:
        work()
    except (typer.Exit, typer.Abort, KeyboardInterrupt):
        raise
    except Exception as error:
        if debug:
            raise
        known = kafka.explained(error, "Kafka") if isinstance(error, KafkaException) else error
        if isinstance(known, errors.AlmanacError):
            typer.echo(f"almanac: {known}", err=True)
            raise typer.Exit(known.exit_code) from None
        typer.echo(f"almanac: unexpected {type(error).__name__}: {error} (--debug shows where it comes from)", err=True)
        raise typer.Exit(1) from None


# Output


def is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def console() -> Console:
    """Fits the terminal; wide where there is none, so that nothing is cut in a pipe."""
    width = None if sys.stdout.isatty() else _WIDTH_OF_A_FILE
    return Console(width=width, highlight=False, markup=False, emoji=False, soft_wrap=False)


def say(text: str) -> None:
    console().print(Text(text), soft_wrap=True)


def note(text: str) -> None:
    """For people, beside the output proper."""
    typer.echo(f"note: {text}", err=True)


@contextmanager
def meter() -> Iterator[Callable[[str, int], Callable[[int], object]]]:
    """Bars for long work, on a terminal; called with what begins and its steps, it returns what each step calls."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    shown = Console(stderr=True)
    with Progress(*columns, console=shown, transient=True, disable=not shown.is_terminal) as bars:

        def begin(what: str, steps: int) -> Callable[[int], object]:
            bar = bars.add_task(what, total=steps or None)
            return lambda number: bars.advance(bar, number)

        yield begin


def agreed(question: str, yes: bool, as_json: bool) -> bool:
    """Whether the person wants it; where nobody can be asked, `--yes` must have said so."""
    if yes:
        return True
    if as_json or not is_terminal():
        raise errors.UsageError("nothing was changed: nobody can be asked here; add --yes, or --dry-run to look only")
    return typer.confirm(question)


def show_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]], styles: Sequence[str] = ()) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, overflow="fold", style=styles[index] if index < len(styles) else "")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text("" if cell is None else str(cell)) for cell in row))
    console().print(table)
