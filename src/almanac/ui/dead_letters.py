"""What could not be delivered, why, and sending it again."""

from __future__ import annotations

from nicegui import ui

from almanac import desk, errors
from almanac.ui import creation, dialogs, frame, payloads, schedules, shown, site, tags, times

PATH = "/ui/dead-letters"
_LIMIT = 25


@frame.page(PATH, "Dead letters")
async def page(viewer: frame.Viewer) -> None:
    asked = {name: viewer.text(name) for name in ("id", "reason", "since", "until")}
    with tags.sheet(), tags.tag("form", method="get", action=PATH, classes="al-form al-form-wide", role="search"):
        tags.Field("Id contains", name="id", value=asked["id"], autocomplete="off")
        tags.Field("Reason", name="reason", value=asked["reason"], hint="Its whole name, as it is shown below")
        tags.Field("Since", name="since", value=asked["since"], hint="-2h, today 00:00, 2027-03-01 09:00")
        tags.Field("Before", name="until", value=asked["until"], hint="now, -1h, 2027-03-02 00:00")
        with tags.tag("div", classes="al-all al-actions"):
            tags.button("Search", icon="search", kind="submit", classes="al-main-button")
            tags.link("Clear", PATH, "al-button")
    now, cursor = viewer.now, viewer.text("cursor")
    try:
        since, until = (times.read(asked[name], now, viewer.zone) for name in ("since", "until"))
    except errors.TimeRefused as error:
        tags.notice("bad", "That time is not understood", str(error), role="alert")
        return
    query = desk.DeadQuery(
        id_part=asked["id"] or None,
        reason=asked["reason"] or None,
        since=since,
        until=until,
        limit=_LIMIT,
        cursor=cursor or None,
    )
    found = await site.call(viewer.site.desk.dead_letters, query)
    if not found.rows:
        with tags.sheet():
            narrowed = any(asked.values())
            tags.empty("mark_email_read", "Nothing matches" if narrowed else "No dead letters", "")
        return
    tags.tag("h2", "The newest first", "al-h2")
    for letter in found.rows:
        _letter(letter, viewer)
    schedules.pages(PATH, asked, cursor, found.cursor)


def _letter(letter: desk.DeadLetter, viewer: frame.Viewer) -> None:
    name = payloads.text(letter.id) if letter.id is not None else "without an id"
    with tags.tag("article", classes="al-sheet", aria_label=f"Dead letter {name}"):
        with tags.tag("div", classes="al-title"):
            with tags.tag("h3", classes="al-h2 al-mono"):
                if letter.id is not None:
                    tags.link(name, schedules.where(letter.id))
                else:
                    tags.tag("span", name)
            tags.mark(letter.reason, "bad")
            with tags.tag("div", classes="al-actions"):
                again = tags.button(
                    "Send again", lambda: _ask(letter, name, viewer), icon="replay", label=f"Send {name} again"
                )
                if not letter.sendable:
                    tags.enable(again, False, "It cannot be read as a schedule.")
                viewer.guard(again)
        if letter.detail:
            tags.tag("p", letter.detail, "al-detail")
        due = "not known" if letter.due is None else f"{times.show(letter.due, viewer.zone)}, {times.utc(letter.due)}"
        tags.facts(
            [
                ("Buried", f"{times.show(letter.at, viewer.zone)}, {times.away(letter.at, viewer.now)}"),
                ("Target", letter.target or "not known"),
                ("Due", due),
                ("Came from", letter.source),
            ]
        )
        with tags.tag("details", classes="al-more"):
            tags.tag("summary", "Payload and headers")
            with tags.tag("div", classes="al-body"):
                shown.payload(letter.value, hidden=letter.hidden, size=letter.size)
                shown.headers(letter.headers, hidden=letter.hidden)


def _ask(letter: desk.DeadLetter, name: str, viewer: frame.Viewer) -> None:
    due: creation.Due

    def build() -> None:
        nonlocal due
        tags.tag("p", f"{name} is scheduled once more under its id, for {letter.target or 'its target'}.")
        tags.tag("p", "Is the reason gone? Otherwise it becomes a dead letter again.", "al-soft")
        with tags.tag("div", classes="al-field"):
            due = creation.Due(viewer, value="now", focus=True)

    async def act() -> dialogs.Answer | None:
        moment = due.read()
        if moment is None:
            return None
        at = None if due.field.value.strip().lower() == "now" else moment
        row = await site.call(viewer.site.desk.send_again, letter.partition, letter.offset, who=viewer.who, due=at)
        return creation.made("Scheduled again", row, viewer)

    if viewer.why_not is None:
        dialogs.ask("Send it again?", build, "Send it again", act, done=ui.navigate.reload)
