"""The pending schedules: search them, open one, make one."""

from __future__ import annotations

from typing import cast

from nicegui import ui

from almanac import desk, errors
from almanac.desk import shapes
from almanac.ui import creation, frame, payloads, shown, site, tags, times
from almanac.ui.tags import Column

PATH = "/ui/schedules"
_LIMIT = 50
_STATES = (("", "Waiting and overdue"), ("waiting", "Waiting"), ("overdue", "Overdue"))
_SORTS = (("due", "Next due first"), ("-due", "Last due first"), ("id", "By id"))


@frame.page(PATH, "Schedules")
async def schedules(viewer: frame.Viewer) -> None:
    names = ("id", "target", "topic", "from", "to", "state", "sort")
    asked = {name: viewer.text(name) for name in names}
    with tags.sheet():
        _form(viewer, asked)
    try:
        query = _query(viewer, asked)
    except errors.TimeRefused as error:
        tags.notice("bad", "That due time is not understood", str(error), role="alert")
        return
    results = tags.tag("div", classes="al-body")
    with results:
        await _results(viewer, query, asked)


def _form(viewer: frame.Viewer, asked: dict[str, str]) -> None:
    topics = viewer.site.settings.topics
    with tags.tag("form", method="get", action=PATH, classes="al-form al-form-wide", role="search"):
        tags.Field("Id contains", name="id", value=asked["id"], autocomplete="off")
        tags.Field("Target topic", name="target", value=asked["target"], hint="Its whole name", autocomplete="off")
        tags.Field("Due from", name="from", value=asked["from"], hint="now, -1h, today 00:00, 2027-03-01 09:00")
        tags.Field("Due before", name="to", value=asked["to"], hint="+2h, tomorrow 09:00, 2027-03-02 00:00")
        tags.choice("State", "state", _STATES, asked["state"])
        tags.choice("Order", "sort", _SORTS, asked["sort"])
        if len(topics) > 1:
            options = [("", "All"), *((topic, topic) for topic in topics)]
            tags.choice("Schedules topic", "topic", options, asked["topic"])
        with tags.tag("div", classes="al-all al-actions"):
            tags.button("Search", icon="search", kind="submit", classes="al-main-button")
            tags.link("Clear", PATH, "al-button")
            new = tags.button("New schedule", lambda: creation.ask(viewer, ui.navigate.reload), icon="add")
            viewer.guard(new)


def _query(viewer: frame.Viewer, asked: dict[str, str]) -> desk.Query:
    now = viewer.now
    state, sort = asked["state"], asked["sort"]
    return desk.Query(
        id_part=asked["id"] or None,
        target=asked["target"] or None,
        topic=asked["topic"] or None,
        due_from=times.read(asked["from"], now, viewer.zone),
        due_to=times.read(asked["to"], now, viewer.zone),
        state=cast(shapes.State, state) if state in ("waiting", "overdue") else None,
        sort=cast(shapes.Sort, sort) if sort in ("due", "-due", "id") else "due",
        limit=_LIMIT,
        cursor=viewer.text("cursor") or None,
        total=not viewer.text("cursor"),
    )


async def _results(viewer: frame.Viewer, query: desk.Query, asked: dict[str, str]) -> None:
    found = await site.call(viewer.site.desk.schedules, query)
    narrowed = any(value for name, value in asked.items() if name != "sort")
    head = "More of them" if found.total is None else f"{found.total:,} {'match' if narrowed else 'pending'}"
    with tags.sheet(head):
        if not found.rows:
            hint = "Another search may find some." if narrowed else "What you schedule appears here at once."
            tags.empty("event_available", "No schedule is pending" if not narrowed else "Nothing matches", hint)
            return
        columns = (
            Column("Id"),
            Column("Target"),
            Column(f"Due, {viewer.zone_name}", short="Due"),
            Column("State"),
            Column("From"),
        )
        tags.table("Pending schedules", columns, [_row(row, viewer) for row in found.rows])
        pages(PATH, asked, viewer.text("cursor"), found.cursor)


def _row(row: desk.Row, viewer: frame.Viewer) -> tuple[tags.Cell, ...]:
    state = "warn" if row.state == "overdue" else ""
    return (
        lambda: tags.link(payloads.text(row.id), where(row.id, row.topic, row.partition)),
        row.target,
        lambda: shown.moment(row.due, viewer),
        lambda: tags.mark(row.state, state),
        lambda: tags.tag("span", f"{row.topic}/{row.partition}", "al-soft"),
    )


def where(id: bytes, topic: str | None = None, partition: int | None = None) -> str:
    """The address of one schedule's page."""
    return payloads.address("/ui/schedule", id=id, topic=topic, partition=partition)


def pages(path: str, asked: dict[str, str], cursor: str, following: str | None) -> None:
    """To the first page and the next; the browser goes back."""
    if not cursor and following is None:
        return
    with tags.tag("nav", classes="al-actions", aria_label="More results"):
        if cursor:
            tags.link("First page", payloads.address(path, **asked), "al-button", icon="first_page")
        if following is not None:
            tags.link("Next page", payloads.address(path, **asked, cursor=following), "al-button", icon="chevron_right")
