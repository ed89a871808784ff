"""`sky-avro` and `sky-json`: the whole schedule is the record's value."""

import base64
import io
import json
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

    A time in the past is delivered at once. Raises NoId, NoTarget, NotAware.
    """
    if not content.topic:
        raise message.NoTarget
    due, key = message.epoch_ms(at), content.key or b""
    headers = {name: value or b"" for name, value in content.headers}
    if form == "json":
        said = {
            "time": due, "topic": content.topic, "key": _text(key),
            "value": None if content.value is None else _text(content.value),
            "headers": {name: _text(value) for name, value in headers.items()},
        }  # fmt: skip
        return Message(topic, message.checked_id(id), json.dumps(said).encode())
    file = io.BytesIO()
    fields = {"time": due, "topic": content.topic, "key": key, "value": content.value, "headers": headers}
    fastavro.schemaless_writer(file, _SCHEMA, fields)
    return Message(topic, message.checked_id(id), file.getvalue())


def cancel(id: str | bytes, topic: str) -> Message:
    """The record that cancels: a null value for the id."""
    return Message(topic, message.checked_id(id), None)


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()
