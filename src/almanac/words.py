"""What one record of a schedules topic says, the same for every format (rules 3, 4 and 5).

    S  a user's schedule          Word,  version = its offset
    R  our repeat of a schedule   Word,  version = the one repeated, `ours`
    C  a user's cancel            Kill,  of every version before it
    T  our tombstone              Kill,  of versions up to the acknowledged one, `ours`
    X  our repeat of a cancel     Kill,  of versions up to the one repeated, `ours`
    D  our disposal of garbage    Disposal
    G  anything else              Garbage: not a word, it neither updates nor cancels
    H  a record of the future     Halt: the partition is read no further until an upgrade understands it

A record of ours that came from another topic (mirrored, or the topic was made anew) carries another topic id. Its
offsets mean nothing here, so it counts as what it would be without our headers.
"""

from typing import NamedTuple

from almanac import formats
from almanac.record import UNREADABLE, Headers, Named, Record, first

ACKS, VERSION, DISPOSES = "almanac-acks", "almanac-version", "almanac-disposes"
TOPIC_ID, TIMESTAMP = "almanac-topic-id", "almanac-timestamp"
REASON = "almanac-reason"  # of a dead letter, and of its tombstone: why it was not fired
NULL = "almanac-null"  # the empty value stands for a null one: as a null value the cleaner would take the schedule away
CONTROL = frozenset((ACKS, VERSION, DISPOSES, TOPIC_ID, TIMESTAMP, NULL))


class Word(NamedTuple):
    """A schedule, said or repeated."""

    version: int
    record: Record  # as the user wrote it: a repeat is turned back into its original
    schedule: formats.Schedule
    ours: bool


class Kill(NamedTuple):
    """Everything up to `version` is over."""

    version: int
    ours: bool


class Disposal(NamedTuple):
    """The garbage at offset `of` is in the dead letters."""

    of: int


class Garbage(NamedTuple):
    """A record that cannot be read, and why."""

    record: Record
    reason: str


class Halt(NamedTuple):
    """A record that only a newer version of this program understands, and why."""

    record: Record
    reason: str


Said = Word | Kill | Disposal | Garbage | Halt


def read(record: Record, form: formats.Format, topic_id: str) -> Said:
    """What the record says."""
    try:
        if record.value is None and len(record.headers) == 2:
            # by far the most common record of ours: a wheel reads all its tombstones back
            (name, acks), (_, whose) = record.headers
            if name == ACKS and acks and acks.isdigit() and len(acks) <= 18 and whose == topic_id.encode():
                return Kill(min(int(acks), record.offset), True)
        named = first(record.headers)
        if CONTROL.isdisjoint(named) and UNREADABLE not in "".join(named):
            return _read_theirs(record, form, named)
        return _read_ours(record, form, topic_id, named)
    except formats.Incompatible as error:
        return Halt(record, formats.reason(error))
    except Exception as error:  # rule 5: whatever goes wrong with one record makes that record garbage, never a crash
        return Garbage(record, formats.reason(error))


def _read_theirs(record: Record, form: formats.Format, named: Named) -> Said:
    if record.value is not None or form.speaks(named):
        return _new(Word, (record.offset, record, form.decode(record, named), False))
    acks = form.acknowledged(named)
    return Kill(record.offset if acks is None else min(acks, record.offset), False)


def _read_ours(record: Record, form: formats.Format, topic_id: str, named: Named) -> Said:
    if any(UNREADABLE in name for name in named):
        raise formats.Invalid("a header's name is not UTF-8")
    foreign = named.get(TOPIC_ID) not in (None, topic_id.encode())
    if record.value is None and not foreign:
        if ACKS in named:
            return Kill(min(_number(named, ACKS), record.offset), True)
        if DISPOSES in named:
            return Disposal(_number(named, DISPOSES))
        if VERSION in named and not form.speaks(named):
            return Kill(min(_number(named, VERSION), record.offset), True)
    if record.value is None and ACKS in named:  # of another topic, mirrored: no version of this one (rule 3)
        return Kill(record.offset, False)
    original = record._replace(headers=stripped(record.headers))
    theirs = {name: value for name, value in named.items() if name not in CONTROL}
    if NULL in named and record.value == b"" and form.speaks(theirs):
        original = original._replace(value=None)
    if foreign or VERSION not in named:
        return _read_theirs(original, form, theirs)
    version = min(_number(named, VERSION), record.offset)
    original = original._replace(offset=version, timestamp=_stamp(named))
    return Word(version, original, form.decode(original, theirs), True)


_new = tuple.__new__  # of every record there is: what a named tuple does on top of it would be felt


def acknowledges(record: Record) -> bool:
    """Of a Kill that is ours: does it say that something fired (T), or does it repeat a cancel (X)?"""
    return any(name == ACKS for name, _ in record.headers)


def reason(record: Record) -> str | None:
    """Of our tombstone: why it was not fired, if it was not."""
    if len(record.headers) <= 2:
        return None  # what acknowledges, and of which topic: there is no third
    text = first(record.headers).get(REASON)
    return None if text is None else text.decode(errors="replace")


def stripped(headers: Headers) -> Headers:
    """The headers without the ones that are ours to set."""
    return [header for header in headers if header[0] not in CONTROL]


def _number(named: Named, name: str) -> int:
    text = named.get(name)
    if not text or not text.isdigit() or len(text) > 18:
        raise formats.Invalid(f"header {name} is not a whole number: {formats.shown(text)}")
    return int(text)


def _stamp(named: Named) -> int:
    text = named.get(TIMESTAMP) or b""
    if not text.startswith(b"-"):
        return _number(named, TIMESTAMP)
    return -_number({TIMESTAMP: text[1:]}, TIMESTAMP)  # Kafka takes records without a time stamp, too: -1


# What we write into a schedules topic, next to how it is read.


def acknowledgement(version: int, topic_id: str) -> Headers:
    """Rule 3: our tombstone speaks of one version of one topic."""
    return [(ACKS, b"%d" % version), signature(topic_id)]


def signature(topic_id: str) -> tuple[str, bytes | None]:
    """Rule 3: what we say of versions counts in one topic only."""
    return TOPIC_ID, topic_id.encode()


def disposal(offset: int, topic_id: str) -> Headers:
    """Rule 5: it speaks for the garbage at that offset only."""
    return [(DISPOSES, b"%d" % offset), signature(topic_id)]


def repeat(version: int, timestamp: int | None, topic_id: str) -> Headers:
    """Rule 4: counts as the version it repeats; `timestamp` of the original, None for a cancel."""
    headers: Headers = [(VERSION, b"%d" % version), signature(topic_id)]
    return headers if timestamp is None else [*headers, (TIMESTAMP, b"%d" % timestamp)]
