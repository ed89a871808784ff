"""`karafka`: the payload is the value; time, target and the record's own kind stand in the headers."""

import binascii
from functools import lru_cache

from almanac import formats
from almanac.record import Headers, Record, first

VERSION, TYPE = "schedule_schema_version", "schedule_source_type"
EPOCH, TOPIC = "schedule_target_epoch", "schedule_target_topic"
KEY, PARTITION, PARTITION_KEY = "schedule_target_key", "schedule_target_partition", "schedule_target_partition_key"
SOURCE_OFFSET = "schedule_source_offset"
KNOWN = (1, 0, 0)  # the newest schema that is understood here
UNDERSTOOD = f"this version of Almanac understands up to {'.'.join(map(str, KNOWN))}: upgrade it"


_WHEN, _WHERE = f"header {EPOCH}", f"header {TOPIC}"


class Karafka:
    """A null payload is allowed: what a record is, its `schedule_source_type` says."""

    name = "karafka"

    def decode(self, record: Record) -> formats.Schedule:
        """See formats.Format."""
        formats.check_id(record)
        named = first(record.headers)
        _check_version(named.get(VERSION), KNOWN)
        if named.get(TYPE) != b"schedule":
            raise formats.Invalid(f"header {TYPE} of a record with a payload is not schedule: {_text(named, TYPE)}")
        due = formats.due_ms(1000 * formats.number(named, EPOCH), _WHEN)
        if TOPIC not in named:
            raise formats.Invalid(f"header {TOPIC} is missing; it names the topic to deliver to")
        target = formats.target(named[TOPIC], _WHERE)
        partition, by = -1, named.get(PARTITION_KEY)
        if named.get(PARTITION) is not None:
            partition = formats.number(named, PARTITION)
            if partition > formats.LAST_PARTITION:
                raise formats.Invalid(f"header {PARTITION} is no partition: {partition}")
        out: Headers = [
            *record.headers,
            ("schedule_source_topic", record.topic.encode()),
            ("schedule_source_partition", b"%d" % record.partition),
            (SOURCE_OFFSET, b"%d" % record.offset),
            ("schedule_source_key", record.key),
        ]
        hashed = None if partition >= 0 or by is None else binascii.crc32(by)
        return formats.Schedule(due, target, named.get(KEY), partition, record.value, out, None, hashed, self)

    def speaks(self, record: Record) -> bool:
        """See formats.Format."""
        return first(record.headers).get(TYPE) == b"schedule"

    def acknowledged(self, record: Record) -> int | None:
        """See formats.Format."""
        named = first(record.headers)
        if named.get(TYPE) == b"tombstone" and SOURCE_OFFSET in named:
            return formats.number(named, SOURCE_OFFSET, digits=18)
        return None

    def tombstone(self, record: Record) -> Headers:
        """See formats.Format."""
        kept = [header for header in record.headers if header[0] not in (TYPE, SOURCE_OFFSET)]
        return [*kept, (TYPE, b"tombstone"), (SOURCE_OFFSET, b"%d" % record.offset)]

    def null(self) -> Headers:
        """Its own program fails on a record without a schema version, and takes what is no schedule for a cancel."""
        return [(VERSION, b"1.0.0"), (TYPE, b"cancel")]


@lru_cache(maxsize=64)  # of those that pass
def _check_version(version: bytes | None, known: tuple[int, ...]) -> None:
    text = (version or b"").decode("ascii", "replace")
    parts = text.split(".")
    if len(parts) != len(known) or not all(part.isdigit() and len(part) < 10 for part in parts):
        raise formats.Invalid(f"header {VERSION} is not a version like 1.0.0: {formats.shown(version)}")
    if tuple(map(int, parts)) > known:
        raise formats.Incompatible(f"header {VERSION} is {text}; {UNDERSTOOD}")


def _text(named: dict[str, bytes | None], name: str) -> str:
    return formats.shown(named.get(name))
