"""Cursors: the place of the last row, so that they stay good whatever is added or goes away."""

from __future__ import annotations

import base64
import json
from typing import Any

from almanac.book import search
from almanac.desk.refusals import Refused

_ALLOWED = "must be the `cursor` of the page before, as it was given"


def text(place: list[Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(place, separators=(",", ":")).encode()).decode().rstrip("=")


def parsed(cursor: str) -> list[Any]:
    try:
        place = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except ValueError:
        place = None
    if not isinstance(place, list):
        raise Refused("cursor", cursor, _ALLOWED)
    return place


def write(cursor: search.Cursor, sort: str) -> str:
    return text([sort, cursor.due, cursor.topic, cursor.partition, base64.b64encode(cursor.id).decode()])


def read(cursor: str | None, sort: str) -> search.Cursor | None:
    if cursor is None:
        return None
    try:
        order, due, topic, partition, id = parsed(cursor)
        place = search.Cursor(int(due), str(topic), int(partition), base64.b64decode(id))
    except (ValueError, TypeError):
        raise Refused("cursor", cursor, _ALLOWED) from None
    if order != sort:
        raise Refused("cursor", cursor, f"was given for the order {order}: ask with sort={order}, or begin anew")
    return place


def read_fired(cursor: str | None) -> search.FiredCursor | None:
    if cursor is None:
        return None
    try:
        at, topic, partition, version = parsed(cursor)
        return search.FiredCursor(int(at), str(topic), int(partition), int(version))
    except (ValueError, TypeError):
        raise Refused("cursor", cursor, _ALLOWED) from None
