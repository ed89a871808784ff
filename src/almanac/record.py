"""A record as it stands in a schedules topic: plain data, whatever client read it."""

from collections.abc import Sequence
from typing import NamedTuple

Headers = list[tuple[str, bytes | None]]
UNREADABLE = "\ufffd"  # in a header's name: it was not UTF-8. (Kafka's client then gives no headers at all.)
Named = dict[str, bytes | None]  # headers by their names, see `first`


class Record(NamedTuple):
    """One record of a schedules topic."""

    topic: str
    partition: int
    offset: int
    timestamp: int  # epoch ms
    key: bytes | None
    value: bytes | None
    headers: Headers


def first(headers: Sequence[tuple[str, bytes | None]]) -> Named:
    """The headers by name; of several with one name the first counts."""
    return dict(headers[::-1])
