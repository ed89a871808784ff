"""`karafka`: the payload is the value; time, target and the record's own kind stand in the headers."""

import binascii
import re
from contextlib import suppress
from functools import lru_cache

from almanac import formats
from almanac.record import Headers, Named, Record

VERSION, TYPE = "schedule_schema_version", "schedule_source_type"
EPOCH, TOPIC = "schedule_target_epoch", "schedule_target_topic"
KEY, PARTITION, PARTITION_KEY = "schedule_target_key", "schedule_target_partition", "schedule_target_partition_key"
SOURCE_OFFSET = "schedule_source_offset"
KNOWN = (1, 0, 0)  # the newest schema that is understood here
LONGEST = 40  # bytes of a version
UNDERSTOOD = f"this version of Almanac understands up to {'.'.join(map(str, KNOWN))}: upgrade it"


_WHEN, _WHERE = f"header {EPOCH}", f"header {TOPIC}"


class Karafka:
    """A null payload is allowed: what a record is, its `schedule_source_type` says."""

    name = "karafka"

    def plan(self, record: Record, named: Named) -> tuple[int, str]:
        """See formats.Format."""
        _check_version(named.get(VERSION))  # first: what else a newer record must have is not known
        if not record.key:
            raise formats.no_id()
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
        """See formats.Format. Raises Incompatible: what a newer null record says is not known, either."""
        with suppress(formats.Invalid):  # a null record without a version cancels, too
            _check_version(named.get(VERSION))
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


def _check_version(version: bytes | None) -> None:
    numbers = _numbers(version) if version and len(version) <= LONGEST else ()
    if not numbers:
        raise formats.Invalid(f"header {VERSION} is not a version like 1.0.0: {formats.shown(version)}")
    if numbers > KNOWN:
        raise formats.Incompatible(f"header {VERSION} is {formats.shown(version)}; {UNDERSTOOD}")


@lru_cache(maxsize=64)
def _numbers(version: bytes) -> tuple[int, ...]:
    """Those of a version, to be compared; none if it is none. `1.1`, `2.0.0.rc1`, `1.0.0-next` are newer than 1.0.0."""
    match = re.fullmatch(rb"(\d+(?:\.\d+)*)((?:[-+]|\.(?=[A-Za-z]))[0-9A-Za-z.+-]+)?", version)
    if match is None:
        return ()
    numbers = [int(part) for part in match[1].split(b".")]
    while len(numbers) > len(KNOWN) and not numbers[-1]:
        numbers.pop()
    return (*numbers, *[0] * (len(KNOWN) - len(numbers)), *([1] if match[2] else []))


def _partition(named: Named) -> int:
    if named.get(PARTITION) in (None, b"-1"):  # librdkafka's clients say -1 for any
        return -1
    partition = formats.number(named, PARTITION)
    if partition > formats.LAST_PARTITION:
        raise formats.Invalid(f"header {PARTITION} is no partition: {partition}")
    return partition


def _text(named: Named, name: str) -> str:
    return formats.shown(named.get(name))
