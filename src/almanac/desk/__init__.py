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

import dataclasses
import threading
import time
from datetime import UTC
from typing import TYPE_CHECKING, Any, Self

from almanac import asks, audit, story
from almanac.controls import Controls
from almanac.desk import records
from almanac.desk.acts import Acts
from almanac.desk.house import House
from almanac.desk.letters import Letters
from almanac.desk.pen import Pen
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
from almanac.desk.sight import Sight
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
        self._audit = audit.Audit(settings)
        self._sight = Sight(settings)
        self._pen = Pen(settings)
        self._asker = asks.Asker(settings)
        self._acts = Acts(settings, self._sight, self._pen, self._asker, self._audit)
        self._letters = Letters(settings)
        self._house = House(settings, runner, self._sight)
        self._telling = threading.Lock()

    def open(self) -> None:
        """Connects what acts need, so that the first one does not wait for it."""
        self._pen.open()
        self._asker.open()

    def close(self) -> None:
        """Ends what reads and writes for it."""
        for each in (self._sight, self._letters, self._asker, self._pen):
            each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def note(self) -> str | None:
        """Why the log is read from its beginning, if the book is not to be trusted."""
        return self._sight.note()

    # Questions about schedules

    def schedules(self, query: Query) -> Found[Row]:
        """The pending schedules that match, a page of them."""
        self._check_limit(query.limit)
        return self._sight.page(query)

    def next(self, limit: int) -> list[Row]:
        """The next ones by due time, any number of them: for the peer's list."""
        return self._sight.page(Query(limit=limit)).rows

    def schedule(self, id: bytes, topic: str | None = None, partition: int | None = None) -> list[Row]:
        """What is pending under the id: one at most in each partition of each topic; none: an empty list."""
        return [self._sight.row(row) for row in self._acts.pending(id, topic, partition)]

    def counts(
        self, by: Step = "hour", target: str | None = None, due_from: int | None = None, due_to: int | None = None
    ) -> list[Count]:
        """How many are due in each hour or day (UTC), by target; exact, cancels included; in order of time."""
        return self._sight.counts(by, target, due_from, due_to)

    def story(self, id: bytes) -> Story:
        """Everything the topics still say of the id (`almanac explain`). Reads them whole: seconds, or more."""
        return story.tell(self.settings, id, UTC, int(time.time() * 1000))

    # Questions about what is over

    def fired(self, query: FiredQuery) -> Found[FiredRow]:
        """What fired, the newest first."""
        self._check_limit(query.limit)
        return self._sight.fired(query)

    def fired_counts(
        self, by: Step = "hour", target: str | None = None, since: int | None = None, until: int | None = None
    ) -> list[Count]:
        """How many fired in each hour or day (UTC), by target."""
        return self._sight.fired_counts(by, target, since, until)

    def dead_letters(self, query: DeadQuery) -> Found[DeadLetter]:
        """The dead letters, the newest first."""
        self._check_limit(query.limit)
        return self._letters.page(query)

    def dead_letter(self, partition: int, offset: int) -> DeadLetter:
        """One of them. Raises NotFound."""
        return self._letters.one(partition, offset)[0]

    # Questions about the scheduler

    def overview(self) -> Overview:
        """The numbers of the status line, the controls, partitions and shards."""
        return self._house.overview()

    def partitions(self) -> list[Partition]:
        """Each partition of the schedules topics, who reads it and how far."""
        return self._house.partitions()

    def shards(self) -> list[Shard]:
        """The wheels, by their last reports."""
        return self._house.shards()

    def config(self) -> list[Setting]:
        """The settings in force, secrets masked."""
        return self._house.config()

    def controls(self) -> Controls:
        """What is paused and capped."""
        return self._house.controls()

    def ready(self) -> str | None:
        """None if the wheels fire (or are paused by people), else what is missing."""
        return self._house.ready()

    # Acts. Each goes to the audit log with `who`.

    def create(self, new: New, who: str) -> Row:
        """Writes a schedule; returns when Kafka has it. A pending id is replaced, where it is, unless `if_absent`.

        Raises Exists, Refused, Ambiguous.
        """
        return self._acts.create(new, who)

    def update(
        self,
        id: bytes,
        change: Change,
        who: str,
        topic: str | None = None,
        partition: int | None = None,
    ) -> Row:
        """Writes a pending schedule once more, changed, to its partition. Raises NotFound, Ambiguous, Refused."""
        return self._acts.update(id, change, who, topic, partition)

    def move(self, id: bytes, due: int, who: str, topic: str | None = None, partition: int | None = None) -> Row:
        """To another time: `update` with that alone."""
        return self.update(id, Change(due=due), who, topic, partition)

    def cancel(
        self,
        id: bytes,
        who: str,
        topic: str | None = None,
        partition: int | None = None,
        timeout: float = CERTAIN_S,
    ) -> Outcome:
        """Cancels with a certain answer, see `Outcome`. Raises Ambiguous."""
        return self._acts.cancel(id, who, topic, partition, timeout)

    def fire_now(
        self,
        id: bytes,
        who: str,
        topic: str | None = None,
        partition: int | None = None,
        timeout: float = CERTAIN_S,
    ) -> Firing:
        """The same schedule with due = now; waits until it has fired. Raises NotFound, Ambiguous."""
        return self._acts.fire_now(id, who, topic, partition, timeout)

    def send_again(self, partition: int, offset: int, who: str, due: int | None = None) -> Row:
        """Schedules a dead letter's message once more, now or at `due`, under its id.

        Raises NotFound, NotNow (it cannot be read as a schedule), Exists (its id is pending: that one would be lost).
        """
        letter, word, topic = self._letters.one(partition, offset)
        if word is None:
            why = f"cannot be read as a schedule ({letter.detail or letter.reason}): mend it, and schedule it anew"
            raise NotNow("dead letter", f"{partition}/{offset}", why)
        when = int(time.time() * 1000) if due is None else due
        return self._acts.send_again(word, topic, when, who, f"{partition}/{offset}")

    def pause(self, who: str, target: str | None = None) -> Controls:
        """Nothing is fired any more, of that target or at all, until `resume`."""
        if target is None:
            return self._tell("pause", who, paused=True)
        topic = records.checked_target(target)
        return self._tell("pause", who, topic, paused_targets=(*self.controls().paused_targets, topic))

    def resume(self, who: str, target: str | None = None) -> Controls:
        """Goes on: of that target, or everything (targets that are paused by name stay so)."""
        if target is None:
            return self._tell("resume", who, paused=False)
        left = tuple(each for each in self.controls().paused_targets if each != target)
        return self._tell("resume", who, target, paused_targets=left)

    def cap_missed(self, per_second: int | None, who: str) -> Controls:
        """At most so many fires of missed schedules a second; None: no limit."""
        _check_cap(per_second)
        return self._tell("cap", who, missed_per_second=per_second)

    def cap_target(self, target: str, per_second: int | None, who: str) -> Controls:
        """At most so many fires a second for that target; None: no limit."""
        _check_cap(per_second)
        topic = records.checked_target(target)
        caps = {name: cap for name, cap in self.controls().target_per_second.items() if name != topic}
        if per_second is not None:
            caps[topic] = per_second
        return self._tell("cap", who, topic, target_per_second=caps)

    # Small things

    def _tell(self, act: str, who: str, target: str | None = None, **changes: Any) -> Controls:
        shown = {name: value for name, value in changes.items() if name != "paused"}
        with self._telling, self._audit.act(act, who, target=target, **shown):
            at = int(time.time() * 1000)
            return self._house.tell(dataclasses.replace(self.controls(), **changes, by=who, at=at))

    def _check_limit(self, limit: int) -> None:
        most = self.settings.api_max_page
        if not 1 <= limit <= most:
            raise Refused("limit", str(limit), f"must be 1 to {most} (API_MAX_PAGE)")


def _check_cap(per_second: int | None) -> None:
    if per_second is not None and not 0 <= per_second <= 1_000_000:
        raise Refused("per_second", str(per_second), "must be 0 to 1000000 fires a second, or null for no limit")
