"""What people tell the wheels while they run: pause, resume, and caps on fires a second.

They stand in the shard topic, the same in every partition, and so survive restarts and new owners:

    controls         somebody's word. Partition 0 has it first, and its offset there is its version everywhere: of two
                     that are told at once, every wheel obeys the same one
    controls-again   the owner repeats the last one under its version: after its claim, since a wheel reads from there
                     on, and where a partition lacks it (it is new, or who told it did not come that far)

Two keys, so that the cleaner, which keeps the last record of each, never drops a word for the repeat of an older one.
The highest version counts. To change one thing is to read, change and write all: who does it at once with another may
undo that one's change, and sees it.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from almanac import errors
from almanac.settings import Settings

SAID, AGAIN = "controls", "controls-again"  # keys
LACKING = 1.0  # seconds after which they are repeated to a partition that lacks them


@dataclass(frozen=True, kw_only=True)
class Controls:
    """All that is told; the default is: nothing is held back."""

    paused: bool = False  # nothing is fired
    paused_targets: tuple[str, ...] = ()  # nothing is fired to these topics
    missed_per_second: int | None = None  # fires of what is more than a second late, of all wheels together
    target_per_second: Mapping[str, int] = field(default_factory=dict)  # fires to that topic, of all wheels together
    by: str = ""  # who told it
    at: int = 0  # epoch ms

    def __post_init__(self) -> None:
        object.__setattr__(self, "paused_targets", tuple(sorted(set(self.paused_targets))))
        object.__setattr__(self, "target_per_second", dict(sorted(self.target_per_second.items())))
        caps = {"missed_per_second": self.missed_per_second, **self.target_per_second}
        for name, cap in caps.items():
            if cap is not None and (type(cap) is not int or cap < 0):
                raise errors.UsageError(f"a cap is a whole number of fires a second from 0 on, not {cap!r} ({name})")

    def __hash__(self) -> int:
        return hash(self.to_json())

    @property
    def free(self) -> bool:
        """Is nothing held back?"""
        return not (self.paused or self.paused_targets or self.missed_per_second is not None or self.target_per_second)

    def fields(self) -> dict[str, Any]:
        """As plain values, for a report or an answer in JSON."""
        return {
            "paused": self.paused,
            "paused_targets": list(self.paused_targets),
            "missed_per_second": self.missed_per_second,
            "target_per_second": dict(self.target_per_second),
            "by": self.by,
            "at": self.at,
        }

    def to_json(self) -> str:
        """As text."""
        return json.dumps(self.fields(), separators=(",", ":"))

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """What `fields` gave; what it does not name is as by default."""
        known = {name: fields[name] for name in cls.__dataclass_fields__ if name in fields}
        return cls(**known)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """What `to_json` gave."""
        return cls.of(json.loads(text))


@dataclass(frozen=True)
class Told:
    """Controls as they stand in a partition of the shard topic."""

    version: int  # the offset of the word in partition 0
    controls: Controls

    def value(self) -> dict[str, Any]:
        """What a record of them says."""
        return {**self.controls.fields(), "version": self.version}


def heard(shard: int, offset: int, key: str, value: Mapping[str, Any]) -> Told | None:
    """What that record of the shard topic tells; None if it tells something else, or nothing that is understood."""
    if key not in (SAID, AGAIN):
        return None
    version = offset if shard == 0 and key == SAID else value.get("version")
    try:
        return Told(version, Controls.of(value)) if isinstance(version, int) else None
    except (errors.UsageError, TypeError, AttributeError):
        return None


class Kept:
    """What the owner of the shards knows: the last controls, and which partitions have them."""

    def __init__(self) -> None:
        self.last: Told | None = None
        self._versions: dict[int, int] = {}  # by partition
        self._since: float | None = None  # when some were first seen to lack the last ones

    @property
    def controls(self) -> Controls:
        """The last ones."""
        return self.last.controls if self.last is not None else Controls()

    def learn(self, shard: int, told: Told) -> None:
        """That partition has these."""
        self._versions[shard] = max(told.version, self._versions.get(shard, -1))
        if self.last is None or told.version > self.last.version:
            self.last = told

    def lacking(self, shards: Iterable[int], now: float) -> list[int]:
        """Which of these partitions have lacked the last ones for a second: who told them did not come that far."""
        last = self.last
        found = [shard for shard in shards if last is not None and self._versions.get(shard, -1) < last.version]
        if not found:
            self._since = None
        elif self._since is None:
            self._since = now
        return found if self._since is not None and now - self._since > LACKING else []


def latest(settings: Settings) -> Told | None:
    """The last ones told to this group, read from Kafka now; None if there never were any."""
    from almanac import shard  # it builds on this module

    found = [
        told for offset, key, value in shard.read(settings, 0) if (told := heard(0, offset, key, value)) is not None
    ]
    return max(found, key=lambda told: told.version, default=None)


def read(settings: Settings) -> Controls:
    """What this group's wheels were told last, straight from Kafka. Raises errors.Unreachable if that is away."""
    told = latest(settings)
    return told.controls if told is not None else Controls()


def write(settings: Settings, controls: Controls) -> None:
    """Tells this group's wheels, straight on Kafka; returns when Kafka has it. They obey within a second."""
    from almanac import ports, shard  # they build on this module

    count = shard.partitions(settings)
    if not count:
        reason = "no scheduler of this group has run yet; check GROUP_ID and BOOTSTRAP_SERVERS"
        raise errors.AlmanacError(f"topic {settings.shard_topic} does not exist: {reason}")
    journal = shard.Journal(settings)
    try:
        version = journal.write(0, SAID, controls.fields())
        for number in range(1, count):
            journal.write(number, SAID, Told(version, controls).value())
    except ports.Unavailable as error:
        raise errors.Unreachable(str(error)) from error
