"""`sky-avro`: the whole schedule is the record's value, in Avro's raw binary form (no registry framing)."""

import io
import json
from typing import Any

import fastavro

from almanac import formats
from almanac.record import Headers, Named, Record

SCHEMA = formats.schema("sky-avro")


def _shapes() -> list[tuple[int, Any]]:
    """What a value may be, the most common first; the older ones have no headers.

    Avro writes the union of `value` as a branch's number and what it stands for. Read as two fields, as fastavro itself
    takes negative numbers, too, and counts them from the end.
    """
    schema = json.loads(SCHEMA)
    fields = {field["name"]: field for field in schema["fields"]}
    head = [fields["time"], fields["topic"], fields["key"], {"name": "branch", "type": "long"}]
    values = [(1, {"name": "value", "type": "bytes"}), (0, {"name": "value", "type": "null"})]
    return [
        (branch, fastavro.parse_schema({**schema, "fields": [*head, value, *more]}))
        for more in ([fields["headers"]], []) for branch, value in values
    ]  # fmt: skip


_SHAPES = _shapes()


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
    for branch, shape in _SHAPES:
        file = io.BytesIO(value)
        try:
            said: Any = fastavro.schemaless_reader(file, shape, None)
        except Exception:  # wherever the bytes lead fastavro: EOFError, IndexError, UnicodeDecodeError, OverflowError
            continue
        if said["branch"] == branch and file.tell() == len(value):
            return dict(said)
    raise formats.Invalid(f"the value is not a schedule in Avro: {len(value)} bytes, {formats.shown(value)}")
