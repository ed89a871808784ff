"""The controls: what is paused and capped, and changing it."""

from __future__ import annotations

from collections.abc import Callable

from nicegui import ui

from almanac import controls, desk
from almanac.ui import dialogs, frame, site, tags, times
from almanac.ui.tags import Column

Act = Callable[[], controls.Controls]


def in_force(now: controls.Controls, viewer: frame.Viewer) -> None:
    """For the overview: what holds firing back, if anything does."""
    said = []
    if now.paused:
        said.append(("Everything", "paused"))
    said += [(target, "paused") for target in now.paused_targets]
    if now.missed_per_second is not None:
        said.append(("Missed schedules", f"at most {now.missed_per_second:,} a second"))
    said += [(target, f"at most {number:,} a second") for target, number in sorted(now.target_per_second.items())]
    if said:
        tags.facts(said)
    else:
        tags.tag("p", "Nothing is paused, nothing is capped.", "al-lead")
    if now.at:
        tags.tag("p", f"Last changed {times.show(now.at, viewer.zone)} by {now.by or 'somebody'}.", "al-lead al-small")
    tags.link("Change them", "/ui/controls")


@frame.page("/ui/controls", "Controls")
async def page(viewer: frame.Viewer) -> None:
    tags.tag("p", "Kept in Kafka, so they survive restarts; the wheels obey within a second.", "al-lead")
    box = tags.tag("div", classes="al-body")

    async def show() -> None:
        now = await site.call(viewer.site.desk.controls)
        box.clear()
        with box:
            _Page(viewer, now, lambda: ui.timer(0, show, once=True)).show()

    with box:
        await show()


class _Page:
    def __init__(self, viewer: frame.Viewer, now: controls.Controls, again: Callable[[], object]) -> None:
        self._viewer, self._now, self._again = viewer, now, again
        self._desk, self._who = viewer.site.desk, viewer.who

    def show(self) -> None:
        with tags.sheet("Everything"):
            self._everything()
        with tags.tag("div", classes="al-columns"):
            with tags.sheet("One target"):
                self._targets()
            with tags.sheet("Fires per second"):
                self._caps()
        if self._now.at:
            at = times.show(self._now.at, self._viewer.zone)
            tags.tag("p", f"Last changed {at} by {self._now.by or 'somebody'}.", "al-lead al-small")

    def _act(
        self, text: str, click: Callable[[], object], *, icon: str = "", label: str = "", classes: str = ""
    ) -> None:
        self._viewer.guard(tags.button(text, click, icon=icon, label=label, classes=classes))

    def _ask(self, title: str, said: str, verb: str, act: Act, *, danger: bool = False) -> None:
        if self._viewer.why_not is not None:
            return

        async def go() -> dialogs.Answer:
            now = await site.call(act)
            return dialogs.Answer("good", "In force", (*_told(now), "The wheels obey within a second."))

        dialogs.ask(title, lambda: tags.tag("p", said), verb, go, danger=danger, done=self._again)

    # Pauses

    def _everything(self) -> None:
        with tags.tag("div", classes="al-title"):
            if self._now.paused:
                tags.mark("Paused", "warn")
                tags.tag("span", "Nothing is fired. What is due meanwhile fires after resume, in due order.", "al-soft")
            else:
                tags.mark("Running", "good")
                tags.tag("span", "Schedules fire when they are due.", "al-soft")
            with tags.tag("div", classes="al-actions"):
                if self._now.paused:
                    self._act("Resume everything", self._resume_all, icon="play_arrow", classes="al-main-button")
                else:
                    self._act("Pause everything", self._pause_all, icon="pause", classes="al-danger")

    def _pause_all(self) -> None:
        said = "No schedule is fired any more until you resume, for no target. Nothing is lost: what is due meanwhile "
        self._ask(
            "Pause everything?",
            said + "fires after resume, in due order.",
            "Pause everything",
            lambda: self._desk.pause(who=self._who),
            danger=True,
        )

    def _resume_all(self) -> None:
        said = "What was due meanwhile fires now, in due order. Targets that are paused by name stay so."
        self._ask("Resume everything?", said, "Resume everything", lambda: self._desk.resume(who=self._who))

    def _targets(self) -> None:
        if self._now.paused_targets:
            rows = [(target, self._resume_button(target)) for target in self._now.paused_targets]
            tags.table("Paused targets", (Column("Paused target"), Column("", "al-plain")), rows)
        else:
            tags.tag("p", "No target is paused by name.", "al-lead")
        with tags.tag("form", classes="al-form", novalidate=True) as form:
            target = tags.Field("Target topic", hint="Its schedules wait; all others fire.", classes="al-all")
            with tags.tag("div", classes="al-all al-actions"):
                self._viewer.guard(tags.button("Pause this target", icon="pause", kind="submit"))
        form.on("submit.prevent", lambda: self._pause(target), args=[])

    def _resume_button(self, target: str) -> Callable[[], None]:
        def resume() -> None:
            said = f"What is due for {target} fires now, in due order."
            self._ask(f"Resume {target}?", said, "Resume", lambda: self._desk.resume(who=self._who, target=target))

        return lambda: self._act("Resume", resume, label=f"Resume {target}", classes="al-little")

    def _pause(self, field: tags.Field) -> None:
        target = field.value.strip()
        if not target:
            field.say("Name the target topic that is to wait.", bad=True)
            return
        said = f"Schedules for {target} wait until you resume it. Nothing is lost."
        self._ask(
            f"Pause {target}?", said, "Pause", lambda: self._desk.pause(who=self._who, target=target), danger=True
        )

    # Caps

    def _caps(self) -> None:
        now = self._now
        rows = []
        if now.missed_per_second is not None:
            rows.append(("Missed schedules", f"{now.missed_per_second:,}", self._uncap_button(None)))
        for target, number in sorted(now.target_per_second.items()):
            rows.append((target, f"{number:,}", self._uncap_button(target)))
        if rows:
            columns = (Column("Of"), Column("At most", "al-number"), Column("", "al-plain"))
            tags.table("Caps in force", columns, rows)
        else:
            tags.tag("p", "Nothing is capped.", "al-lead")
        with tags.tag("form", classes="al-form", novalidate=True) as form:
            of = tags.Field("Target topic", hint="Empty: of what was missed, for all targets.")
            most = tags.Field("At most, a second", kind="number", hint="A whole number.", min="1", inputmode="numeric")
            with tags.tag("div", classes="al-all al-actions"):
                self._viewer.guard(tags.button("Set this cap", icon="speed", kind="submit"))
        form.on("submit.prevent", lambda: self._cap(of, most), args=[])

    def _cap(self, of: tags.Field, number: tags.Field) -> None:
        text, target = number.value.strip(), of.value.strip()
        if not text.isdecimal() or not text.isascii() or not 0 < int(text) <= 1_000_000_000:
            number.say("A whole number from 1 on; to stop a target, pause it.", bad=True)
            return
        most = int(text)
        what = f"for {target}" if target else "of schedules that were missed"
        said = f"At most {most:,} fires a second {what}, all shards together. What is above that is fired later."
        self._ask("Set this cap?", said, "Set the cap", self._cap_act(target or None, most))

    def _uncap_button(self, target: str | None) -> Callable[[], None]:
        name = target or "missed schedules"

        def remove() -> None:
            said = f"Fires of {name} are no longer held back."
            self._ask(f"Remove the cap of {name}?", said, "Remove the cap", self._cap_act(target, None))

        return lambda: self._act("Remove", remove, label=f"Remove the cap of {name}", classes="al-little")

    def _cap_act(self, target: str | None, per_second: int | None) -> Act:
        def act() -> desk.Controls:
            if target is None:
                return self._desk.cap_missed(per_second, who=self._who)
            return self._desk.cap_target(target, per_second, who=self._who)

        return act


def _told(now: controls.Controls) -> list[str]:
    """The controls in sentences."""
    said = ["Everything is paused."] if now.paused else []
    if now.paused_targets:
        said.append(f"Paused: {', '.join(now.paused_targets)}.")
    if now.missed_per_second is not None:
        said.append(f"Missed schedules: at most {now.missed_per_second:,} a second.")
    said += [f"{target}: at most {number:,} a second." for target, number in sorted(now.target_per_second.items())]
    return said or ["Nothing is paused, nothing is capped."]
