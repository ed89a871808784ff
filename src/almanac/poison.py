"""A poison message stops nobody (rule 8): finds the culprit of a refused transaction, sets dead targets apart."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from almanac import outgoing, ports, tally
from almanac.chores import Chores
from almanac.clock import Clock
from almanac.ledger import Entry, Ledger
from almanac.outgoing import Outgoing

log = logging.getLogger("almanac.poison")

MOST = 20_000  # entries kept of a target that does not answer; of more than that, a later page brings them again
BACKOFF, LONGEST = 1_000, 30_000  # ms between tries


Place = tuple[Ledger, int]


@dataclass
class Quarantine:
    """A target that nobody answers for: its entries wait here and go in transactions of their own."""

    until: int
    backoff: int
    entries: dict[Place, Entry]  # by version: a row that is read twice is one entry


class Ward:
    """Where refused transactions are taken apart."""

    def __init__(
        self,
        writer: ports.Writer,
        clock: Clock,
        history: str,
        most: int,
        chores: Chores,
        counts: tally.Tally,
        give_back: Callable[[Sequence[Entry]], None],
        committed: Callable[[Sequence[Entry]], None],
        grant: Callable[[str, int, int], int] = lambda target, wanted, now: wanted,
    ) -> None:
        self._writer, self._clock, self._chores, self._tally = writer, clock, chores, counts
        self._history, self._most = history, most
        self._give_back, self._committed = give_back, committed
        self._grant = grant  # how many of so many may go to that target now
        self.quarantine: dict[str, Quarantine] = {}
        self._stuck: set[Place] = set()  # rule 9: not even their tombstone fits

    @property
    def empty(self) -> bool:
        """Nothing is set apart."""
        return not self.quarantine and not self._stuck

    def holds(self, entry: Entry) -> bool:
        """Takes the entry if its target is set apart."""
        if _place(entry) in self._stuck:
            return True
        kept = self.quarantine.get(entry.schedule.target)
        if kept is None:
            return False
        if len(kept.entries) < MOST or not entry.paged:
            kept.entries[_place(entry)] = entry
        return True

    def turn(self) -> None:
        """A new page brings the old page's rows again."""
        for kept in self.quarantine.values():
            kept.entries = {place: entry for place, entry in kept.entries.items() if not entry.paged}

    def sort_out(self, batch: Sequence[Entry]) -> None:
        """The transaction of these was refused and aborted: each target again, on its own and watched."""
        targets: dict[str, list[Entry]] = {}
        for entry in batch:
            targets.setdefault(entry.schedule.target, []).append(entry)
        while targets:
            target, entries = targets.popitem()
            try:
                if self._writer.offline(target):
                    self._isolate(target, entries)
                else:
                    self._try(target, entries)
            except ports.Unsettled:
                self._return([*entries, *(entry for rest in targets.values() for entry in rest)])
                raise

    def release(self, now: int) -> bool:
        """Tries a target that was set apart again, if it is time. Says whether something was written."""
        for target, kept in list(self.quarantine.items()):
            if now < kept.until:
                continue
            kept.entries = {place: entry for place, entry in kept.entries.items() if entry.ledger.alive(entry)}
            if not kept.entries:
                del self.quarantine[target]
                continue
            batch = [entry for entry in kept.entries.values() if entry.due <= now][: self._most]
            batch = batch[: self._grant(target, len(batch), now)]
            if not batch:
                continue
            if self._writer.offline(target):
                self._isolate(target, batch)
                continue
            for entry in batch:
                del kept.entries[_place(entry)]
            kept.until = now
            try:
                self._try(target, batch)
            except ports.Unsettled:
                self._return(batch)
                raise
            return True
        return False

    def _return(self, entries: Sequence[Entry]) -> None:
        apart = {place for kept in self.quarantine.values() for place in kept.entries}
        self._give_back([entry for entry in entries if _place(entry) not in apart])

    def _try(self, target: str, entries: list[Entry], brief: bool = False) -> None:
        if not entries:
            return
        each = 3 if self._history else 2
        records: list[Outgoing] = []
        for entry in entries:
            records += [outgoing.tombstone(entry), outgoing.target(entry, self._writer.partitions)]
            if self._history:
                records.append(outgoing.history(entry, self._history, stub=brief))
        faults = self._writer.attempt(records)
        if not faults:
            self._committed(entries)
            return
        self._tally.aborted += 1
        on_target = {number // each: fault for number, fault in faults.items() if number >= 0 and number % each == 1}
        guilty = {number: fault for number, fault in on_target.items() if fault.kind in ("message", "size")}
        large = {number // each for number, fault in faults.items() if number >= 0 and fault.kind == "size"}
        not_allowed = -1 in faults and faults[-1].kind == "message"  # the broker names no record, only the refusal
        # beside a culprit a time-out proves nothing: it may have waited behind it
        unanswered = not guilty and not large and any(fault.kind == "time-out" for fault in on_target.values())
        if not_allowed or unanswered:
            self._isolate(target, entries)
            return
        if not guilty and not large:
            # History, dead letters, the schedules topic, a refused timestamp: never the message's fault. Wait.
            number, fault = next(iter(faults.items()))
            where = records[number].topic if number >= 0 else "the transaction's topics"
            raise ports.Unavailable(f"cannot write to {where}: {fault.detail}")
        if len(entries) == 1:
            self._refuse(entries[0], guilty.get(0), brief)
            return
        for number, fault in guilty.items():
            if fault.kind == "message":
                self._chores.bury(entries[number], "undeliverable", f"{target}: {fault.detail}")
                large.discard(number)
        self._try(target, [e for number, e in enumerate(entries) if number not in large and number not in guilty])
        # The broker judges a batch: one that is too large need not hold a message that is. Halves tell, in few tries.
        suspects = [entries[number] for number in sorted(large)]
        self._try(target, suspects[: len(suspects) // 2])
        self._try(target, suspects[len(suspects) // 2 :])

    def _refuse(self, entry: Entry, fault: ports.Fault | None, brief: bool) -> None:
        """What was tried alone and does not go through: the target's fault, or (rule 9) a size of ours."""
        target = entry.schedule.target
        if fault is not None:
            self._chores.bury(entry, "undeliverable", f"{target}: {fault.detail}")
        elif not brief:
            self._try(target, [entry], brief=True)  # our headers made the history copy too large
        else:
            self._stuck.add(_place(entry))
            where = f"{entry.ledger.topic}/{entry.ledger.partition}/{entry.version}"
            log.error("%s: no tombstone with its key fits into the topic, so it cannot be fired", where)

    def _isolate(self, target: str, entries: list[Entry]) -> None:
        kept = self.quarantine.get(target)
        backoff = min(LONGEST, kept.backoff * 2) if kept else BACKOFF
        waiting = {**(kept.entries if kept else {}), **{_place(entry): entry for entry in entries}}
        self.quarantine[target] = Quarantine(self._clock.now() + backoff, backoff, waiting)
        log.warning("target %s does not answer: its messages wait apart, next try in %d s", target, backoff // 1000)


def _place(entry: Entry) -> Place:
    return entry.ledger, entry.version
