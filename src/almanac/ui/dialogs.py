"""Actions: what will happen, a word from the viewer, and the answer, all in one dialog and all by keyboard."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from weakref import WeakSet

from nicegui import Client, ui

from almanac import desk
from almanac.ui import site, tags

_log = logging.getLogger("almanac.ui")


@dataclass(frozen=True)
class Answer:
    """What became of it. Mood is good, warn or bad."""

    mood: str
    title: str
    lines: tuple[str, ...] = ()
    to: str | None = None  # a link to what was made
    to_text: str = ""


_FOCUS = "requestAnimationFrame(() => document.querySelector('{}')?.focus())"  # once it is drawn
_asked: WeakSet[Client] = WeakSet()  # whose dialog is open
Act = Callable[[], Awaitable[Answer | None]]  # None: something has to be mended first, and the fields say what


def ask(
    title: str,
    build: Callable[[], object],
    verb: str,
    act: Act,
    *,
    danger: bool = False,
    done: Callable[[], object] | None = None,
    wide: bool = False,
) -> None:
    """Opens the dialog, one at a time; `done` is called after an answer was read."""
    answered = busy = False
    client = ui.context.client
    if client in _asked:  # Enter was pressed again before the dialog had the focus
        return
    _asked.add(client)

    def closed() -> None:
        _asked.discard(client)
        dialog.delete()
        if answered and done is not None:
            done()

    async def go() -> None:
        nonlocal answered, busy
        if answered or busy:  # Enter twice is meant once
            return
        busy = True
        tags.enable(main, False, "It is being done")
        with status:
            status.clear()
            tags.tag("p", "Asking the scheduler …", "al-soft")
        try:
            answer = await act()
        except Exception as error:
            answer = refused(error)
        if dialog.is_deleted:
            return
        busy = False
        status.clear()
        if answer is None:
            tags.enable(main, True)
            ui.run_javascript(_FOCUS.format(f"#{form.html_id} [aria-invalid=true]"))
            return
        answered = True
        body.clear()
        actions.clear()
        with status:
            tags.notice(answer.mood, answer.title, *answer.lines).props["data-answer"] = answer.mood
        with actions:
            if answer.to is not None:
                tags.link(answer.to_text, answer.to, "al-button")
            close = tags.button("Close", dialog.close, classes="al-main-button")
        ui.run_javascript(_FOCUS.format(f"#{close.html_id}"))

    with ui.dialog() as dialog, tags.tag("form", classes=f"al-dialog {'al-wide' if wide else ''}") as form:
        # Enter in a field does what the button does; the browser itself sends nothing.
        form.on("submit.prevent", go, args=[])
        form.props["novalidate"] = True
        tags.tag("h2", title, "al-h2")
        with tags.tag("div", classes="al-body") as body:
            build()
        status = tags.tag("div", role="status", aria_live="polite")
        with tags.tag("div", classes="al-actions") as actions:
            back = tags.button("Back", dialog.close)
            look = "al-main-button al-danger" if danger else "al-main-button"
            main = tags.button(verb, kind="submit", classes=look)
        if danger:
            back.props["data-autofocus"] = True  # Enter alone must not do what cannot be undone
    dialog.props["aria-label"] = title
    dialog.on("hide", closed, args=[])
    dialog.open()


def refused(error: Exception) -> Answer:
    """Nothing was done, and why."""
    if isinstance(error, desk.NotFound):
        return Answer("warn", "It is not pending", (f"Nothing was done. {error}",))
    if isinstance(error, desk.Refused):
        return Answer("bad", "Refused", (f"Nothing was done. {error}",))
    return Answer("bad", "It may not have been done", (site.told(error), "Look again before you repeat it."))
