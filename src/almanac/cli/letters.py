"""`almanac dead-letters`: what could not be delivered, and why; and sending one again."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated

import typer

from almanac import errors, when
from almanac.cli import common, questions, reach, shown
from almanac.settings import Settings


@common.command("schedules_topics", "dead_letters_topic", "book_location")
def dead_letters(
    settings: Settings,
    limit: Annotated[int, typer.Option(min=1, max=500, help="How many, the newest first.")] = 50,
    id: questions.IdPart = None,  # noqa: A002 (users see it)
    reason: Annotated[
        str | None, typer.Option(help="invalid, outdated, missed-too-old, undeliverable or forbidden.")
    ] = None,
    since: questions.Since = None,
    until: questions.Until = None,
    send_again: Annotated[
        str | None,
        typer.Option(metavar="PARTITION/OFFSET", help="Schedule this one once more, under its id, and list nothing."),
    ] = None,
    at: Annotated[str | None, typer.Option(help="With --send-again: when.", show_default="now")] = None,
    tz: questions.Zone = None,
    api: reach.Api = None,
    as_json: common.Json = False,
) -> None:
    """List the dead letters, the newest first: what could not be delivered, and why.

    Example: [bold]almanac dead-letters --reason undeliverable --since -1h[/bold]

    Once the target can be written: [bold]almanac dead-letters --send-again 0/12[/bold]
    """
    from almanac import desk  # brings the book's libraries, which other commands do without

    zone, now = when.zone(tz), datetime.now(UTC)
    if send_again is not None:
        place = re.fullmatch(r"(\d{1,9})/(\d{1,18})", send_again)
        if place is None:
            raise errors.UsageError(f"--send-again {send_again!r}: must be PARTITION/OFFSET, as the list shows it")
        with reach.at(settings, api) as counter:
            due = None if at is None else when.parse(at, now, zone)
            row = counter.send_again(int(place[1]), int(place[2]), reach.who(), due)
        if as_json:
            common.show_json(shown.row(row, zone))
        else:
            cells = [
                ("id", shown.text(row.id)), ("due", when.render(row.due, zone)), ("for", row.target),
                ("written to", f"{row.topic}, partition {row.partition}, offset {row.version}"),
            ]  # fmt: skip
            common.show_table(("sent again", ""), cells)
        return
    query = desk.DeadQuery(
        id_part=id, reason=reason, since=None if since is None else when.parse(since, now, zone),
        until=None if until is None else when.parse(until, now, zone), limit=limit,
    )  # fmt: skip
    with reach.at(settings, api) as counter:
        found = counter.dead_letters(query)
    if as_json:
        common.show_json([shown.letter(each, zone) for each in found.rows])
        return
    rows = [
        (
            f"{each.partition}/{each.offset}",
            when.render(each.at, zone),
            shown.text(each.id),
            each.reason,
            each.target,
            each.detail,
        )
        for each in found.rows
    ]
    common.show_table(("letter", "at", "id", "reason", "for", "why"), rows)
    if found.cursor is not None:
        common.note(f"there are more than these {limit}; --limit, --since and --until show them")
