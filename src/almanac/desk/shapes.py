"""What is asked of the desk and what it answers: plain data. Times are epoch ms, ids and payloads bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from almanac import board, controls
from almanac.record import Headers

T = TypeVar("T")

Sort = Literal["due", "-due", "id"]
State = Literal["waiting", "overdue"]
Step = Literal["hour", "day"]
Answer = Literal["cancelled", "already-fired", "unknown", "not-found"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A pending schedule. Its identity is (topic, partition, id)."""

    id: bytes
    topic: str  # the schedules topic that it stands in
    partition: int
    version: int  # the offset of the record that counts
    due: int
    timestamp: int  # when it was written
    target: str
    target_key: bytes | None
    value: bytes | None  # null: a karafka schedule that delivers one. With HIDE_PAYLOADS: null, see `hidden`
    headers: Headers  # as its user wrote them, those that say when and where to among them. Hidden: names only
    state: State  # overdue: its time has come, and it still waits
    hidden: bool = False  # HIDE_PAYLOADS: neither value nor values of headers are shown
    size: int = 0  # bytes of the value


@dataclass(frozen=True, kw_only=True)
class Query:
    """Which pending schedules."""

    id_part: str | None = None  # anywhere in the id, upper and lower case differ
    target: str | None = None
    topic: str | None = None
    due_from: int | None = None  # from then on
    due_to: int | None = None  # before then
    state: State | None = None
    sort: Sort = "due"
    limit: int = 50
    cursor: str | None = None  # of the page before, with the same filters and the same order
    total: bool = False  # also count all that match, exactly


@dataclass(frozen=True, kw_only=True)
class Found(Generic[T]):
    """A page of an answer."""

    rows: list[T]
    cursor: str | None  # for the next page; None: this was the last
    total: int | None = None  # where it was asked for


@dataclass(frozen=True, kw_only=True)
class New:
    """A schedule to be made."""

    target: str
    due: int
    value: bytes
    id: bytes | None = None  # None: a new one is made up
    target_key: bytes | None = None
    headers: Headers = field(default_factory=list)
    topic: str | None = None  # the schedules topic; None: the first of the settings
    if_absent: bool = False  # raise `Exists` if the id is pending (If-None-Match: *)


@dataclass(frozen=True, kw_only=True)
class Change:
    """What is to be different about a pending schedule; None leaves it as it is."""

    due: int | None = None
    target: str | None = None
    target_key: bytes | None = None
    value: bytes | None = None
    headers: Headers | None = None  # in place of all the user's own


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a cancel.

    cancelled       it will not be delivered, and never was: the wheel has passed the cancel
    already-fired   it was delivered before the cancel
    unknown         no wheel said so in time. The cancel is in the log (`offset`) and will be heeded if it came in time
    not-found       nothing is pending under that id; nothing was written
    """

    answer: Answer
    id: bytes
    topic: str | None = None
    partition: int | None = None
    version: int | None = None  # of the schedule that was meant
    offset: int | None = None  # of the cancel
    detail: str = ""  # a sentence for people
    took: int = 0  # ms


@dataclass(frozen=True, kw_only=True)
class Firing:
    """What became of a fire-now.

    fired       it was delivered
    buried      it became a dead letter, `detail` says why
    waiting     it is in the log with due = now, and no wheel has fired it within the time-out (paused? no scheduler?)
    """

    answer: Literal["fired", "buried", "waiting"]
    row: Row
    fired_at: int | None = None
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Count:
    """How many are due (or fired) for a target within an hour or a day (UTC)."""

    start: int  # epoch ms
    target: str
    number: int


@dataclass(frozen=True, kw_only=True)
class FiredQuery:
    """Which of what fired, the newest first."""

    id_part: str | None = None
    target: str | None = None
    since: int | None = None  # fired at or after
    until: int | None = None  # fired before
    outcome: str | None = None  # fired, or a dead letter's reason
    limit: int = 50
    cursor: str | None = None
    total: bool = False


@dataclass(frozen=True, kw_only=True)
class FiredRow:
    """A schedule that is over: delivered, or buried."""

    id: bytes
    topic: str
    partition: int
    version: int
    target: str | None  # None: not known any more
    due: int | None
    fired_at: int
    lateness: int | None  # ms
    outcome: str  # fired, or the dead letter's reason


@dataclass(frozen=True, kw_only=True)
class DeadQuery:
    """Which dead letters, the newest first."""

    id_part: str | None = None
    reason: str | None = None
    since: int | None = None
    until: int | None = None
    limit: int = 50
    cursor: str | None = None


@dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """What could not be delivered, and why. Its place is (partition, offset) in the dead letters topic."""

    partition: int
    offset: int
    at: int
    id: bytes | None
    reason: str
    detail: str
    source: str  # topic/partition/offset of the schedule
    target: str | None  # None: it could not be read
    due: int | None
    value: bytes | None
    headers: Headers  # without ours
    sendable: bool  # whether `send_again` can do something with it
    hidden: bool = False
    size: int = 0


@dataclass(frozen=True, kw_only=True)
class Partition:
    """A partition of a schedules topic."""

    topic: str
    partition: int
    shard: int
    state: str  # firing, paused, catching-up, incompatible, silent, no owner ...
    why: str | None
    first: int  # offsets of the log
    end: int
    position: int | None  # up to where its wheel has read; None: not known
    lag: int | None  # records between the two
    book: int | None  # up to where the book speaks


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A wheel, by its last report."""

    shard: int
    state: str
    why: str | None
    reported: int | None
    status: Mapping[str, Any]  # all it said


@dataclass(frozen=True, kw_only=True)
class Overview:
    """The whole scheduler at one glance."""

    board: board.Overview
    controls: controls.Controls
    partitions: list[Partition]
    shards: list[Shard]
    duties: Mapping[str, Mapping[str, Any]]  # bridge, oscillator: their last reports
    group: str
    now: int


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A setting as it may be shown."""

    name: str
    value: Any  # secrets are masked
    origin: str
    about: str
