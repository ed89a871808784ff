"""One schedule: all there is to know of it, and what can be done with it."""

from __future__ import annotations

from collections.abc import Callable

from nicegui import ui

from almanac import desk
from almanac.ui import creation, dialogs, frame, payloads, schedules, shown, site, tags, times

_CANCELLED = {
    "cancelled": ("good", "Cancelled", "It was not delivered, and never will be: its wheel has passed the cancel."),
    "already-fired": ("warn", "Too late: it had already fired", "It was delivered before the cancel."),
    "unknown": (
        "warn",
        "Not known yet",
        "No wheel has answered in time. The cancel is in the log, and counts if it came before the fire.",
    ),
    "not-found": ("warn", "It is not pending", "Nothing was written."),
}


@frame.page("/ui/schedule", "Schedule")
async def page(viewer: frame.Viewer) -> None:
    id = viewer.parameters.get("id", b"")
    topic, partition = viewer.text("topic") or None, viewer.text("partition")
    if not id:
        tags.empty("event", "Which one?", "Choose one on the page Schedules.")
        return
    tags.tag("p", payloads.text(id), "al-mono al-id")
    place = int(partition) if partition.isdecimal() and partition.isascii() else None
    rows = await site.call(viewer.site.desk.schedule, id, topic, place)
    if not rows:
        with tags.sheet():
            tags.empty("event_busy", "It is not pending", "It fired, was cancelled, or never was. Its story tells.")
    elif len(rows) > 1:
        _several(rows)
    else:
        _One(viewer, rows[0]).show()
    with tags.sheet("Its story"):
        _story(viewer, id)


def _several(rows: list[desk.Row]) -> None:
    tags.notice("warn", "Pending in several places", "These are different schedules: choose one.")
    with tags.sheet(), tags.tag("ul"):
        for row in rows:
            with tags.tag("li"):
                tags.link(f"{row.topic}/{row.partition}", schedules.where(row.id, row.topic, row.partition))


class _One:
    def __init__(self, viewer: frame.Viewer, row: desk.Row) -> None:
        self._viewer, self._row = viewer, row
        self._name = payloads.text(row.id)
        self._place = {"topic": row.topic, "partition": row.partition}

    def show(self) -> None:
        with tags.tag("div", classes="al-actions"):
            guard = self._viewer.guard
            guard(tags.button("Move", self._move, icon="update"))
            guard(tags.button("Fire now", self._fire, icon="bolt"))
            guard(tags.button("Cancel it", self._cancel, icon="event_busy", classes="al-danger"))
        with tags.tag("div", classes="al-columns"):
            with tags.sheet("When and where to"):
                self._facts()
            with tags.sheet("Payload"):
                shown.payload(self._row.value, hidden=self._row.hidden, size=self._row.size)
        with tags.sheet("Headers"):
            shown.headers(self._row.headers, hidden=self._row.hidden)

    def _facts(self) -> None:
        row, viewer = self._row, self._viewer
        due = times.show(row.due, viewer.zone)
        rows: list[tuple[str, tags.Cell]] = [
            ("State", lambda: tags.mark(row.state, "warn" if row.state == "overdue" else "")),
            ("Due", f"{due}, {viewer.zone_name}"),
            ("In UTC", times.utc(row.due)),
            ("That is", times.away(row.due, viewer.now)),
            ("Target", row.target),
            ("Key", payloads.text(row.target_key) if row.target_key is not None else "none"),
            ("Written", f"{times.show(row.timestamp, viewer.zone)}, {times.utc(row.timestamp)}"),
            ("Stands at", f"{row.topic}/{row.partition}, offset {row.version:,}"),
        ]
        tags.facts(rows)

    def _ask(self, title: str, build: Callable[[], object], verb: str, act: dialogs.Act, *, danger: bool) -> None:
        if self._viewer.why_not is None:
            dialogs.ask(title, build, verb, act, danger=danger, done=ui.navigate.reload)

    def _what(self) -> None:
        row = self._row
        tags.facts([("Id", self._name), ("Target", row.target), ("Due", times.show(row.due, self._viewer.zone))])

    def _cancel(self) -> None:
        async def act() -> dialogs.Answer:
            desk_, who = self._viewer.site.desk, self._viewer.who
            outcome = await site.call(desk_.cancel, self._row.id, who=who, **self._place)
            return cancelled(outcome)

        def build() -> None:
            self._what()
            tags.tag("p", "It will not be delivered. The answer tells whether the cancel came in time.", "al-soft")

        self._ask("Cancel this schedule?", build, "Cancel the schedule", act, danger=True)

    def _fire(self) -> None:
        async def act() -> dialogs.Answer:
            desk_, who = self._viewer.site.desk, self._viewer.who
            return self._fired(await site.call(desk_.fire_now, self._row.id, who=who, **self._place))

        def build() -> None:
            self._what()
            tags.tag("p", "It is delivered at once instead of at its due time.", "al-soft")

        self._ask("Fire this schedule now?", build, "Fire it now", act, danger=True)

    def _fired(self, firing: desk.Firing) -> dialogs.Answer:
        if firing.answer == "fired":
            at = firing.fired_at
            line = f"Delivered to {firing.row.target}" + (f" {times.show(at, self._viewer.zone)}." if at else ".")
            return dialogs.Answer("good", "Fired", (line, *_detail(firing.detail)))
        if firing.answer == "buried":
            line = f"{firing.row.target} did not take it. It is a dead letter now."
            return dialogs.Answer("bad", "Not delivered", (line, *_detail(firing.detail)))
        line = "It is in the log with the due time now, and no wheel has fired it yet. Is it paused? Does it run?"
        return dialogs.Answer("warn", "Not fired yet", (line, *_detail(firing.detail)))

    def _move(self) -> None:
        due: creation.Due

        async def act() -> dialogs.Answer | None:
            moment = due.read()
            if moment is None:
                return None
            desk_, who = self._viewer.site.desk, self._viewer.who
            try:
                row = await site.call(desk_.move, self._row.id, moment, who=who, **self._place)
            except desk.NotFound:
                raise
            except desk.Refused as error:
                if error.field != "due":
                    raise
                due.field.say(error.allowed, bad=True)
                return None
            return creation.made("Moved", row, self._viewer)

        def build() -> None:
            nonlocal due
            self._what()
            with tags.tag("div", classes="al-field"):
                due = creation.Due(self._viewer, "New due time", focus=True)

        self._ask("Move this schedule", build, "Move it", act, danger=False)


def _detail(text: str) -> tuple[str, ...]:
    return (text,) if text else ()


def cancelled(outcome: desk.Outcome) -> dialogs.Answer:
    """The certain answer in words."""
    mood, title, line = _CANCELLED[outcome.answer]
    lines = [line, *_detail(outcome.detail)]
    if outcome.offset is not None:
        took = f", answered after {outcome.took} ms" if outcome.took else ""
        lines.append(f"The cancel is {outcome.topic}/{outcome.partition}, offset {outcome.offset:,}{took}.")
    return dialogs.Answer(mood, title, tuple(lines))


def _story(viewer: frame.Viewer, id: bytes) -> None:
    box = tags.tag("div", classes="al-body")

    async def tell() -> None:
        box.clear()
        with box:
            shown.reading("Reading the topics …")
        try:
            story = await site.call(viewer.site.desk.story, id)
        except Exception as error:
            box.clear()
            with box:
                tags.notice("bad", "It could not be told", site.told(error), role="alert")
            return
        box.clear()
        with box:
            _told(viewer, story)

    with box:
        said = "Every version, cancel, fire and dead letter that the topics still know. They are read whole for it, "
        tags.tag("p", said + "which takes a while where they are large.", "al-lead")
        with tags.tag("div", classes="al-actions"):
            tags.button("Tell its story", tell, icon="history")


def _told(viewer: frame.Viewer, story: desk.Story) -> None:
    with tags.tag("div", role="status", classes="al-body"):
        for verdict in story.verdicts:
            tags.notice("", verdict, role="note")
    with tags.tag("ol", classes="al-story"):
        for event in story.events:
            with tags.tag("li"):
                tags.tag("strong", event.what)
                tags.tag("div", event.detail)
                at = f"{times.show(event.at, viewer.zone)}, {event.topic}/{event.partition}, offset {event.offset:,}"
                tags.tag("div", at, "al-soft al-small")
