"""The seam of the wire formats: one module each, all of the same shape.

A format says what a record with a value means (`decode`), and what leaves for the target (in the `Schedule` it
returns). What is common to all formats (null values, our own headers, versions) is read in `words` before that.
"""

import re
from functools import lru_cache
from typing import NamedTuple, Protocol

from almanac.record import Headers, Record

# Spark's timestamps and ISO dates end with the year 9999: a later due time is garbage in every format.
LAST_DUE = 253_402_300_799_999


class Invalid(ValueError):
    """The record is not a schedule; the message says which part of it is wrong and what was there."""


class Schedule(NamedTuple):
    """What a format reads out of a record: when, and exactly what reaches the target."""

    due: int  # epoch ms
    target: str
    key: bytes | None
    partition: int  # -1: left to the partitioner
    value: bytes | None
    headers: Headers
    grace: int | None  # ms that due may lie before the record's timestamp; None: never outdated


class Format(Protocol):
    """A wire format."""

    name: str

    def decode(self, record: Record) -> Schedule:
        """The schedule that a record (with a value) stands for. Raises Invalid."""

    def tombstone(self, record: Record) -> Headers:
        """The headers that the format's own users expect on the tombstone of a fired schedule."""


@lru_cache(maxsize=4096)
def legal_topic(name: bytes) -> str | None:
    """The topic's name as text if Kafka would accept it."""
    if re.fullmatch(rb"[a-zA-Z0-9._-]{1,249}", name) and name not in (b".", b".."):
        return name.decode("ascii")
    return None


def named(name: str, grace: int = 0) -> Format:
    """The format of that name; `grace` in ms."""
    from almanac.formats import etf1

    if name in ("auto", "etf1"):
        return etf1.Etf1(grace)
    raise LookupError(f"unknown format {name!r}; known: {', '.join(NAMES)}")


NAMES = ("auto", "etf1")
