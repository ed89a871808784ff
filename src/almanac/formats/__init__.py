"""The seam of the wire formats: one module each, all of the same shape.

A format says what a record with a value means (`decode`), and what leaves for the target (in the `Schedule` it
returns). What is common to all formats (null values, our own headers, versions) is read in `words` before that.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from importlib import resources
from typing import NamedTuple, Protocol

from almanac.record import Headers, Named, Record, first

# Spark's timestamps and ISO dates end with the year 9999: a later due time is garbage in every format.
LAST_DUE = 253_402_300_799_999
LAST_PARTITION = 2**31 - 1


class Invalid(ValueError):
    """The record is not a schedule; the message says which part of it is wrong and what was there."""


class Incompatible(Exception):
    """The record is newer than this program: nothing after it can be judged. Its partition halts."""


class Schedule(NamedTuple):
    """What a format reads out of a record: when, and exactly what reaches the target."""

    due: int  # epoch ms
    target: str
    key: bytes | None
    partition: int  # -1: left to the partitioner
    value: bytes | None
    headers: Headers
    grace: int | None  # ms that due may lie before the record's timestamp; None: the format knows no outdated ones
    hashed: int | None = None  # the partition is this modulo the target's number of partitions
    form: "Format | None" = None  # whose program expects headers of its own on the tombstone


class Format(Protocol):
    """A wire format. `named` are a record's headers by name."""

    name: str

    def plan(self, record: Record, named: Named) -> tuple[int, str]:
        """When the record's schedule is due, and its target topic. Raises Invalid, Incompatible."""

    def decode(self, record: Record, named: Named) -> Schedule:
        """The schedule that a record stands for. Raises Invalid, Incompatible."""

    def speaks(self, named: Named) -> bool:
        """Is this null-valued record a schedule all the same? Otherwise it cancels or acknowledges."""

    def acknowledged(self, named: Named) -> int | None:
        """The version that this null-valued record of the format's own program acknowledges; None: it cancels."""

    def tombstone(self, record: Record) -> Headers:
        """The headers that the format's own users expect on the tombstone of a fired schedule."""

    def null(self) -> Headers:
        """The headers without which the format's own program could not read a null-valued record."""


class Brief:
    """A format for who keeps schedules and delivers none: checked as ever, but only due time and target are told."""

    def __init__(self, form: Format) -> None:
        self.name, self.plan = form.name, form.plan
        self.speaks, self.acknowledged = form.speaks, form.acknowledged
        self.tombstone, self.null = form.tombstone, form.null

    def decode(self, record: Record, named: Named) -> Schedule:
        """See Format."""
        due, target = self.plan(record, named)
        return _new(Schedule, (due, target, None, -1, None, [], None, None, None))


_new = tuple.__new__  # of every record there is: what a named tuple does on top of it would be felt


@lru_cache(maxsize=4096)
def legal_topic(name: bytes) -> str | None:
    """The topic's name as text if Kafka would accept it."""
    if re.fullmatch(rb"[a-zA-Z0-9._-]{1,249}", name) and name not in (b".", b".."):
        return name.decode("ascii")
    return None


def schedule(record: Record, form: Format) -> Schedule:
    """The schedule of a record that is known to be one. Raises Invalid, Incompatible."""
    return form.decode(record, first(record.headers))


# What every format checks alike.


def no_id() -> Invalid:
    """What is wrong with a record without an id."""
    return Invalid("the id (the record's key) is empty; each schedule needs one")


def due_ms(due: int, what: str) -> int:
    """The due time if it is one. `what` names where it was found."""
    if due < 0:
        raise Invalid(f"{what} is negative: {due}")
    if due > LAST_DUE:
        raise Invalid(f"{what} lies after the year 9999: {due}")
    return due


def target(name: bytes | None, what: str) -> str:
    """The target topic if its name is legal."""
    topic = legal_topic(name or b"")
    if topic is None:
        raise Invalid(f"{what} is not a legal topic name: {shown(name)}")
    return topic


def number(named: Named, name: str, digits: int = 12) -> int:
    """A header that holds a whole number."""
    if name not in named:
        raise Invalid(f"header {name} is missing")
    text = named[name]
    # 12 digits of seconds reach beyond the last year; the bound keeps int() of a megabyte of digits away
    if not text or not text.isdigit() or len(text) > digits:
        raise Invalid(f"header {name} is not a whole, positive number: {shown(text)}")
    return int(text)


def header_name(name: str) -> str:
    """The name if Kafka's client can write it: a lone surrogate (JSON may hold one) kills the process that tries."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise Invalid(f"the name of a header is not UTF-8: {name[:80]!a}") from None
    if "\0" in name:
        raise Invalid(f"the name of a header holds a null character: {name[:80]!a}")
    return name


def reason(error: Exception) -> str:
    """What was wrong, in a text that can be written anywhere."""
    return (str(error) or type(error).__name__).encode(errors="backslashreplace").decode()


def shown(value: bytes | None) -> str:
    """Bytes as an error shows them."""
    return "null" if value is None else repr(value[:80].decode("utf-8", "backslashreplace"))


def named(name: str, grace: int = 0) -> Format:
    """The format of that name; `grace` in ms."""
    from almanac.formats import auto, etf1, karafka, sky_avro, sky_json

    makers: dict[str, Callable[[], Format]] = {
        "auto": lambda: auto.Auto(grace),
        "etf1": lambda: etf1.Etf1(grace),
        "karafka": karafka.Karafka,
        "sky-avro": sky_avro.SkyAvro,
        "sky-json": sky_json.SkyJson,
    }
    if name not in makers:
        raise LookupError(f"unknown format {name!r}; known: {', '.join(NAMES)}")
    return makers[name]()


NAMES = ("auto", "etf1", "karafka", "sky-avro", "sky-json")
NATIVE = ("auto", "etf1")
BRIDGED = "timers"  # its topics are no schedules topics: see `bridge`
SCHEMAS = {"sky-avro": "sky_avro.avsc", "timers": "timers.proto"}  # files beside this one


def schema(name: str) -> str:
    """What the format's schema file says; of those in SCHEMAS."""
    return (resources.files("almanac.formats") / SCHEMAS[name]).read_text(encoding="utf-8")
