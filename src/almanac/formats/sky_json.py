"""`sky-json`: the whole schedule is the record's value, a JSON object whose binary fields are base64."""

import binascii
import json
import re
from typing import Any

import orjson

from almanac import formats
from almanac.record import Headers, Named, Record

_DIGITS = re.compile(r"-?\d{1,18}", re.ASCII)  # who writes 64 bits to JSON often writes a text


class SkyJson:
    """Fields `time` (ms), `topic`, `key`, `value` (may be null), optional `headers`."""

    name = "sky-json"

    def plan(self, record: Record, named: Named) -> tuple[int, str]:
        """See formats.Format. Whether the value can be read at all shows when it is read."""
        due, target, *_ = self.decode(record, named)
        return due, target

    def decode(self, record: Record, named: Named) -> formats.Schedule:
        """See formats.Format."""
        if not record.key:
            raise formats.no_id()
        said = _read(record.value or b"")
        time, topic = said.get("time"), said.get("topic")
        if (type(time) is float and time.is_integer()) or (type(time) is str and _DIGITS.fullmatch(time)):
            time = int(time)
        if type(time) is not int:
            raise formats.Invalid(f"field time is not a whole number: {json.dumps(time)[:80]}")
        if type(topic) is not str:
            raise formats.Invalid(f"field topic is not a text: {json.dumps(topic)[:80]}")
        told = said.get("headers")
        if told is not None and type(told) is not dict:
            raise formats.Invalid(f"field headers is not an object: {json.dumps(told)[:80]}")
        headers: Headers = [
            (formats.header_name(name), _bytes(text, f"header {name}")) for name, text in (told or {}).items()
        ]
        due = formats.due_ms(max(0, time), "field time")  # before 1970 is the past, too: at once
        value = said.get("value")
        target = formats.target(topic.encode(errors="surrogatepass"), "field topic")
        return formats.Schedule(
            due, target, _bytes(said.get("key"), "field key"), -1,
            None if value is None else _bytes(value, "field value"), headers, None, form=self,
        )  # fmt: skip

    def speaks(self, named: Named) -> bool:
        """See formats.Format."""
        return False

    def acknowledged(self, named: Named) -> int | None:
        """See formats.Format."""
        return None

    def tombstone(self, record: Record) -> Headers:
        """See formats.Format."""
        return [("schedule:expired", b"true")]

    def null(self) -> Headers:
        """See formats.Format."""
        return []


def _read(value: bytes) -> dict[str, Any]:
    try:
        said = orjson.loads(value)
    except orjson.JSONDecodeError:
        said = _patiently(value)
    if type(said) is not dict:
        raise formats.Invalid(f"the value is not a JSON object: {formats.shown(value)}")
    return said


def _patiently(value: bytes) -> Any:
    """Python's own reader takes more than the fast one (UTF-16, lone surrogates), and says what is wrong."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise formats.Invalid(f"the value is not JSON: {error}; {formats.shown(value)}") from None


def _bytes(text: object, what: str) -> bytes:
    if type(text) is not str:
        raise formats.Invalid(f"{what} is not base64: {json.dumps(text)[:80]}")
    try:
        return binascii.a2b_base64(text + "=" * (-len(text) % 4), strict_mode=True)  # Java's need no padding
    except (binascii.Error, ValueError):
        raise formats.Invalid(f"{what} is not base64: {text[:80]!r}") from None
