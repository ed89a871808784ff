"""Rows of the book without their payloads, and how many there are: what the live tail is laid over for counts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from almanac.book import read, search

_COLUMNS = "topic, partition, key, version, due, target"


class Glance(NamedTuple):
    """A pending schedule, what is needed to count it."""

    topic: str
    partition: int
    id: bytes
    version: int
    due: int  # epoch ms
    target: str


def due(book: read.Reader, due_from: int, due_to: int) -> list[Glance]:
    """All that are due within that time, the second moment not included."""
    # `wake` is the due time, or -1 where a row is adrift: by it the files of later times are left alone.
    return _glances(book, f"wake < {int(due_to)} AND due >= {int(due_from)} AND due < {int(due_to)}")


def of(book: read.Reader, ids: Iterable[bytes]) -> list[Glance]:
    """Those of these ids, in whatever topic and partition."""
    wanted = ", ".join(f"decode('{each.hex()}', 'hex')" for each in ids)
    return _glances(book, f"key IN ({wanted})") if wanted else []


def _glances(book: read.Reader, where: str) -> list[Glance]:
    columns = book.columns(f"SELECT {_COLUMNS} FROM book WHERE pending AND {where}")
    return list(map(Glance._make, zip(*columns, strict=True)))


def count(
    book: read.Reader,
    *,
    id_part: bytes | None = None,
    target: str | None = None,
    topic: str | None = None,
    due_from: int | None = None,
    due_to: int | None = None,
) -> int:
    """How many of the book match."""
    where = [
        "pending",
        *search.matches("key", id_part),
        *search.equals(target=target, topic=topic),
        *search.between("due", due_from, due_to),
    ]
    ((number,),) = book.columns(f"SELECT count(*) AS n FROM book WHERE {' AND '.join(where)}")
    return int(number)

