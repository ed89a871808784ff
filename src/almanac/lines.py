"""A schedule as a line of JSON, for `almanac export` and `almanac import`.

    {"id": "vid1-online", "due_ms": 1893456000000, "due": "2030-01-01 00:00:00+00:00", "target_topic": "online-videos",
     "target_key": "vid1", "value": "video 1", "headers": [["origin", "cms"]], "timestamp_ms": 1607918336000}

What is bytes in Kafka is a text where it is UTF-8, else {"base64": "..."}. Read back: `id`, `target_topic`, `value` and
`due_ms` or `due` (ISO 8601 with an offset) are needed. `timestamp_ms` says when the schedule was written; else, now.
Karafka's own, `target_partition` or `target_partition_key`, are written where a schedule has them.
"""

from __future__ import annotations

import base64
import binascii
import json
from datetime import UTC, datetime
from typing import Any

from almanac import formats, when
from almanac.native import Wish
from almanac.record import Headers

_NEEDED = ("id", "target_topic", "value")
_KNOWN = (*_NEEDED, "due_ms", "due", "target_key", "target_partition", "target_partition_key", "headers",
          "timestamp_ms", "source")  # fmt: skip


class BadLine(ValueError):
    """The line is no schedule; the message says which part is wrong and what was there."""


def write(wish: Wish, source: str) -> str:
    """The line of a schedule; `source` says where it was found."""
    line: dict[str, Any] = {
        "id": _packed(wish.id),
        "due_ms": wish.due,
        "due": when.render(wish.due, UTC),
        "target_topic": wish.target,
        "target_key": _packed(wish.key),
        "value": _packed(wish.value),
        "headers": [[name, _packed(value)] for name, value in wish.headers],
        "timestamp_ms": wish.timestamp,
        "source": source,
    }
    if wish.partition is not None:
        line["target_partition"] = wish.partition
    if wish.partition_key is not None:
        line["target_partition_key"] = _packed(wish.partition_key)
    return json.dumps(line, ensure_ascii=False)


def read(text: str | bytes, now: int) -> Wish:
    """What a line asks for. Raises BadLine."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadLine(f"no JSON: {error}") from None
    if not isinstance(line, dict):
        raise BadLine(f"no JSON object: {_shown(line)}")
    missing = [name for name in _NEEDED if name not in line]
    if missing:
        raise BadLine(f"{' and '.join(missing)} missing")
    if unknown := [name for name in line if name not in _KNOWN]:
        raise BadLine(f"{unknown[0]!r} is no field; known are {', '.join(_KNOWN)}")
    target = line["target_topic"]
    if not isinstance(target, str) or formats.legal_topic(target.encode(errors="replace")) is None:
        raise BadLine(f"target_topic is no topic's name: {_shown(target)}")
    due = _due(line)
    if line.get("timestamp_ms") is None and due < now:
        raise BadLine(f"due {when.render(due, UTC)}, which has passed; timestamp_ms would say when it was written")
    partition = line.get("target_partition")
    return Wish(
        _unpacked(line["id"], "id") or b"", due, target, _unpacked(line.get("target_key"), "target_key"),
        _unpacked(line["value"], "value"), _headers(line.get("headers")),
        _timestamp(line, now), None if partition is None else _number(partition, "target_partition"),
        _unpacked(line.get("target_partition_key"), "target_partition_key"),
    )  # fmt: skip


def _due(line: dict[str, Any]) -> int:
    if "due_ms" in line:
        due = _number(line["due_ms"], "due_ms")
    else:
        try:
            moment = datetime.fromisoformat(line["due"])
        except (KeyError, TypeError, ValueError):
            raise BadLine(f"due is neither given in due_ms nor a time in ISO 8601: {_shown(line.get('due'))}") from None
        if moment.tzinfo is None:
            raise BadLine(f"due has no offset, such as +01:00 or Z: {_shown(line['due'])}")
        due = when.milliseconds(moment)
    if not 0 <= due <= formats.LAST_DUE:
        raise BadLine(f"due lies before 1970 or after the year 9999: {due}")
    return due


def _timestamp(line: dict[str, Any], now: int) -> int:
    if line.get("timestamp_ms") is None:
        return now
    timestamp = _number(line["timestamp_ms"], "timestamp_ms")
    if timestamp > formats.LAST_DUE:
        raise BadLine(f"timestamp_ms lies after the year 9999: {_shown(timestamp)}")
    return timestamp


def _headers(listed: object) -> Headers:
    if listed is None:
        return []
    if not isinstance(listed, list) or not all(
        isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) for pair in listed
    ):
        raise BadLine(f"headers is no list of [name, value]: {_shown(listed)}")
    try:
        return [(formats.header_name(name), _unpacked(value, f"header {name}")) for name, value in listed]
    except formats.Invalid as error:
        raise BadLine(str(error)) from None


def _number(value: object, name: str) -> int:
    if type(value) is not int or value < 0:
        raise BadLine(f"{name} is no whole, positive number: {_shown(value)}")
    return value


def _packed(value: bytes | None) -> object:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _unpacked(value: object, name: str) -> bytes | None:
    try:
        if value is None:
            return None
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, dict) and list(value) == ["base64"]:
            return base64.b64decode(value["base64"], validate=True)
    except (binascii.Error, ValueError, TypeError):
        pass
    raise BadLine(f'{name} is neither a text nor {{"base64": ...}}: {_shown(value)}')


def _shown(value: object) -> str:
    return json.dumps(value)[:80]
