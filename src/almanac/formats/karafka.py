"""`karafka`: the payload is the value; time, target and the record's own kind stand in the headers."""

import binascii
from functools import lru_cache

from almanac import formats
from almanac.record import Headers, Named, Record

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

    def plan(self, record: Record, named: Named) -> tuple[int, str]:
        """See formats.Format."""
        if not record.key:
            raise formats.no_id()
        _check_version(named.get(VERSION), KNOWN)
        if named.get(TYPE) != b"schedule":
            raise formats.Invalid(f"header {TYPE} of a record with a payload is not schedule: {_text(named, TYPE)}")
        due = formats.due_ms(1000 * formats.number(named, EPOCH), _WHEN)
        if TOPIC not in named:
            raise formats.Invalid(f"header {TOPIC} is missing; it names the topic to deliver to")
        target = formats.target(named[TOPIC], _WHERE)
        if PARTITION in named:
            _partition(named)
        return due, target

    def decode(self, record: Record, named: Named) -> formats.Schedule:
        """See formats.Format."""
        due, target = self.plan(record, named)
        partition, by = _partition(named), named.get(PARTITION_KEY)
        out: Headers = [
            *record.headers,
            ("schedule_source_topic", record.topic.encode()),
            ("schedule_source_partition", b"%d" % record.partition),
            (SOURCE_OFFSET, b"%d" % record.offset),
            ("schedule_source_key", record.key),
        ]
        hashed = None if partition >= 0 or by is None else binascii.crc32(by)
        return formats.Schedule(due, target, named.get(KEY), partition, record.value, out, None, hashed, self)

    def speaks(self, named: Named) -> bool:
        """See formats.Format."""
        return named.get(TYPE) == b"schedule"

    def acknowledged(self, named: Named) -> int | None:
        """See formats.Format."""
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


def _partition(named: Named) -> int:
    if named.get(PARTITION) is None:
        return -1
    partition = formats.number(named, PARTITION)
    if partition > formats.LAST_PARTITION:
        raise formats.Invalid(f"header {PARTITION} is no partition: {partition}")
    return partition


def _text(named: Named, name: str) -> str:
    return formats.shown(named.get(name))
