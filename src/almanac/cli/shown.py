"""How schedules and what became of them look: as JSON for programs, and as text for people."""

from __future__ import annotations

import base64
from datetime import tzinfo
from typing import TYPE_CHECKING, Any

from almanac import when

if TYPE_CHECKING:
    from almanac import controls, desk
    from almanac.record import Headers


def text(value: bytes | None) -> str | None:
    """An id or a key, whatever its bytes are."""
    return None if value is None else value.decode(errors="backslashreplace")


def encoded(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def time(ms: int | None, zone: tzinfo) -> str | None:
    return None if ms is None else when.render(ms, zone)


def row(each: desk.Row, zone: tzinfo) -> dict[str, Any]:
    """A pending schedule as JSON; payload and headers in base64."""
    return {
        "id": text(each.id),
        "due_ms": each.due,
        "due": when.render(each.due, zone),
        "target_topic": each.target,
        "target_key": text(each.target_key),
        "topic": each.topic,
        "partition": each.partition,
        "offset": each.version,
        "written_ms": each.timestamp,
        "state": each.state,
        "value": encoded(each.value),
        "size": each.size,
        "hidden": each.hidden,
        "headers": headers(each.headers),
    }


def headers(given: Headers) -> list[dict[str, str | None]]:
    return [{"name": name, "value": encoded(value)} for name, value in given]


def fired(each: desk.FiredRow, zone: tzinfo) -> dict[str, Any]:
    return {
        "id": text(each.id),
        "target_topic": each.target,
        "due_ms": each.due,
        "due": time(each.due, zone),
        "fired_ms": each.fired_at,
        "fired": when.render(each.fired_at, zone),
        "lateness_ms": each.lateness,
        "outcome": each.outcome,
        "topic": each.topic,
        "partition": each.partition,
        "offset": each.version,
    }


def letter(each: desk.DeadLetter, zone: tzinfo) -> dict[str, Any]:
    return {
        "partition": each.partition,
        "offset": each.offset,
        "at_ms": each.at,
        "at": when.render(each.at, zone),
        "id": text(each.id),
        "reason": each.reason,
        "detail": each.detail,
        "source": each.source,
        "target_topic": each.target,
        "due_ms": each.due,
        "value": encoded(each.value),
        "size": each.size,
        "hidden": each.hidden,
        "sendable": each.sendable,
    }


def controlled(told: controls.Controls, zone: tzinfo) -> list[str]:
    """What is held back, a sentence each; none if nothing is."""
    found = ["everything is paused: nothing is fired"] if told.paused else []
    found += [f"paused: {target}" for target in told.paused_targets]
    if told.missed_per_second is not None:
        found.append(f"missed ones: at most {told.missed_per_second:,} a second")
    found += [f"{target}: at most {cap:,} a second" for target, cap in told.target_per_second.items()]
    if found and told.by:
        found.append(f"told by {told.by}, {when.render(told.at, zone)}")
    return found


def payload(value: bytes | None, form: str) -> str:
    """For a terminal: as text if it is some, else in hex; no control character reaches the terminal."""
    if value is None:
        return "(null)"
    if form != "hex":
        try:
            said = value.decode()
        except UnicodeDecodeError:
            said = None
        if said is not None and all(char.isprintable() or char in "\n\t" for char in said):
            return said
        if form == "text":
            return repr(value)[2:-1]
    lines = (value[start : start + 16] for start in range(0, len(value), 16))
    return "\n".join(f"{16 * n:08x}  {line.hex(' ')}" for n, line in enumerate(lines))
