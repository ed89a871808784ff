"""`almanac topics apply`, `doctor`, `config`, `schema` and `version`."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Annotated

import confluent_kafka
import typer
from rich.text import Text

import almanac
from almanac import errors, formats, kafka, passthrough, topics
from almanac import settings as settings_module
from almanac.cli import common
from almanac.settings import Settings

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red"}
_SIGNS = {"create": "+", "alter": "~", "none": "="}
_LIBRARIES = ("pyspark", "delta-spark", "deltalake", "confluent-kafka")


@common.command("schedules_topics", "topic_partitions", "replication_factor", "retention_days", "shards")
def topics_apply(
    settings: Settings,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the difference, change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: common.Json = False,
) -> None:
    """Create what is missing and alter what differs, after showing it.

    Example: [bold]almanac topics apply --replication-factor 3 --dry-run[/bold]
    """
    admin = kafka.admin_client(settings)
    changes = topics.plan(admin, settings)
    pending = [change for change in changes if change.kind != "none"]
    if not as_json:
        _show_changes(changes)
    agreed = not dry_run and bool(pending) and common.agreed(f"Change {len(pending)} topics?", yes, as_json)
    if agreed:
        topics.apply(admin, pending)
    if as_json:
        common.show_json({"applied": agreed, "topics": [_as_json(change) for change in changes]})
    elif agreed:
        common.say(f"{len(pending)} topics changed")


def _show_changes(changes: list[topics.Change]) -> None:
    for change in changes:
        head, *details = topics.lines(change)
        common.say(f"{_SIGNS[change.kind]} {head}")
        for line in details:
            common.say(f"    {line}")
        for line in change.warnings:
            common.say(f"  ! {line}")


def _as_json(change: topics.Change) -> dict[str, object]:
    spec = change.spec
    wanted = {key: {"from": None, "to": value} for key, value in spec.configs.items()}
    differing = {key: {"from": was, "to": value} for key, (was, value) in change.configs.items()}
    return {
        "topic": spec.name,
        "purpose": spec.purpose,
        "change": change.kind,
        "partitions": {"from": change.partitions[0], "to": change.partitions[1]} if change.partitions else None,
        "configs": wanted if change.kind == "create" else differing,
        "warnings": list(change.warnings),
    }


@common.command("schedules_topics", "book_location")
def doctor(settings: Settings, as_json: common.Json = False) -> None:
    """Check Kafka and this machine; ends with 1 if something fails.

    Example: [bold]BOOTSTRAP_SERVERS=kafka:9092 almanac doctor[/bold]
    """
    from almanac import doctor as examination  # its name is the command's

    checks = examination.examine(settings)
    if as_json:
        common.show_json([vars(check) for check in checks])
    else:
        rows = [(Text(each.status, _COLOURS[each.status]), each.name, each.found, each.advice) for each in checks]
        common.show_table(("", "check", "found", "what to do"), rows)
    if any(check.status == "fail" for check in checks):
        raise typer.Exit(1)


@common.command("schedules_topics", "shards", "book_location")
def config(settings: Settings, as_json: common.Json = False) -> None:
    """Show the settings in force, where each comes from, and the names that derive from them. Secrets are hidden.

    Example: [bold]GROUP_ID=billing almanac config --config kafka.yaml[/bold]
    """
    derived = {
        "shard topic": settings.shard_topic,
        "transactional ids": ", ".join(
            (settings.transactional_id(0), "...", *map(settings.transactional_id, settings.duties))
        ),
        **({"bridge": _bridge(settings)} if settings.request_topics else {}),
        "book": passthrough.masked("book", settings.book_folder),
        "checkpoints": passthrough.masked("checkpoints", settings.checkpoint_folder),
    }
    notes = [*settings.notes, *(f"{key} does not reach Spark's Kafka source" for key in kafka.untranslated(settings))]
    values = settings.model_dump(mode="json")
    if as_json:
        shown = {
            name: {"value": passthrough.masked(name, values[name]), "origin": settings.origin(name)}
            for name in settings_module.NAMES
        }
        common.show_json({"settings": shown, "derived": derived, "notes": notes})
        return
    rows = []
    for name in settings_module.NAMES:
        if name in passthrough.SECTIONS:
            pairs = getattr(settings, name).items()
            rows += [(f"{passthrough.SECTIONS[name]}: {key}", passthrough.masked(key, value), settings.origin(name))
                     for key, value in pairs]  # fmt: skip
        else:
            rows.append((settings_module.environment(name)[0], _shown(settings, name), settings.origin(name)))
    common.show_table(("setting", "value", "from"), rows)
    common.say("")
    common.show_table(("derived", ""), derived.items())
    for text in notes:
        common.note(text)


def _bridge(settings: Settings) -> str:
    return f"{', '.join(settings.request_topics)} to {settings.bridge_target}, consumer group {settings.bridge_group}"


def _shown(settings: Settings, name: str) -> object:
    value = getattr(settings, name)
    if name == "schedules_topics":
        return ",".join(f"{topic}={form}" for topic, form in value)
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, bool):
        return str(value).lower()
    return passthrough.masked(name, value)


@common.command()
def schema(
    settings: Settings,
    name: Annotated[str, typer.Argument(metavar="FORMAT", help=f"One of {', '.join(formats.SCHEMAS)}.")],
    as_json: common.Json = False,
) -> None:
    """Print the schema of a wire format: Avro's for sky-avro, protobuf's for timers.

    Example: [bold]almanac schema sky-avro > schedule.avsc[/bold]
    """
    if name not in formats.SCHEMAS:
        raise errors.UsageError(f"{name!r} has no schema; those of {', '.join(formats.SCHEMAS)} can be printed")
    text = formats.schema(name)
    if as_json:
        common.show_json({"format": name, "file": formats.SCHEMAS[name], "schema": text})
    else:
        typer.echo(text, nl=False)


@common.command()
def version(settings: Settings, as_json: common.Json = False) -> None:
    """Show the versions of Almanac and of what it builds on.

    Example: [bold]almanac version --json[/bold]
    """
    versions = {
        "almanac": almanac.__version__,
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in _LIBRARIES},
        "librdkafka": confluent_kafka.libversion()[0],
    }
    if as_json:
        common.show_json(versions)
    else:
        common.show_table(("", "version"), versions.items())
