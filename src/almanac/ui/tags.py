"""The small pieces that pages are made of: plain HTML elements, so that a browser knows what each of them is.

Text is always given as text, never as HTML: what others wrote is shown as they wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

Handler = Callable[..., Any]
Cell = str | Callable[[], object]


def tag(kind: str, /, text: str | None = None, classes: str = "", **attributes: str | bool) -> ui.element:
    """An element; `aria_label` is the attribute aria-label, `for_` is for."""
    element = ui.element(kind) if text is None else TextElement(tag=kind, text=text)
    if classes:
        element.classes(classes)
    for key, value in attributes.items():
        element.props[key.rstrip("_").replace("_", "-")] = value
    return element


def words(text: str = "", classes: str = "", name: str = "span") -> TextElement:
    """Text that changes later: `set_text`."""
    element = TextElement(tag=name, text=text)
    if classes:
        element.classes(classes)
    return element


def link(text: str, to: str, classes: str = "", icon: str = "") -> ui.element:
    with tag("a", classes=classes, href=to) as element:
        if icon:
            ui.icon(icon)
        tag("span", text)
    return element


def button(
    text: str, click: Handler | None = None, *, icon: str = "", classes: str = "", label: str = "", kind: str = "button"
) -> ui.element:
    """`label` is what a screen reader says where the text alone would not tell what the button is for."""
    with tag("button", classes=f"al-button {classes}", type=kind) as element:
        if icon:
            ui.icon(icon)
        if text:
            tag("span", text)
    if label:
        element.props["aria-label"] = label
    if click is not None:
        element.on("click", click, args=[])
    return element


def enable(element: ui.element, on: bool, why: str = "") -> None:
    """A button that does nothing now says why, to a mouse and to a screen reader."""
    if on:
        element.props.pop("disabled", None)
        element.props.pop("title", None)
    else:
        element.props["disabled"] = True
        element.props["title"] = why
    element.update()


def sheet(title: str = "", classes: str = "") -> ui.element:
    """A box with a heading."""
    box = tag("section", classes=f"al-sheet {classes}")
    if title:
        with box:
            tag("h2", title, "al-h2")
        box.props["aria-label"] = title
    return box


def mark(text: str, mood: str = "") -> ui.element:
    """A word in a colour: mood is good, warn, bad or nothing."""
    return tag("span", text, f"al-tag al-{mood}" if mood else "al-tag", title=text)


def notice(mood: str, title: str, *lines: str, role: str = "status") -> ui.element:
    with tag("div", classes=f"al-notice al-{mood}" if mood else "al-notice", role=role) as box:
        with tag("p"):
            tag("strong", title)
        for line in lines:
            tag("p", line)
    return box


def empty(icon: str, title: str, hint: str = "") -> ui.element:
    """What is shown where there is nothing."""
    with tag("div", classes="al-empty") as box:
        ui.icon(icon)
        tag("div", title)
        if hint:
            tag("div", hint, "al-small")
    return box


def facts(rows: Sequence[tuple[str, Cell]]) -> ui.element:
    """Names and what they are."""
    with tag("dl", classes="al-facts") as box:
        for name, value in rows:
            tag("dt", name)
            if isinstance(value, str):
                tag("dd", value)
            else:
                with tag("dd"):
                    value()
    return box


@dataclass(frozen=True)
class Column:
    label: str
    classes: str = ""  # al-number, al-time, al-mono; al-plain: a phone's card shows no label before it
    short: str = ""  # the label on a phone's card, where it is another


def table(caption: str, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> ui.element:
    """A table, which a phone shows as cards. The first column is a card's heading."""
    # display: block takes a table's meaning away in some browsers; the roles give it back.
    with tag("table", classes="al-table", role="table") as element:
        tag("caption", caption, "al-hidden")
        with tag("thead", role="rowgroup"), tag("tr", role="row"):
            for column in columns:
                right = "al-number" if "al-number" in column.classes else ""
                tag("th", column.label, right, scope="col", role="columnheader")
        with tag("tbody", role="rowgroup"):
            for row in rows:
                with tag("tr", role="row"):
                    for at, (column, cell) in enumerate(zip(columns, row, strict=True)):
                        classes = f"{column.classes} al-first" if at == 0 else column.classes
                        attributes = {"role": "cell", "data_label": column.short or column.label}
                        with tag("td", None, classes, **attributes), tag("div"):
                            tag("span", cell) if isinstance(cell, str) else cell()
    return element


class Field:
    """A labelled input. `value` is what stands in it now."""

    def __init__(
        self,
        label: str,
        *,
        name: str = "",
        value: str = "",
        hint: str = "",
        kind: str = "text",
        many: bool = False,
        changed: Callable[[str], object] | None = None,
        classes: str = "",
        **attributes: str | bool,
    ) -> None:
        self.value = value
        self._changed = changed
        self._hint_text = hint
        with tag("div", classes=f"al-field {classes}"):
            title = tag("label", label)
            # The browser keeps what was typed; `value` would be written back at every change of the page.
            self.input = tag("textarea" if many else "input", None, "", defaultValue=value, **attributes)
            if not many:
                self.input.props["type"] = kind
            if name:
                self.input.props["name"] = name
            title.props["for"] = self.input.html_id
            self._hint = words(hint, "al-hint", "div")
            self._hint.props["aria-live"] = "polite"
            self.input.props["aria-describedby"] = self._hint.html_id
        self.input.on("input", self._typed, js_handler="(e) => emit(e.target.value)")

    def _typed(self, event: Any) -> None:
        self.value = str(event.args or "")
        self.say()
        if self._changed is not None:
            self._changed(self.value)

    def say(self, hint: str | None = None, *, bad: bool = False) -> None:
        """Puts this below the field; nothing: what stood there at first."""
        self._hint.set_text(self._hint_text if hint is None else hint)
        self._hint.classes(add="al-bad") if bad else self._hint.classes(remove="al-bad")
        if bad != bool(self.input.props.get("aria-invalid")):
            if bad:
                self.input.props["aria-invalid"] = "true"
            else:
                self.input.props.pop("aria-invalid", None)
            self.input.update()

    def put(self, value: str) -> str:
        """A piece of JavaScript that types this into the field."""
        return (
            f"() => {{ const box = document.getElementById('{self.input.html_id}'); box.value = {value!r}; "
            "box.dispatchEvent(new Event('input')); }"
        )


def choice(label: str, name: str, options: Sequence[tuple[str, str]], value: str) -> ui.element:
    """A list to choose from, for a form that is sent: (value, text)."""
    with tag("div", classes="al-field") as box:
        title = tag("label", label)
        with tag("select", name=name) as element:
            for key, text in options:
                option = tag("option", text, value=key)
                if key == value:
                    option.props["selected"] = True
        title.props["for"] = element.html_id
        tag("div", "", "al-hint")
    return box


def choices(label: str, options: Sequence[tuple[str, str]], value: str, chosen: Callable[[str], object]) -> ui.element:
    """A row of buttons, one of which is pressed: (value, text)."""
    buttons: dict[str, ui.element] = {}

    def press(key: str) -> None:
        for each, element in buttons.items():
            element.props["aria-pressed"] = "true" if each == key else "false"
            element.update()
        chosen(key)

    with tag("div", classes="al-choices", role="group", aria_label=label) as box:
        for key, text in options:
            buttons[key] = button(text, lambda key=key: press(key))
            buttons[key].props["aria-pressed"] = "true" if key == value else "false"
    return box
