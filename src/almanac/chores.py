"""What a wheel does besides firing: dead letters, disposals (rule 5), repeats (rule 4); at once, in one transaction."""

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from almanac import outgoing, ports, tally
from almanac.ledger import Entry, Ledger
from almanac.outgoing import Outgoing
from almanac.words import Garbage

log = logging.getLogger("almanac.chores")

Place = tuple[Ledger, int, str]  # offset or version, and what kind of chore it is


class Letter(NamedTuple):
    """An entry that ends in the dead letters."""

    entry: Entry
    reason: str
    detail: str


class Chore(NamedTuple):
    """Records that belong together, and what to remember once they are committed."""

    place: Place
    records: list[Outgoing]
    done: Callable[[], None]


class Chores:
    """Collects letters, finds garbage and adrift words in the ledgers, writes it all."""

    def __init__(
        self, ledgers: Iterable[Ledger], writer: ports.Writer, topic: str, most: int, size: int, counts: tally.Tally
    ) -> None:
        self._ledgers = list(ledgers)
        self._writer, self._topic, self._tally = writer, topic, counts
        self._most, self._size = most, size  # records' and bytes' bound of a transaction
        self._letters: dict[tuple[Ledger, int], Letter] = {}
        self._small: set[Place] = set()  # rule 9: their dead letter did not fit
        self._left: set[Place] = set()  # and these fit in no way

    def bury(self, entry: Entry, reason: str, detail: str) -> None:
        """This entry is not to be fired."""
        self._letters[entry.ledger, entry.version] = Letter(entry, reason, detail)

    def turn(self) -> None:
        """A new page brings the old page's rows again."""
        self._letters = {place: letter for place, letter in self._letters.items() if not letter.entry.paged}

    def clear(self) -> None:
        """The log is read again."""
        self._letters = {}

    def none(self) -> bool:
        """Is there nothing to do?"""
        return next(self._all(), None) is None

    def do(self) -> bool:
        """One transaction of what there is. Says whether there was anything."""
        chores = list(self._bounded())
        if not chores:
            return False
        self._write(chores)
        return True

    def _bounded(self) -> Iterator[Chore]:
        size = 0
        for number, chore in enumerate(self._all()):
            size += sum(400 + len(record.value or b"") for record in chore.records)
            if number and (number >= self._most or size > self._size):
                return
            yield chore

    def _all(self) -> Iterator[Chore]:
        if self._letters:
            self._letters = {
                p: letter for p, letter in self._letters.items() if letter.entry.ledger.alive(letter.entry)
            }
        for (ledger, version), letter in self._letters.items():
            if (place := (ledger, version, "letter")) not in self._left:
                yield self._burial(place, letter)
        for ledger in self._ledgers:
            for offset, garbage in ledger.garbage.items():
                if (place := (ledger, offset, "garbage")) not in self._left:
                    yield self._disposal(place, garbage)
            if ledger.at_end:  # only there is a key's last record known to be its last
                for key, what in ledger.adrift.items():
                    place = (ledger, what if isinstance(what, int) else what.version, "repeat")
                    if place not in self._left:
                        yield Chore(
                            place, [outgoing.repeat(ledger, key, what)], partial(self._repeated, ledger, key, what)
                        )

    def _burial(self, place: Place, letter: Letter) -> Chore:
        entry, reason, detail = letter
        stub = place in self._small
        dead = outgoing.dead_letter(entry.record, entry.version, reason, detail, self._topic, stub)
        return Chore(place, [dead, outgoing.tombstone(entry, reason)], partial(self._buried, letter))

    def _disposal(self, place: Place, garbage: Garbage) -> Chore:
        (record, reason), ledger = garbage, place[0]
        stub = place in self._small
        dead = outgoing.dead_letter(record, record.offset, "invalid", reason, self._topic, stub)
        return Chore(place, [dead, outgoing.disposal(ledger, record)], partial(self._disposed, ledger, garbage))

    def _buried(self, letter: Letter) -> None:
        entry = letter.entry
        entry.ledger.fired(entry)
        self._letters.pop((entry.ledger, entry.version), None)
        self._tally.letters[letter.reason] += 1

    def _disposed(self, ledger: Ledger, garbage: Garbage) -> None:
        ledger.disposed(garbage.record.offset)
        self._tally.letters["invalid"] += 1

    def _repeated(self, ledger: Ledger, key: bytes, what: Entry | int) -> None:
        ledger.repeated(key, what)
        self._tally.repeats += 1

    def _write(self, chores: list[Chore]) -> None:
        faults = self._writer.attempt([record for chore in chores for record in chore.records])
        if not faults:
            for chore in chores:
                chore.done()
            return
        self._tally.aborted += 1
        owners = [chore for chore in chores for _ in chore.records]
        large = {owners[n].place: owners[n] for n, fault in faults.items() if n >= 0 and fault.kind == "size"}
        if not large:  # only a size is the record's own fault, anything else is ours to wait for
            raise ports.Unavailable(f"cannot write dead letters or repeats: {next(iter(faults.values())).detail}")
        if len(chores) == 1:
            self._shrink(chores[0])
            return
        # The broker judges a batch: one that is too large need not hold a record that is. Halves tell, in few tries.
        suspects, half = list(large.values()), len(large) // 2
        for part in ([chore for chore in chores if chore.place not in large], suspects[:half], suspects[half:]):
            if part:
                self._write(part)

    def _shrink(self, chore: Chore) -> None:
        """Rule 9: a dead letter that does not fit becomes a stub; what cannot be smaller must not hold up others."""
        ledger, offset, kind = chore.place
        if kind != "repeat" and chore.place not in self._small:
            self._small.add(chore.place)
            return
        self._left.add(chore.place)
        where = f"{ledger.topic}/{ledger.partition}/{offset}"
        log.error("%s: its %s does not fit into %s and is left out", where, kind, chore.records[-1].topic)
