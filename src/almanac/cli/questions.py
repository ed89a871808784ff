"""`almanac ls`, `show`, `explain`, `stats` and `history`: what waits, what fired, and what became of an id."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from almanac import errors, when
from almanac.cli import common, reach, shown
from almanac.settings import Settings

if TYPE_CHECKING:
    from almanac import desk

Zone = Annotated[
    str | None, typer.Option(help="Time zone of what is shown, and of times given.", show_default="this machine's")
]
Id = Annotated[str, typer.Argument(help="The schedule's id.", show_default=False)]
IdPart = Annotated[str | None, typer.Option("--id", help="Only ids with this in them.")]
Target = Annotated[str | None, typer.Option(help="Only for this target topic.")]
From = Annotated[
    str | None, typer.Option("--from", help="Only due from then on: a time as --at of `schedule` takes it, or -2h.")
]
To = Annotated[str | None, typer.Option("--to", help="Only due before then.")]
Since = Annotated[str | None, typer.Option(help="Only from then on, such as -1h.")]
Until = Annotated[str | None, typer.Option(help="Only before then.")]

PAGE = 500  # rows asked for at once
BAR = 40  # characters of the longest bar


@common.command("schedules_topics", "book_location")
def ls(
    settings: Settings,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many.")] = 50,
    id: IdPart = None,  # noqa: A002 (users see it)
    target: Target = None,
    due_from: From = None,
    due_to: To = None,
    sort: Annotated[str, typer.Option(help="due, -due (the last first) or id.")] = "due",
    schedules_topic: Annotated[str | None, typer.Option(help="Of this schedules topic only.")] = None,
    tz: Zone = None,
    api: reach.Api = None,
    as_json: common.Json = False,
) -> None:
    """List what waits, the next first; also what was scheduled a second ago.

    Example: [bold]almanac ls --target mails --to +1h --tz Europe/Paris[/bold]
    """
    if sort not in ("due", "-due", "id"):
        raise errors.UsageError(f"--sort {sort!r}: must be due, -due or id")
    if not api and schedules_topic is not None and schedules_topic not in settings.topics:
        known = ", ".join(settings.topics)
        raise errors.UsageError(f"--schedules-topic {schedules_topic!r} is not in SCHEDULES_TOPICS, which has {known}")
    from almanac import desk  # brings the book's libraries, which other commands do without

    zone, now = when.zone(tz), datetime.now(UTC)
    query = desk.Query(
        id_part=id, target=target, topic=schedules_topic, due_from=_moment(due_from, now, zone),
        due_to=_moment(due_to, now, zone), sort=cast("Literal['due', '-due', 'id']", sort), limit=min(limit, PAGE),
    )  # fmt: skip
    rows: list[desk.Row] = []
    with reach.at(settings, api) as counter:
        while len(rows) < limit:
            found = counter.schedules(query)
            rows += found.rows
            if found.cursor is None:
                break
            query = dataclasses.replace(query, cursor=found.cursor, limit=min(PAGE, limit - len(rows)) or 1)
    if as_json:
        common.show_json([shown.row(row, zone) for row in rows])
        return
    cells = [
        (
            shown.text(row.id),
            when.render(row.due, zone),
            when.distance(row.due - when.milliseconds(now)),
            row.target,
            _place(row),
        )
        for row in rows
    ]
    common.show_table(("id", "due", "in", "for", "written at"), cells)
    if found.cursor is not None:
        common.note(f"there are more than these {limit}; --limit shows them")


@common.command("schedules_topics", "book_location")
def show(
    settings: Settings,
    id: Id,  # noqa: A002 (users see it)
    schedules_topic: Annotated[str | None, typer.Option(help="In this schedules topic only.")] = None,
    payload: Annotated[str, typer.Option(help="How to show the payload: auto, text or hex.")] = "auto",
    tz: Zone = None,
    api: reach.Api = None,
    as_json: common.Json = False,
) -> None:
    """Show a schedule that waits: when, where to, headers and payload. Ends with 1 if there is none.

    Example: [bold]almanac show vid1-online[/bold]
    """
    if payload not in ("auto", "text", "hex"):
        raise errors.UsageError(f"--payload {payload!r}: must be auto, text or hex")
    zone, now = when.zone(tz), when.milliseconds(datetime.now(UTC))
    with reach.at(settings, api) as counter:
        rows = counter.schedule(id.encode(), schedules_topic)
    if as_json:
        common.show_json([shown.row(row, zone) for row in rows])
    elif not rows:
        common.say(f"nothing waits under the id {id}; `almanac explain {id}` tells what became of it")
    else:
        for row in rows:
            _show(row, zone, now, payload)
    if not rows:
        raise typer.Exit(1)


def _show(row: desk.Row, zone: tzinfo, now: int, form: str) -> None:
    key = shown.text(row.target_key)
    common.show_table(
        ("schedule", shown.text(row.id) or ""),
        [
            ("state", row.state),
            ("due", f"{when.render(row.due, zone)} ({when.render(row.due, UTC)}), in {when.distance(row.due - now)}"),
            ("for", f"{row.target}, key {key}" if key is not None else f"{row.target}, no key"),
            ("written", f"{when.render(row.timestamp, zone)}, at {_place(row)}"),
            *(
                (f"header {name}", "(hidden)" if row.hidden else shown.payload(value, "auto"))
                for name, value in row.headers
            ),
            ("payload", f"{row.size:,} bytes" + (", hidden (HIDE_PAYLOADS)" if row.hidden else "")),
        ],
    )
    if not row.hidden:
        common.say(shown.payload(row.value, form))
    common.say("")


@common.command("schedules_topics")
def explain(
    settings: Settings,
    id: Id,  # noqa: A002 (users see it)
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


@common.command("schedules_topics", "book_location")
def stats(
    settings: Settings,
    by: Annotated[str, typer.Option(help="hour or day, in UTC.")] = "hour",
    fired: Annotated[bool, typer.Option("--fired", help="Of what fired, not of what waits.")] = False,
    target: Target = None,
    since: Annotated[
        str | None, typer.Option("--from", help="Only from then on, such as +1d, or with --fired -1d.")
    ] = None,
    until: Annotated[str | None, typer.Option("--to", help="Only before then.")] = None,
    tz: Zone = None,
    api: reach.Api = None,
    as_json: common.Json = False,
) -> None:
    """Count what waits by hour or day and target: exact, cancels included; or what fired.

    Example: [bold]almanac stats --by day --target mails --to +7d[/bold]
    """
    if by not in ("hour", "day"):
        raise errors.UsageError(f"--by {by!r}: must be hour or day")
    zone, now = when.zone(tz), datetime.now(UTC)
    step = cast("Literal['hour', 'day']", by)
    first, last = _moment(since, now, zone), _moment(until, now, zone)
    with reach.at(settings, api) as counter:
        ask = counter.fired_counts if fired else counter.counts
        found = ask(step, target, first, last)
    if as_json:
        common.show_json(
            [{"start_ms": each.start, "start": when.render(each.start, UTC), "target_topic": each.target,
              "count": each.number} for each in found]
        )  # fmt: skip
        return
    most = max((each.number for each in found), default=1)
    rows = [
        (_start(each.start, step), each.target, f"{each.number:,}", "█" * -(-each.number * BAR // most))
        for each in found
    ]
    common.show_table((f"{by} (UTC)", "for", "fired" if fired else "waiting", ""), rows)
    common.say(f"\n{sum(each.number for each in found):,} in all")


def _start(ms: int, step: str) -> str:
    said = when.render(ms, UTC)
    return said[:10] if step == "day" else said[:16]


@common.command("schedules_topics", "book_location")
def history(
    settings: Settings,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many, the newest first.")] = 50,
    id: IdPart = None,  # noqa: A002 (users see it)
    target: Target = None,
    since: Since = None,
    until: Until = None,
    outcome: Annotated[str | None, typer.Option(help="fired, or a dead letter's reason.")] = None,
    tz: Zone = None,
    api: reach.Api = None,
    as_json: common.Json = False,
) -> None:
    """List what fired, the newest first, and how late; also what became a dead letter.

    The book tells it: what fired a few seconds ago may not be there yet.

    Example: [bold]almanac history --target mails --since -1h[/bold]
    """
    from almanac import desk

    zone, now = when.zone(tz), datetime.now(UTC)
    query = desk.FiredQuery(
        id_part=id, target=target, since=_moment(since, now, zone), until=_moment(until, now, zone), outcome=outcome,
        limit=min(limit, PAGE),
    )  # fmt: skip
    rows: list[desk.FiredRow] = []
    with reach.at(settings, api) as counter:
        while len(rows) < limit:
            found = counter.fired(query)
            rows += found.rows
            if found.cursor is None:
                break
            query = dataclasses.replace(query, cursor=found.cursor, limit=min(PAGE, limit - len(rows)) or 1)
    if as_json:
        common.show_json([shown.fired(row, zone) for row in rows])
        return
    cells = [
        (
            when.render(row.fired_at, zone),
            shown.text(row.id),
            row.target,
            shown.time(row.due, zone),
            None if row.lateness is None else when.distance(row.lateness),
            row.outcome,
        )
        for row in rows
    ]
    common.show_table(("fired", "id", "for", "due", "late", "outcome"), cells)
    if found.cursor is not None:
        common.note(f"there are more than these {limit}; --limit shows them")


def _moment(given: str | None, now: datetime, zone: tzinfo) -> int | None:
    return None if given is None else when.parse(given, now, zone)


def _place(row: desk.Row) -> str:
    return f"{row.topic}/{row.partition}/{row.version}"
