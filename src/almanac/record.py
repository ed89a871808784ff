"""A record as it stands in a schedules topic: plain data, whatever client read it."""

from typing import NamedTuple

Headers = list[tuple[str, bytes | None]]


class Record(NamedTuple):
    """One record of a schedules topic."""

    topic: str
    partition: int
    offset: int
    timestamp: int  # epoch ms
    key: bytes | None
    value: bytes | None
    headers: Headers


def first(headers: Headers) -> dict[str, bytes | None]:
    """The headers by name; of several with one name the first counts."""
    return dict(headers[::-1])
