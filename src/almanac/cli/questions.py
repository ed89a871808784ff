"""`almanac ls` and `almanac explain`: what waits, and what became of an id."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Annotated

import typer

from almanac import errors, when
from almanac.cli import common
from almanac.settings import Settings

Zone = Annotated[str | None, typer.Option(help="Time zone of what is shown.", show_default="this machine's")]


@common.command("schedules_topics", "book_location")
def ls(
    settings: Settings,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many, the next ones by due time.")] = 50,
    schedules_topic: Annotated[str | None, typer.Option(help="Of this schedules topic only.")] = None,
    tz: Zone = None,
    as_json: common.Json = False,
) -> None:
    """List what waits, the next first; also what was scheduled a second ago.

    Example: [bold]almanac ls --limit 10 --tz Europe/Paris[/bold]
    """
    if schedules_topic is not None and schedules_topic not in settings.topics:
        known = ", ".join(settings.topics)
        raise errors.UsageError(f"--schedules-topic {schedules_topic!r} is not in SCHEDULES_TOPICS, which has {known}")
    from almanac import listing  # brings Spark's libraries, which the other commands do without

    zone, now = when.zone(tz), datetime.now(UTC)
    rows = listing.pending(settings, limit, schedules_topic, common.note)
    if as_json:
        common.show_json(
            [
                {
                    "id": _text(row.id),
                    "due_ms": row.due,
                    "due": when.render(row.due, zone),
                    "target_topic": row.target,
                    "topic": row.topic,
                    "partition": row.partition,
                    "offset": row.version,
                    "value": None if row.value is None else base64.b64encode(row.value).decode(),
                }
                for row in rows
            ]
        )
        return
    shown = [
        (
            _text(row.id),
            when.render(row.due, zone),
            when.distance(row.due - when.milliseconds(now)),
            row.target,
            f"{row.topic}/{row.partition}/{row.version}",
        )
        for row in rows
    ]
    common.show_table(("id", "due", "in", "for", "written at"), shown)
    if len(rows) == limit:
        common.note(f"these are the next {limit}; --limit shows more")


@common.command("schedules_topics")
def explain(
    settings: Settings,
    id: Annotated[str, typer.Argument(help="The schedule's id.", show_default=False)],  # noqa: A002 (users see it)
    tz: Zone = None,
    as_json: common.Json = False,
) -> None:
    """Tell what became of an id: every version, cancel, acknowledgement, delivery and dead letter.

    Example: [bold]almanac explain vid1-online[/bold]
    """
    from almanac import story

    zone = when.zone(tz)
    told = story.tell(settings, id.encode(), zone, when.milliseconds(datetime.now(UTC)))
    if as_json:
        common.show_json({"id": id, "verdicts": told.verdicts, "events": [vars(event) for event in told.events]})
        return
    rows = [
        (when.render(event.at, zone), event.what, event.detail, f"{event.topic}/{event.partition}/{event.offset}")
        for event in told.events
    ]
    if rows:
        common.show_table(("at", "what", "", "record"), rows)
        common.say("")
    for text in told.verdicts:
        common.say(text)


def _text(value: bytes) -> str:
    return value.decode(errors="backslashreplace")
