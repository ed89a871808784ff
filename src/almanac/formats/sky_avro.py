"""`sky-avro`: the whole schedule is the record's value, in Avro's raw binary form (no registry framing)."""

import io
import json
from contextlib import suppress
from typing import Any

import fastavro

from almanac import formats
from almanac.record import Headers, Named, Record

SCHEMA = formats.schema("sky-avro")


def _parsed(*names: str) -> Any:
    schema = json.loads(SCHEMA)
    schema["fields"] = [field for field in schema["fields"] if field["name"] in names]
    return fastavro.parse_schema(schema)


_HEAD = _parsed("time", "topic", "key")
_TAILS = (_parsed("value", "headers"), _parsed("value"))  # the newer one first: its beginning is the older one


class SkyAvro:
    """Fields `time` (ms), `topic`, `key`, `value`, `headers`; an older shape has no headers."""

    name = "sky-avro"

    def plan(self, record: Record, named: Named) -> tuple[int, str]:
        """See formats.Format. Whether the value can be read at all shows when it is read."""
        due, target, *_ = self.decode(record, named)
        return due, target

    def decode(self, record: Record, named: Named) -> formats.Schedule:
        """See formats.Format."""
        if not record.key:
            raise formats.no_id()
        said = _read(record.value or b"")
        headers: Headers = [(formats.header_name(name), value) for name, value in said.get("headers", {}).items()]
        due = formats.due_ms(max(0, said["time"]), "field time")  # before 1970 is the past, too: at once
        target = formats.target(said["topic"].encode(), "field topic")
        return formats.Schedule(due, target, said["key"], -1, said["value"], headers, None, form=self)

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
    file = io.BytesIO(value)
    # Whatever goes wrong: the bytes lead fastavro to EOFError, IndexError, UnicodeDecodeError, OverflowError ...
    with suppress(Exception):
        head: Any = fastavro.schemaless_reader(file, _HEAD, None)
        here = file.tell()
        if value[here] & 1:  # the branch of `value` has a negative number: fastavro would count from the end
            raise IndexError
        for shape in _TAILS:
            file.seek(here)
            with suppress(Exception):
                tail: Any = fastavro.schemaless_reader(file, shape, None)
                if file.tell() == len(value):
                    return {**head, **tail}
    raise formats.Invalid(f"the value is not a schedule in Avro: {len(value)} bytes, {formats.shown(value)}")
