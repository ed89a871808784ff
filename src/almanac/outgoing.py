"""The records that a fire, a dead letter or a repeat consists of (WIRE: out). Pure: each returns what to send."""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from almanac import words
from almanac.ledger import Entry, Ledger
from almanac.record import Headers, Record


class Outgoing(NamedTuple):
    """One record to be written."""

    topic: str
    partition: int  # -1: left to the partitioner
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int = 0  # epoch ms; 0: when it is written


_new = tuple.__new__  # three records a fire: what a named tuple does on top of it would be felt


def target(entry: Entry, partitions: Callable[[str], int], timestamp: int = 0) -> Outgoing:
    """What reaches the target topic; `partitions` says how many a topic has."""
    schedule = entry.schedule
    partition = schedule.partition if schedule.hashed is None else schedule.hashed % partitions(schedule.target)
    return _new(Outgoing, (schedule.target, partition, schedule.key, schedule.value, schedule.headers, timestamp))


def history(entry: Entry, topic: str, stub: bool = False) -> Outgoing:
    """The copy for audits: the target's record, and where it came from. A stub (rule 9) holds coordinates only."""
    schedule, id = entry.schedule, entry.record.key  # noqa: A001 (what its users call it)
    source = ("almanac-source", b"%s%d" % (entry.ledger.place, entry.version))
    if stub:
        notes: Headers = [
            source, _named_target(schedule.target), _named_due(schedule.due), ("almanac-id", (id or b"")[:1024]),
            ("almanac-stub", b"the copy did not fit; the target has it"),
        ]  # fmt: skip
        return Outgoing(topic, -1, schedule.key and schedule.key[:1024], None, notes)
    headers = [
        *schedule.headers, ("almanac-id", id), source, _named_target(schedule.target), _named_due(schedule.due)
    ]  # fmt: skip
    return _new(Outgoing, (topic, -1, schedule.key, schedule.value, headers, 0))


# Thousands share their target and their second.


@lru_cache(maxsize=256)
def _named_target(topic: str) -> tuple[str, bytes | None]:
    return "almanac-target", topic.encode()


@lru_cache(maxsize=4)  # of more, each would hold a piece of memory that could be given back else
def _named_due(due: int) -> tuple[str, bytes | None]:
    return "almanac-due-ms", b"%d" % due


def tombstone(entry: Entry, reason: str | None = None) -> Outgoing:
    """Rule 2: to the partition the schedule came from; rule 3: it acknowledges one version.

    `reason`: it was not fired but buried.
    """
    ledger, record, form = entry.ledger, entry.record, entry.schedule.form
    headers: Headers = [(words.ACKS, b"%d" % entry.version), ledger.signature]
    if form is not None:
        headers = form.tombstone(record) + headers
    if reason is not None:
        headers.append((words.REASON, reason.encode()))
    return _new(Outgoing, (ledger.topic, ledger.partition, record.key, None, headers, 0))


def disposal(ledger: Ledger, record: Record) -> Outgoing:
    """Rule 5: a tombstone that speaks for that garbage only.

    Garbage may have no key (from a time when its topic was not compacted); what a compacted topic takes has one.
    """
    headers = ledger.format.null() + words.disposal(record.offset, ledger.topic_id)
    return Outgoing(record.topic, record.partition, record.key or b"", None, headers)


def repeat(ledger: Ledger, key: bytes, what: Entry | int) -> Outgoing:
    """Rule 4: the winner once more, as the version it is."""
    if isinstance(what, int):
        cancel = ledger.format.null() + words.repeat(what, None, ledger.topic_id)
        return Outgoing(ledger.topic, ledger.partition, key, None, cancel)
    record = what.record
    headers = record.headers + words.repeat(what.version, record.timestamp, ledger.topic_id)
    if record.value is None:
        return Outgoing(ledger.topic, ledger.partition, key, b"", [*headers, (words.NULL, b"true")])
    return Outgoing(ledger.topic, ledger.partition, key, record.value, headers)


def dead_letter(record: Record, version: int, reason: str, detail: str, topic: str, stub: bool = False) -> Outgoing:
    """The record as it was, and why it was not delivered. A stub (rule 9) holds coordinates and reason only."""
    notes: Headers = [
        (words.REASON, reason.encode()),
        ("almanac-detail", detail.encode()),
        ("almanac-source", b"%s/%d/%d" % (record.topic.encode(), record.partition, version)),
        ("almanac-source-timestamp", b"%d" % record.timestamp),
    ]
    if stub:
        notes.append(("almanac-stub", b"the record did not fit; read it at almanac-source while the log still has it"))
        return Outgoing(topic, -1, record.key[:1024] if record.key else record.key, None, notes)
    return Outgoing(topic, -1, record.key, record.value, record.headers + notes)
