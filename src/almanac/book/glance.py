"""Rows of the book without their payloads: what the live tail is laid over where many are counted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from almanac.book import read

_COLUMNS = "topic, partition, key, version, due, target"


class Glance(NamedTuple):
    """A pending schedule, what is needed to count it."""

    topic: str
    partition: int
    id: bytes
    version: int
    due: int  # epoch ms
    target: str


def due(book: read.Reader, due_from: int, due_to: int, most: int) -> list[Glance]:
    """The first ones that are due within that time, in order; the second moment is not included."""
    # `wake` is the due time, or -1 where a row is adrift: by it the files of later times are left alone.
    span = f"wake < {int(due_to)} AND due >= {int(due_from)} AND due < {int(due_to)}"
    return _glances(book, f"{span} ORDER BY due LIMIT {int(most)}")


def of(book: read.Reader, ids: Iterable[bytes]) -> list[Glance]:
    """Those of these ids, in whatever topic and partition."""
    wanted = ", ".join(f"decode('{each.hex()}', 'hex')" for each in ids)
    return _glances(book, f"key IN ({wanted})") if wanted else []


def _glances(book: read.Reader, where: str) -> list[Glance]:
    columns = book.columns(f"SELECT {_COLUMNS} FROM book WHERE pending AND {where}")
    return list(map(Glance._make, zip(*columns, strict=True)))
