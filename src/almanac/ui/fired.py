"""What fired, and how late."""

from __future__ import annotations

from almanac import desk, errors
from almanac.ui import frame, payloads, schedules, shown, site, tags, times
from almanac.ui.tags import Column

PATH = "/ui/fired"
_LIMIT = 50
_LATE_MS = 1_000  # from here on a lateness is marked


@frame.page(PATH, "Fired")
async def page(viewer: frame.Viewer) -> None:
    asked = {name: viewer.text(name) for name in ("id", "target", "since", "until", "outcome")}
    with tags.sheet(), tags.tag("form", method="get", action=PATH, classes="al-form al-form-wide", role="search"):
        tags.Field("Id contains", name="id", value=asked["id"], autocomplete="off")
        tags.Field("Target topic", name="target", value=asked["target"], hint="Its whole name", autocomplete="off")
        tags.Field("Fired since", name="since", value=asked["since"], hint="-2h, today 00:00, 2027-03-01 09:00")
        tags.Field("Fired before", name="until", value=asked["until"], hint="now, -1h, 2027-03-02 00:00")
        tags.Field("Outcome", name="outcome", value=asked["outcome"], hint="fired, or a dead letter's reason")
        with tags.tag("div", classes="al-all al-actions"):
            tags.button("Search", icon="search", kind="submit", classes="al-main-button")
            tags.link("Clear", PATH, "al-button")
    now, cursor = viewer.now, viewer.text("cursor")
    try:
        since, until = (times.read(asked[name], now, viewer.zone) for name in ("since", "until"))
    except errors.TimeRefused as error:
        tags.notice("bad", "That time is not understood", str(error), role="alert")
        return
    query = desk.FiredQuery(
        id_part=asked["id"] or None,
        target=asked["target"] or None,
        since=since,
        until=until,
        outcome=asked["outcome"] or None,
        limit=_LIMIT,
        cursor=cursor or None,
        total=not cursor,
    )
    found = await site.call(viewer.site.desk.fired, query)
    with tags.sheet(f"{found.total:,} found" if found.total is not None else "The newest first"):
        if not found.rows:
            tags.empty("hourglass_empty", "Nothing has fired", "What fires appears here a few seconds later.")
            return
        columns = (
            Column("Id"),
            Column("Target"),
            Column(f"Fired, {viewer.zone_name}", short="Fired"),
            Column("Due"),
            Column("Late", "al-number"),
            Column("Outcome"),
        )
        tags.table("What fired, the newest first", columns, [_row(row, viewer) for row in found.rows])
        schedules.pages(PATH, asked, cursor, found.cursor)


def _row(row: desk.FiredRow, viewer: frame.Viewer) -> tuple[tags.Cell, ...]:
    late = row.lateness

    def lateness() -> None:
        if late is not None and late >= _LATE_MS:
            tags.mark(times.span(late), "warn")
        else:
            tags.tag("span", times.span(late))

    def due() -> None:
        if row.due is None:
            tags.tag("span", "not known any more", "al-soft")
        else:
            tags.tag("time", times.show(row.due, viewer.zone), "al-time", title=times.utc(row.due))

    good = row.outcome == "fired"
    return (
        lambda: tags.link(payloads.text(row.id), schedules.where(row.id)),
        row.target or "not known any more",
        lambda: shown.moment(row.fired_at, viewer),
        due,
        lateness,
        lambda: tags.mark(row.outcome, "good" if good else "bad"),
    )
