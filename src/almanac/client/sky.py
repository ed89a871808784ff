"""`sky-avro` and `sky-json`: the whole schedule is the record's value.

>>> from datetime import UTC, datetime
>>> expired = Message("assets", key=b"a1", value=None)  # a tombstone for the asset
>>> schedule(expired, "a1", datetime(2099, 1, 1, tzinfo=UTC), "expiry", "json").value
b'{"time": 4070908800000, "topic": "assets", "key": "YTE=", "value": null, "headers": {}}'
"""

import base64
import io
import json
from dataclasses import replace
from datetime import datetime
from typing import Literal

import fastavro

from almanac.client import message
from almanac.client.message import Message
from almanac.formats import sky_avro

_SCHEMA = fastavro.parse_schema(json.loads(sky_avro.SCHEMA))


def schedule(
    content: Message, id: str | bytes, at: datetime, topic: str, form: Literal["avro", "json"] = "avro"
) -> Message:
    """The record that has `content` delivered to its topic at that time; a value of None delivers a tombstone.

    The format knows no null key: without a key an empty one is delivered. A time in the past is delivered at once.
    What a scheduler added when it delivered the content is taken out first.
    Raises NoId, NoTarget, NoTopic, NotAware, TooFarAhead, Inexpressible.
    """
    # Nothing is added to what this format delivers: it would tell of the delivery before.
    return record(replace(content, headers=message.fresh(content.headers)), id, at, topic, form)


def record(content: Message, id: str | bytes, at: datetime, topic: str, form: Literal["avro", "json"]) -> Message:
    """The same for content that nobody has delivered yet: all its headers stay."""
    name, target, due = message.checked_id(id), message.checked_target(content), message.checked_due(at)
    if form not in ("avro", "json"):
        raise message.Inexpressible(f"sky's schedules are avro or json, not {form!r}")
    message.checked_topic(topic)
    message.without_partition(content, f"sky-{form}")
    key, headers = content.key or b"", message.mapped(content.headers)
    if form == "json":
        said = {
            "time": due, "topic": target, "key": _text(key),
            "value": None if content.value is None else _text(content.value),
            "headers": {each: _text(value) for each, value in headers.items()},
        }  # fmt: skip
        return Message(topic, name, json.dumps(said).encode())
    file = io.BytesIO()
    fields = {"time": due, "topic": target, "key": key, "value": content.value, "headers": headers}
    fastavro.schemaless_writer(file, _SCHEMA, fields)
    return Message(topic, name, file.getvalue())


def cancel(id: str | bytes, topic: str) -> Message:
    """The record that cancels: a null value for the id. Raises NoId, NoTopic."""
    return Message(message.checked_topic(topic), message.checked_id(id), None)


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()
