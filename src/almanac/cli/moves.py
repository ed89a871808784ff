"""`almanac migrate`, `export` and `import`: schedules on their way from one place to another."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from almanac import errors, exports, imports, mover, when
from almanac import migrate as migration
from almanac.cli import common
from almanac.settings import Settings

_SHOWN = 20  # refusals on a terminal


class OnBadLine(StrEnum):
    """What a line that is no schedule does to an import."""

    STOP = "stop"
    SKIP = "skip"


ToTopic = Annotated[
    str | None,
    typer.Option(help="The native schedules topic to write to.", show_default="the first one in SCHEDULES_TOPICS"),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, write nothing.")]


@common.command("schedules_topics", "partitioner", "since_delta", "schedule_grace_interval")
def migrate(
    settings: Settings,
    from_topic: Annotated[str, typer.Option(help="The peer's topic. It is read, never written.")],
    form: Annotated[str, typer.Option("--format", help="Its format: etf1, sky-avro, sky-json, karafka, timers, auto.")],
    to_topic: ToTopic = None,
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: common.Json = False,
) -> None:
    """Copy what waits in a peer's topic into a native one, each schedule once.

    Killed in the middle and run again, it goes on where it stood; run again later, it brings over what was said since:
    updates, cancels, new schedules. Stop the peer first: what it fires after the copy fires here too. Then point those
    who schedule to the native topic, and migrate once more. An id must not be written to both topics meanwhile: which
    of two words is the newer one, only their timestamps can tell. Every id takes some 500 bytes of memory.

    Example: [bold]almanac migrate --from-topic scheduler --format sky-avro --dry-run[/bold]
    """
    now = when.milliseconds(datetime.now(UTC))
    topic = mover.destination(settings, to_topic)
    work = migration.Migration(settings, from_topic, form, topic, now)
    with common.meter() as meter:
        report = work.look(meter)
    if not as_json:
        _show_migration(report, from_topic, topic, "would be")
    elif report.alien:
        common.show_json({"from": from_topic, "to": topic, "applied": False, **_migration_as_json(report)})
    if report.alien:
        raise errors.UsageError(
            f"none of the {len(report.unreadable)} records that {from_topic} has beside cancels is a schedule in the "
            f"format {form}. Is --format right? Nothing was written"
        )
    changes = bool(report.copied or report.cancelled or report.before)
    question = f"Copy {report.copied} schedules into {topic}, and cancel {report.cancelled} earlier copies?"
    applied = not dry_run and changes and common.agreed(question, yes, as_json)
    if not dry_run and not changes:
        work.begin()
    if applied:
        with common.meter() as meter:
            report = work.copy(meter)
    if as_json:
        common.show_json({"from": from_topic, "to": topic, "applied": applied, **_migration_as_json(report)})
    elif applied:
        common.say(f"{report.copied} copied, {report.cancelled} cancelled")
        if report.gone:
            common.note(f"{report.gone} were replaced in {from_topic} meanwhile: run this again")


def _show_migration(report: migration.Report, from_topic: str, topic: str, verb: str) -> None:
    rows: list[tuple[str, int, str]] = [
        ("waiting", report.waiting, f"in {from_topic}, as far as no earlier run has ended"),
        ("copied", report.copied, f"{verb}, into {topic}"),
        ("overdue", report.overdue, "of these, which fire at once; --since-delta leaves old ones out"),
        ("cancelled", report.cancelled, f"{verb}: copies of an earlier run that are over in {from_topic}"),
        ("before", report.before, "dealt with by a run that did not end"),
        ("newer", report.newer, f"left out: {topic} has a newer word of their id"),
        ("passed", report.passed, "left out: timers that were due before"),
        ("refused", len(report.refused), "left out, see below"),
        (
            "hidden",
            report.hidden,
            f"records behind an open transaction in {from_topic}: run this again when it has ended",
        ),
        ("unreadable", len(report.unreadable), "records that are no schedules, see below"),
    ]
    always = ("waiting", "copied", "refused")
    common.show_table(("", "schedules", ""), [row for row in rows if row[1] or row[0] in always])
    wrong = [*report.refused, *report.unreadable]
    if wrong:
        common.say("")
        rows_below = [(each.place, _text(each.id), each.reason) for each in wrong[:_SHOWN]]
        common.show_table(("record", "id", "why it is left out"), rows_below)
    if len(wrong) > _SHOWN:
        common.note(f"{len(wrong) - _SHOWN} more are left out; --json shows all of them")


def _migration_as_json(report: migration.Report) -> dict[str, object]:
    counts = {name: value for name, value in vars(report).items() if type(value) is int}
    reasons = Counter(each.reason.partition(":")[0] for each in report.refused)
    listed = {
        name: [{"record": each.place, "id": _text(each.id), "reason": each.reason} for each in found]
        for name, found in (("refused", report.refused), ("unreadable", report.unreadable))
    }
    return {**counts, "refused_by_reason": dict(reasons), **listed}


@common.command("schedules_topics")
def export_schedules(
    settings: Settings,
    schedules_topic: Annotated[str | None, typer.Option(help="Of this schedules topic only.")] = None,
    output: Annotated[str, typer.Option(help="The file to write; - is stdout.")] = "-",
    as_json: common.Json = False,
) -> None:
    """Write what waits as lines of JSON, one a schedule; bytes that are no text as base64.

    Example: [bold]almanac export --output schedules.jsonl[/bold]
    """
    if schedules_topic is not None and schedules_topic not in settings.topics:
        known = ", ".join(settings.topics)
        raise errors.UsageError(f"--schedules-topic {schedules_topic!r} is not in SCHEDULES_TOPICS, which has {known}")
    names = settings.topics if schedules_topic is None else (schedules_topic,)
    if not output:
        raise errors.UsageError("--output is empty: name a file, or - for stdout")
    report = exports.Report()
    with common.meter() as meter:
        lines = exports.export(settings, names, meter, report)
        if output == "-":
            _put(sys.stdout.buffer, lines)
        else:
            _write(Path(output), lines)
    if output != "-" and as_json:
        unreadable = [{"record": each.place, "reason": each.reason} for each in report.unreadable]
        common.show_json({"output": output, "schedules": report.schedules, "unreadable": unreadable})
    elif output != "-":
        common.say(f"{report.schedules} schedules written to {output}")
    if report.unreadable:
        each = report.unreadable[0]
        common.note(f"{len(report.unreadable)} records are no schedules and left out; {each.place}: {each.reason}")


def _put(file: BinaryIO, lines: Iterator[str]) -> None:
    for line in lines:
        file.write(f"{line}\n".encode())
    file.flush()


def _write(path: Path, lines: Iterator[str]) -> None:
    """All of them, or the file stays as it was; what is no plain file, such as a pipe, is written to as it is."""
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as file:
                _put(file, lines)
            return
        path = path.resolve()  # what a link stands for
        part = path.with_name(f"{path.name}.part")
        try:
            with part.open("wb") as file:
                _put(file, lines)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a name that is none
        reason = error.strerror if isinstance(error, OSError) else error
        raise errors.UsageError(f"--output {str(path)!r} cannot be written: {reason}") from None


@common.command("schedules_topics", "partitioner")
def import_schedules(
    settings: Settings,
    file: Annotated[str, typer.Argument(help="A file of JSON lines, as `almanac export` writes them; - is stdin.")],
    to_topic: ToTopic = None,
    on_bad_line: Annotated[
        OnBadLine, typer.Option(help="stop: nothing is imported if a line is bad; skip: the good ones are.")
    ] = OnBadLine.STOP,
    again: Annotated[
        bool, typer.Option("--again", help="Also what was imported, cancelled or updated since the lines were written.")
    ] = False,
    dry_run: DryRun = False,
    as_json: common.Json = False,
) -> None:
    """Write schedules from lines of JSON into a native topic. The same file twice is the same as once.

    Killed in the middle and run again, it goes on where it stood. Lines whose id the topic has heard of since their
    timestamp_ms are left out.

    Example: [bold]almanac import schedules.jsonl --on-bad-line skip[/bold]
    """
    topic = mover.destination(settings, to_topic)
    with _opened(file) as lines:
        work = imports.Import(settings, lines, topic, when.milliseconds(datetime.now(UTC)))
        with common.meter() as meter:
            report = work.check(again, meter)
        for each in report.refused[:_SHOWN] if not as_json else ():
            common.note(f"line {each.line}: {each.reason}")
        bad = [each for each in report.refused if each.line > report.done]
        if bad and on_bad_line is OnBadLine.STOP and not dry_run:
            before = f" An earlier run came as far as line {report.done}." if report.done else ""
            raise errors.UsageError(
                f"line {bad[0].line}: {bad[0].reason}. This run has imported nothing: {len(bad)} of {report.lines} "
                f"lines are bad.{before} Mend them, or leave them out with --on-bad-line skip"
            )
        if not dry_run:
            with common.meter() as meter:
                work.write(report, again, meter)
    refused = [each._asdict() for each in report.refused]
    if as_json:
        common.show_json({**vars(report), "to": topic, "refused": refused, "applied": not dry_run})
        return
    done = "would be looked at, no more" if dry_run else f"{report.imported} imported into {topic}"
    rest = f"{report.before} imported before, {report.newer} overtaken by a newer word, {len(refused)} bad"
    common.say(f"{report.lines} lines: {done}; {rest}")


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    """The file; stdin is kept in a file first, since it is read twice."""
    if file == "-":
        with tempfile.TemporaryFile() as kept:
            shutil.copyfileobj(sys.stdin.buffer, kept)
            yield kept
        return
    try:
        with Path(file).open("rb") as opened:
            yield opened
    except OSError as error:
        raise errors.UsageError(f"{file!r} cannot be read: {error.strerror}") from None


def _text(value: bytes) -> str:
    return value.decode(errors="backslashreplace")
