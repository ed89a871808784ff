"""A wheel's answers to those who want certainty: `asks` says what they mean, and why they are never wrong."""

import logging
from collections.abc import Mapping

from almanac import ports
from almanac.ledger import Ledger

log = logging.getLogger("almanac.answers")

MOST = 10_000  # that wait; of more the oldest are forgotten, and stay unknown to who asked
AT_ONCE = 1_000  # in a transaction


class Answers:
    """Asks that wait for their answer."""

    def __init__(self, ledgers: Mapping[ports.Source, Ledger], writer: ports.Writer, claims: ports.Claims) -> None:
        self._ledgers, self._writer, self._claims = ledgers, writer, claims
        self._waiting: dict[str, ports.Ask] = {}

    def hear(self, ask: ports.Ask) -> None:
        """Somebody asks. Of other wheels' partitions this one knows nothing."""
        if (ask.topic, ask.partition) in self._ledgers:
            self._waiting[ask.id] = ask
            if len(self._waiting) > MOST:
                del self._waiting[next(iter(self._waiting))]

    def give(self) -> None:
        """Answers what can be answered. To be called while no transaction is open and nothing is in doubt."""
        if not self._waiting:
            return
        ready = [(ask, at) for ask in self._waiting.values() if (at := self._position(ask)) > ask.offset][:AT_ONCE]
        if not ready:
            return
        # In a transaction: only who is the owner still can commit it, and only after all that was fired before.
        faults = self._writer.attempt([self._claims.answer(ask, at) for ask, at in ready])
        if faults:
            log.warning("asks cannot be answered: %s", next(iter(faults.values())).detail)
        for ask, _ in ready:
            del self._waiting[ask.id]

    def _position(self, ask: ports.Ask) -> int:
        return self._ledgers[ask.topic, ask.partition].position
