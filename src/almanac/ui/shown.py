"""Payloads, headers and times as several pages show them."""

from __future__ import annotations

from nicegui import ui

from almanac.record import Headers
from almanac.ui import frame, payloads, tags, times
from almanac.ui.tags import Column

HIDDEN = "Payloads and the values of headers are hidden here (HIDE_PAYLOADS)."


def moment(ms: int, viewer: frame.Viewer) -> None:
    """A time in a list: the viewer's, and below it how far away; the mouse shows UTC."""
    tags.tag("time", times.show(ms, viewer.zone), "al-time", title=times.utc(ms))
    tags.tag("span", times.away(ms, viewer.now), "al-under")


def payload(value: bytes | None, *, hidden: bool, size: int) -> None:
    """As text, JSON or hexadecimal; at first as what it seems to be."""
    if hidden:
        tags.tag("p", f"{payloads.size(size)}. {HIDDEN}", "al-lead")
        return
    if value is None:
        tags.tag("p", "A null: the message has no payload.", "al-lead")
        return
    if not value:
        tags.tag("p", "Empty, no bytes.", "al-lead")
        return

    def show(kind: str) -> None:
        pretty = payloads.pretty(value) if kind == "json" else None
        if kind == "json" and pretty is None:
            text.set_text("This is no JSON.")
        else:
            text.set_text(pretty or (payloads.dump(value) if kind == "hex" else payloads.readable(value)))

    first = payloads.best(value)
    with tags.tag("div", classes="al-title"):
        tags.choices("Show as", (("text", "Text"), ("json", "JSON"), ("hex", "Hex")), first, show)
        note = payloads.size(len(value))
        if len(value) > payloads.SHOWN:
            note += f", the first {payloads.SHOWN:,} are shown"
        tags.tag("span", note, "al-soft al-small")
    text = tags.words("", "al-text", "pre")
    text.props["tabindex"] = "0"  # so that a keyboard can scroll it
    text.props["aria-label"] = "Contents"
    text.props["role"] = "region"
    show(first)


def headers(given: Headers, *, hidden: bool) -> None:
    if not given:
        tags.tag("p", "No headers.", "al-lead")
        return

    def value(raw: bytes | None) -> str:
        return "hidden" if hidden else payloads.text(raw)

    rows = [(name, lambda raw=raw: tags.tag("span", value(raw), "al-mono")) for name, raw in given]
    tags.table("Headers", (Column("Name", "al-third"), Column("Value")), rows)
    if hidden:
        tags.tag("p", HIDDEN, "al-lead al-small")


def number(at: int | None) -> str:
    return "–" if at is None else f"{at:,}"


def reading(text: str) -> ui.element:
    """Something takes a while."""
    return tags.tag("p", text, "al-lead", role="status")
