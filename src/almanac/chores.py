"""What a wheel does besides firing: dead letters, disposals (rule 5), repeats (rule 4); at once, in one transaction."""

from collections.abc import Iterable
from typing import NamedTuple

from almanac import outgoing, ports, tally
from almanac.ledger import Entry, Ledger
from almanac.outgoing import Outgoing
from almanac.words import Garbage


class Letter(NamedTuple):
    """An entry that ends in the dead letters."""

    entry: Entry
    reason: str
    detail: str


class Chores:
    """Collects letters, finds garbage and adrift words in the ledgers, writes it all."""

    def __init__(
        self, ledgers: Iterable[Ledger], writer: ports.Writer, topic: str, most: int, counts: tally.Tally
    ) -> None:
        self._ledgers = list(ledgers)
        self._writer, self._topic, self._most, self._tally = writer, topic, most, counts
        self._letters: list[Letter] = []
        self._stubs: set[tuple[Ledger, int]] = set()  # rule 9: their dead letter did not fit

    def bury(self, entry: Entry, reason: str, detail: str) -> None:
        """This entry is not to be fired."""
        self._letters.append(Letter(entry, reason, detail))

    def turn(self) -> None:
        """A new page brings the old page's rows again."""
        self._letters = [letter for letter in self._letters if not letter.entry.paged]

    def clear(self) -> None:
        """The log is read again."""
        self._letters = []

    def do(self) -> bool:
        """One transaction of what there is. Says whether there was anything."""
        letters = [letter for letter in self._letters[: self._most] if letter.entry.ledger.alive(letter.entry)]
        garbage: list[tuple[Ledger, Garbage]] = []
        repeats: list[tuple[Ledger, bytes, Entry | int]] = []
        for ledger in self._ledgers:
            if ledger.garbage:
                garbage += [(ledger, item) for item in list(ledger.garbage.values())[: self._most]]
            if ledger.adrift and ledger.at_end:  # only at the end is a key's last record known to be its last
                repeats += [(ledger, key, what) for key, what in list(ledger.adrift.items())[: self._most]]
        if letters or garbage or repeats:
            faults = self._writer.attempt(self._records(letters, garbage, repeats))
            if faults:
                self._shrink(faults, letters, garbage)
                return True
            self._done(letters, garbage, repeats)
        del self._letters[: self._most]
        return bool(letters or garbage or repeats)

    def _records(
        self,
        letters: list[Letter],
        garbage: list[tuple[Ledger, Garbage]],
        repeats: list[tuple[Ledger, bytes, Entry | int]],
    ) -> list[Outgoing]:
        records: list[Outgoing] = []
        for entry, reason, detail in letters:
            stub = (entry.ledger, entry.version) in self._stubs
            records.append(outgoing.dead_letter(entry.record, entry.version, reason, detail, self._topic, stub))
            records.append(outgoing.tombstone(entry))
        for ledger, (record, reason) in garbage:
            stub = (ledger, record.offset) in self._stubs
            records.append(outgoing.dead_letter(record, record.offset, "invalid", reason, self._topic, stub))
            records.append(outgoing.disposal(record, ledger.topic_id))
        return records + [outgoing.repeat(*repeat) for repeat in repeats]

    def _done(
        self,
        letters: list[Letter],
        garbage: list[tuple[Ledger, Garbage]],
        repeats: list[tuple[Ledger, bytes, Entry | int]],
    ) -> None:
        for entry, reason, _ in letters:
            entry.ledger.fired(entry)
            self._tally.letters[reason] += 1
        for ledger, item in garbage:
            ledger.disposed(item.record.offset)
            self._tally.letters["invalid"] += 1
        for ledger, key, what in repeats:
            ledger.repeated(key, what)
            self._tally.repeats += 1

    def _shrink(
        self, faults: dict[int, ports.Fault], letters: list[Letter], garbage: list[tuple[Ledger, Garbage]]
    ) -> None:
        """Rule 9: a dead letter that does not fit becomes a stub. Anything else is ours to wait for."""
        self._tally.aborted += 1
        who = [(entry.ledger, entry.version) for entry, _, _ in letters]
        who += [(ledger, item.record.offset) for ledger, item in garbage]
        large = {
            who[number // 2]
            for number, fault in faults.items()
            if 0 <= number < 2 * len(who) and number % 2 == 0 and fault.kind == "size"
        }
        if large - self._stubs:
            self._stubs |= large
            return
        raise ports.Unavailable(f"cannot write dead letters or repeats: {next(iter(faults.values())).detail}")
