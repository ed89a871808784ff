"""The desk: everything people may ask of the scheduler, or have done by it. REST, page and command line stand on it.

    from almanac import desk

    with desk.Desk(settings) as at:                    # beside any scheduler: straight on Kafka and the book
        found = at.schedules(desk.Query(target="mails", limit=20))
        at.cancel(b"vid1-online", who="cli ada")

    desk.Desk(settings, runner)                        # in the driver, on what its runner knows

Reads are the book with the live tail laid over it (`live`): what was scheduled a second ago is there. Every act takes
`who`, and goes to the audit log. All of it is blocking, and may be called from several threads at once.

What can be wrong is raised as a `Refused` (`field`, `value`, `allowed`, never a payload):

    Refused          it cannot be meant so
    ├── NotFound     nothing is pending under that id, or there is no such dead letter
    ├── Exists       `if_absent`, and the id is pending
    ├── Ambiguous    the id is pending in several places: name the topic (and partition)
    └── NotNow       the dead letter cannot be sent again as it is
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from almanac.controls import Controls
from almanac.desk.refusals import Ambiguous, Exists, NotFound, NotNow, Refused
from almanac.desk.shapes import (
    Change,
    Count,
    DeadLetter,
    DeadQuery,
    FiredQuery,
    FiredRow,
    Firing,
    Found,
    New,
    Outcome,
    Overview,
    Partition,
    Query,
    Row,
    Setting,
    Shard,
    Step,
)
from almanac.settings import Settings
from almanac.story import Story

if TYPE_CHECKING:
    from almanac.runner import Runner

CERTAIN_S = 5.0  # how long a certain answer is waited for

__all__ = [
    "CERTAIN_S", "Ambiguous", "Change", "Controls", "Count", "DeadLetter", "DeadQuery", "Desk", "Exists", "FiredQuery",
    "FiredRow", "Firing", "Found", "New", "NotFound", "NotNow", "Outcome", "Overview", "Partition", "Query", "Refused",
    "Row", "Setting", "Shard", "Step", "Story",
]  # fmt: skip


class Desk:
    """Asks and acts. With a runner it knows what the wheels report; without one it reads the shard topic."""

    def __init__(self, settings: Settings, runner: Runner | None = None) -> None:
        """Connects to nothing yet."""
        self.settings = settings
        self.runner = runner

    def close(self) -> None:
        """Ends what reads and writes for it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Questions about schedules

    def schedules(self, query: Query) -> Found[Row]:
        """The pending schedules that match, a page of them."""
        raise NotImplementedError

    def schedule(self, id: bytes, topic: str | None = None, partition: int | None = None) -> list[Row]:  # noqa: A002
        """What is pending under the id: one at most in each partition of each topic; none: an empty list."""
        raise NotImplementedError

    def counts(
        self, by: Step = "hour", target: str | None = None, due_from: int | None = None, due_to: int | None = None
    ) -> list[Count]:
        """How many are due in each hour or day (UTC), by target; exact, cancels included; in order of time."""
        raise NotImplementedError

    def story(self, id: bytes) -> Story:  # noqa: A002
        """Everything the topics still say of the id (`almanac explain`). Reads them whole: seconds, or more."""
        raise NotImplementedError

    # Questions about what is over

    def fired(self, query: FiredQuery) -> Found[FiredRow]:
        """What fired, the newest first."""
        raise NotImplementedError

    def fired_counts(
        self, by: Step = "hour", target: str | None = None, since: int | None = None, until: int | None = None
    ) -> list[Count]:
        """How many fired in each hour or day (UTC), by target."""
        raise NotImplementedError

    def dead_letters(self, query: DeadQuery) -> Found[DeadLetter]:
        """The dead letters, the newest first."""
        raise NotImplementedError

    def dead_letter(self, partition: int, offset: int) -> DeadLetter:
        """One of them. Raises NotFound."""
        raise NotImplementedError

    # Questions about the scheduler

    def overview(self) -> Overview:
        """The numbers of the status line, the controls, partitions and shards."""
        raise NotImplementedError

    def partitions(self) -> list[Partition]:
        """Each partition of the schedules topics, who reads it and how far."""
        raise NotImplementedError

    def shards(self) -> list[Shard]:
        """The wheels, by their last reports."""
        raise NotImplementedError

    def config(self) -> list[Setting]:
        """The settings in force, secrets masked."""
        raise NotImplementedError

    def controls(self) -> Controls:
        """What is paused and capped."""
        raise NotImplementedError

    def ready(self) -> str | None:
        """None if the wheels fire (or are paused by people), else what is missing."""
        raise NotImplementedError

    # Acts. Each goes to the audit log with `who`.

    def create(self, new: New, who: str) -> Row:
        """Writes a schedule; returns when Kafka has it. An id that is pending is replaced, where it is, unless `if_absent`.

        Raises Exists, Refused, Ambiguous.
        """
        raise NotImplementedError

    def update(
        self,
        id: bytes,
        change: Change,
        who: str,
        topic: str | None = None,
        partition: int | None = None,  # noqa: A002
    ) -> Row:
        """Writes a pending schedule once more, changed, to its partition. Raises NotFound, Ambiguous, Refused."""
        raise NotImplementedError

    def move(self, id: bytes, due: int, who: str, topic: str | None = None, partition: int | None = None) -> Row:  # noqa: A002
        """To another time: `update` with that alone."""
        return self.update(id, Change(due=due), who, topic, partition)

    def cancel(
        self,
        id: bytes,  # noqa: A002
        who: str,
        topic: str | None = None,
        partition: int | None = None,
        timeout: float = CERTAIN_S,
    ) -> Outcome:
        """Cancels with a certain answer, see `Outcome`. Raises Ambiguous."""
        raise NotImplementedError

    def fire_now(
        self,
        id: bytes,  # noqa: A002
        who: str,
        topic: str | None = None,
        partition: int | None = None,
        timeout: float = CERTAIN_S,
    ) -> Firing:
        """The same schedule with due = now; waits until it has fired. Raises NotFound, Ambiguous."""
        raise NotImplementedError

    def send_again(self, partition: int, offset: int, who: str, due: int | None = None) -> Row:
        """Schedules a dead letter's message once more, now or at `due`, under its id.

        Raises NotFound, NotNow (it cannot be read as a schedule), Exists (its id is pending: that one would be lost).
        """
        raise NotImplementedError

    def pause(self, who: str, target: str | None = None) -> Controls:
        """Nothing is fired any more, of that target or at all, until `resume`."""
        raise NotImplementedError

    def resume(self, who: str, target: str | None = None) -> Controls:
        """Goes on: of that target, or everything (targets that are paused by name stay so)."""
        raise NotImplementedError

    def cap_missed(self, per_second: int | None, who: str) -> Controls:
        """At most so many fires of missed schedules a second; None: no limit."""
        raise NotImplementedError

    def cap_target(self, target: str, per_second: int | None, who: str) -> Controls:
        """At most so many fires a second for that target; None: no limit."""
        raise NotImplementedError
