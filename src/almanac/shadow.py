"""A scheduler that fires nothing: it reads a peer's topics as it would, and logs what it would fire, and when.

Everything is as always (book, pages, wheels) but for the writer: it has no producer. So neither targets nor the peer's
topics get a record, no tombstone and no repeat. The one topic it writes to is its own `<group>-shadow-shards`, in which
driver and wheels talk to each other; under a group of its own it replaces no scheduler that fires.

What the peer does not end (its tombstone) stays pending: a shadow that is started again names it again.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC

from almanac import ports, when
from almanac.clock import Clock
from almanac.outgoing import Outgoing
from almanac.settings import Settings

log = logging.getLogger("almanac.shadow")

REMEMBERED = (
    500_000  # schedules named last: no tombstone keeps a wheel that reads its tail again from firing them again
)


def apart(settings: Settings) -> Settings:
    """The same settings with names that no scheduler uses which fires."""
    group = f"{settings.group_id}-shadow"
    # Copies for these topics tell what would be fired and what would be refused; they are logged, not written.
    names = {"history_topic": f"{group}-fires", "dead_letters_topic": f"{group}-refuses", "states_topic": ""}
    # Who bridges and ticks writes: a shadow does neither.
    return settings.replaced(group_id=group, schedules_topics=settings.sources, oscillator_topic="", **names)


class ShadowWriter:
    """See ports.Writer. A commit logs."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._fires, self._refuses = settings.history_topic, settings.dead_letters_topic
        self._clock = clock
        self._open: list[Outgoing] = []
        self._told: dict[int, None] = {}  # hashes of their sources, the latest last

    def renew(self) -> None:
        """See ports.Writer: there is nobody to fence."""
        self._open = []

    def begin(self) -> None:
        """See ports.Writer."""
        self._open = []

    def send(self, records: Iterable[Outgoing], stamped: bool = False) -> None:
        """See ports.Writer."""
        self._open += (record for record in records if record.topic in (self._fires, self._refuses))

    def flush(self) -> None:
        """See ports.Writer."""

    def hold(self, records: Sequence[Outgoing]) -> Sequence[Outgoing]:
        """See ports.Writer."""
        return records

    def commit(self, marks: Mapping[ports.Source, ports.Mark] | None = None) -> None:
        """See ports.Writer. Nobody has marks to commit: a shadow has no bridge."""
        for record in self._open:
            notes = {name: (value or b"").decode(errors="backslashreplace") for name, value in record.headers}
            told = hash((record.topic, notes["almanac-source"]))
            if told not in self._told:
                self._told[told] = None
                self._tell(record, notes)
            if len(self._told) > REMEMBERED:
                del self._told[next(iter(self._told))]
        self._open = []

    def abort(self) -> None:
        """See ports.Writer."""
        self._open = []

    def attempt(
        self, records: Sequence[Outgoing], marks: Mapping[ports.Source, ports.Mark] | None = None
    ) -> dict[int, ports.Fault]:
        """See ports.Writer."""
        self.begin()
        self.send(records)
        self.commit()
        return {}

    def partitions(self, topic: str) -> int:
        """See ports.Writer."""
        return 1

    def offline(self, topic: str) -> bool:
        """See ports.Writer."""
        return False

    def close(self) -> None:
        """Nothing is open."""

    def _tell(self, record: Outgoing, notes: dict[str, str]) -> None:
        source = notes["almanac-source"]
        if record.topic == self._refuses:
            reason = f"{notes.get('almanac-reason')}: {notes.get('almanac-detail')}"
            shown = (record.key or b"").decode(errors="backslashreplace")
            log.info("would refuse %s (%s), %s", shown, source, reason, extra={"id": shown, "source": source})
            return
        due = int(notes["almanac-due-ms"])
        late = self._clock.now() - due
        told = {"id": notes.get("almanac-id"), "target": notes.get("almanac-target"), "due_ms": due, "late_ms": late}
        log.info(
            "would fire %s to %s, due %s, %d ms late (%s)",
            told["id"], told["target"], when.render(due, UTC), late, source, extra={**told, "source": source},
        )  # fmt: skip
