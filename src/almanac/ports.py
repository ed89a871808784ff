"""What a wheel needs from outside: a tail to read, a transactional writer, its claim on the shard.

The duties beside the wheels write and claim the same way; the bridge reads an inbox, the oscillator its dial. Kafka
stands behind all of them in `tail`, `writer`, `shard`, `inbox` and `dial`; the unit tests put a log in memory there.

    Unsettled            the wheel must take over anew (rule 1) before it fires again
    ├── Fenced           another producer with this transactional id exists, or the transaction timed out
    └── Unavailable      the answer is not known: Kafka is away, slow, or changed its mind
    Refused              the broker refused something in the transaction; it was aborted
    LogLost              the log no longer reaches back to the page's offsets
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from almanac.controls import Controls
from almanac.errors import AlmanacError
from almanac.outgoing import Outgoing
from almanac.record import Record

Source = tuple[str, int]  # topic, partition
HOLD = 1_000  # ms before the due time from which on records are held back; a writer can for three times that
FULL = 500  # records of one poll: there may be more. What stays of them lies scattered if there are thousands


class Unsettled(AlmanacError):
    """It is not known what was committed."""


class Fenced(Unsettled):
    """The producer was fenced."""


class Unavailable(Unsettled):
    """Kafka did not answer in time."""


class Refused(AlmanacError):
    """The transaction was refused and must be aborted."""


class LogLost(AlmanacError):
    """The log does not reach back to the page's offsets; the book must be rebuilt."""


class End(NamedTuple):
    """The reader has reached the end of a partition."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True)
class Stable:
    """Last stable offsets and high watermarks, and when (monotonic ms) they were asked for."""

    asked: float
    stable: dict[Source, int]
    high: dict[Source, int]


class Tail(Protocol):
    """Reads the schedules partitions of a shard, committed records only."""

    def seek(self, positions: dict[Source, int]) -> None:
        """Read on from these offsets."""

    def poll(self, seconds: float) -> Sequence[Record | End]:
        """What has come, `FULL` or a few more at a time; waits up to `seconds` for the first."""

    def high(self) -> dict[Source, int]:
        """The high watermarks, asked now (rule 1: not the last stable offsets)."""

    def stable(self) -> Stable | None:
        """The newest answer of the background's regular question for the ends; None before the first."""


class Mark(NamedTuple):
    """How far a partition was read: the next offset, and the id of the topic as it was then (empty: not known)."""

    offset: int
    topic_id: str


class Fault(NamedTuple):
    """Why one record of a trial was not delivered."""

    kind: str  # "message": its own fault; "size"; "time-out": nobody answers for its target; "gap": another's; "other"
    detail: str


class Writer(Protocol):
    """Writes transactions."""

    def renew(self) -> None:
        """A new producer with the shard's transactional id; fences every older one."""

    def begin(self) -> None:
        """Opens a transaction."""

    def send(self, records: Iterable[Outgoing], stamped: bool = False) -> None:
        """Adds records; `stamped`: with the timestamps that they have, not with the time at which they are written."""

    def flush(self) -> None:
        """Waits until the broker has what was sent: an abort that overtakes it is answered as if there were doubt.

        Raises Refused if the transaction can only be aborted, Unavailable if nobody answers.
        """

    def hold(self, records: Sequence[Outgoing]) -> Sequence[Outgoing]:
        """Takes records that leave with the commit (see HOLD), not before; returns those it has no room for."""

    def commit(self, marks: Mapping[Source, Mark] | None = None) -> None:
        """`marks`: how far its consumer has read, committed with the records.

        Raises Refused (then call abort), Fenced or Unavailable (then call renew).
        """

    def abort(self) -> None:
        """Drops the open transaction."""

    def attempt(self, records: Sequence[Outgoing], marks: Mapping[Source, Mark] | None = None) -> dict[int, Fault]:
        """One transaction, each record watched: commits and returns nothing, or aborts and says which failed and why.

        -1 stands for the transaction itself. `marks`: see commit.
        """

    def partitions(self, topic: str) -> int:
        """How many the topic has; 1 for one that is not known."""

    def offline(self, topic: str) -> bool:
        """Is some partition of the topic without a leader, or with too few replicas in sync to write to?"""


@dataclass(frozen=True)
class Turn:
    """News from the driver: a page to go on with."""

    page: Any  # a page's description, opened by the wheel's `open_page`


class Stop(NamedTuple):
    """News: end now; `replaced` names the later owner if that is why."""

    replaced: str | None = None


class Ask(NamedTuple):
    """News: somebody wants to know when that offset is passed for good (see `asks`)."""

    id: str
    topic: str
    partition: int
    offset: int

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> "Ask | None":
        """From what the record says; None if that is no ask."""
        ask = cls(value.get("ask", ""), value.get("topic", ""), value.get("partition", -1), value.get("offset", -1))
        good = isinstance(ask.id, str) and isinstance(ask.offset, int) and ask.offset >= 0
        return ask if good and isinstance(ask.topic, str) and isinstance(ask.partition, int) else None


News = Turn | Stop | Ask | Controls


class Claims(Protocol):
    """The shard's partition of the shard topic."""

    def start(self) -> Any:
        """Says that this wheel starts, under its driver's claim; returns the newest page."""

    def superseded(self) -> str | None:
        """Reads to the end; names the later owner or start, if there is one."""

    def news(self) -> Sequence[News]:
        """What was said since the last call: by the driver, and (controls, asks) by others."""

    def answer(self, ask: Ask, position: int) -> Outgoing:
        """The answer to an ask, to be written in a transaction."""

    def report(self, status: dict[str, Any]) -> None:
        """Tells how the wheel is."""


# The duties: bridge and oscillator.


class Partition(NamedTuple):
    """A partition of a request topic as it is now."""

    topic_id: str
    low: int  # where it begins
    stable: int  # where it ends for who reads committed
    mark: Mark | None  # how far it was read, as committed last


class Inbox(Protocol):
    """Reads the request topics, committed records only."""

    def look(self) -> dict[Source, Partition]:
        """All partitions, asked now."""

    def seek(self, positions: dict[Source, int]) -> None:
        """Read on from these offsets."""

    def poll(self, seconds: float) -> Sequence[Record | End]:
        """What has come; waits up to `seconds` for the first. Unavailable if the log does not reach back."""


class Dial(Protocol):
    """The oscillator's topic."""

    def last(self) -> int | None:
        """The latest second in it, read to the high watermark as it is now; None if there is none."""


class Post(Claims, Protocol):
    """The claim on a duty, and what its holders must not forget. `start` returns nothing of interest."""

    def memory(self) -> dict[str, Any] | None:
        """What was remembered last, by whomever."""

    def remember(self, memory: dict[str, Any]) -> None:
        """Returns when it is written."""
