"""The fold of one source partition as the wheel keeps it: what its log said since the page's offsets (rules 3 to 5).

A page says what was pending when the log stood at offset O; the ledger says what came after. For each key seen since O
it holds one state:

    Entry      the winner is this word, and it is due soon enough to be in memory
    int >= 0   the winner is the word of that version, due after the horizon: the book brings it in a later page
    int < 0    nothing since O is pending; versions up to ~state are over (a page's row of a later version still counts)

States live in generations, each a dict that begins at an offset. A new page (offsets O') drops the generations that end
before O' as a whole: no scan, no pause, whatever the traffic was.

A page's row that was fired needs no state: its version alone tells it apart if the next page brings it again.
"""

import logging
from collections.abc import Callable
from typing import cast

from almanac import formats, words
from almanac.offsets import Offsets
from almanac.record import Record

log = logging.getLogger("almanac.ledger")

GENERATION = 65_536  # keys


class Entry:
    """A pending word in memory: from the tail or (`paged`) a row of the page."""

    __slots__ = ("due", "ledger", "paged", "record", "schedule", "version")

    def __init__(
        self, ledger: "Ledger", version: int, record: Record, schedule: formats.Schedule, paged: bool = False
    ) -> None:
        self.ledger = ledger
        self.version = version
        self.record = record
        self.schedule = schedule
        self.due = schedule.due
        self.paged = paged

    def __repr__(self) -> str:
        return f"Entry({self.record.key!r} v{self.version} due {self.due})"


State = Entry | int


def _version(state: State) -> int | None:
    """The winner's version; None if nothing is pending."""
    if isinstance(state, Entry):
        return state.version
    return state if state >= 0 else None


class Ledger:
    """What the log of one source partition has said since the page's offsets."""

    def __init__(self, topic: str, partition: int, topic_id: str, form: formats.Format) -> None:
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.format = form
        self.place = b"%s/%d/" % (topic.encode(), partition)  # before an offset: where a record stands
        self.signature = words.signature(topic_id)  # on every record of ours
        self.position = 0  # everything below is read
        self.at_end = False  # and there was nothing more to read
        self.halted: str | None = None  # why nothing more is read, and nothing fired: an upgrade is needed
        self.page_offset = 0  # the page in use speaks for everything below
        self.net = 0  # pending schedules more (or fewer) than the book had at the page's offsets, as far as is known
        self.planned = self.cancelled = 0  # words taken, and cancels that met one, since the start
        self._nets: list[tuple[int, int]] = [(0, 0)]  # positions, and `net` there
        self.adrift: dict[bytes, Entry | int] = {}  # rule 4: to be repeated, an entry or (int) a cancel's version
        self.garbage: dict[int, words.Garbage] = {}  # rule 5: to be disposed of, by offset
        self._disposed: dict[int, int | None] = {}  # garbage -> offset of its disposal, None until it is read back
        self._unread: dict[bytes, int] = {}  # versions whose tombstone is committed, but not read back yet
        self._over: list[tuple[int, Offsets]] = [(0, Offsets())]  # versions of rows that went out, by turn, like states
        self._generations: list[tuple[int, dict[bytes, State]]] = [(0, {})]
        self._newest: dict[bytes, State] = self._generations[0][1]
        self._older: list[dict[bytes, State]] = []  # the others, latest first

    def __len__(self) -> int:
        return sum(len(states) for _, states in self._generations) + sum(len(over) for _, over in self._over)

    def state(self, key: bytes) -> State | None:
        """The key's state, None if the log has said nothing of it since the page."""
        state = self._newest.get(key)
        if state is None:
            for states in self._older:
                state = states.get(key)
                if state is not None:
                    return state
        return state

    def alive(self, entry: Entry) -> bool:
        """Is this entry still the winner? (A page's row that came by the tail again is fired from there.)"""
        if self.halted is not None:
            return False  # what follows the record of the future may cancel it; after an upgrade it is read again
        state = self.state(entry.record.key or b"")
        if entry.paged:
            if type(state) is int:  # a word that was too far away for memory: this page brings it
                return state == entry.version if state >= 0 else ~state < entry.version
            return state is None and not self._went_out(entry.version)
        return state is entry

    def _went_out(self, version: int) -> bool:
        for _, versions in self._over:  # noqa: SIM110 (one or two: any() would cost more than the looks themselves)
            if version in versions:
                return True
        return False

    # What the tail says.

    def take(self, record: Record, keep: Callable[[Entry], bool]) -> bytes | None:
        """Folds a record in. `keep` is told of a new winner and answers whether it stays in memory.

        Returns the key if its state changed (rule 11: a staged message of that key must be stopped).
        """
        if self.halted is not None:
            return None
        if record.value is None and self._read_back(record):
            return None
        said = words.read(record, self.format, self.topic_id)
        if type(said) is words.Halt:
            self.halted = f"offset {record.offset}: {said.reason}"
            self.position = record.offset
            log.error("%s/%d halts and fires nothing more: %s", self.topic, self.partition, self.halted)
            return None
        self.position = record.offset + 1
        key = record.key or b""
        if type(said) is words.Kill:
            return self._kill(key, said)
        if type(said) is words.Word:
            return self._word(key, said, keep)
        if type(said) is words.Disposal:
            self.garbage.pop(said.of, None)
            self._disposed[said.of] = record.offset
            state = self.state(key)
            self._drift(key, state if type(state) is Entry else None)
        elif type(said) is words.Garbage and record.offset not in self._disposed:
            self.garbage[record.offset] = said
        return None

    def _read_back(self, record: Record) -> bool:
        """Is it our tombstone of what was fired from memory a moment ago? By far the most, and nothing new."""
        key = record.key or b""
        version = self._unread.get(key)
        if version is None or record.headers != [(words.ACKS, b"%d" % version), self.signature]:
            return False
        noted = self._newest.get(key) == ~version
        if not noted and self.state(key) != ~version:  # a page's row: it has no state
            return False
        self.position = record.offset + 1
        if not noted:  # it was noted before the log stood here, and must last as long as the log says
            self._set(key, ~version)
        del self._unread[key]
        self.net -= 1  # now, not when it was committed: the book counts by the log's offsets too
        if self.adrift:
            self._drift(key, None)
        return True

    def _word(self, key: bytes, word: words.Word, keep: Callable[[Entry], bool]) -> bytes | None:
        if word.ours and self._known(key, word.version):
            return None
        entry = Entry(self, word.version, word.record, word.schedule)
        state = self.state(key)
        self.planned += 1
        if state is None or _version(state) is None:
            self.net += 1
        self._set(key, entry if keep(entry) else word.version)
        # A schedule with a null value is a tombstone to the cleaner: it is repeated at once, with an empty one.
        self._drift(key, entry if word.record.value is None and not word.ours else None)
        return key

    def _known(self, key: bytes, version: int) -> bool:
        """Our repeat of `version`: nothing new, unless the cleaner has taken the original. The log ends in it now."""
        state = self.state(key)
        current = None if state is None else _version(state)
        if state is not None and current is None and version <= ~cast(int, state):
            self._drift(key, ~cast(int, state))  # a cancel slipped in before it: reduced to it the log would fire
        elif state is None and self._went_out(version):
            self._drift(key, version)  # so did our tombstone
        elif current is not None and version < current:
            self._drift(key, state if isinstance(state, Entry) else None)  # so did an update
        elif current == version or version < self.page_offset:
            # The book has read the original and everything up to the page: it knows whether it still counts.
            self._drift(key, None)
        else:
            return False
        return True

    def _kill(self, key: bytes, kill: words.Kill) -> bytes | None:
        ended = self._unread.get(key, kill.version + 1) <= kill.version
        if ended:  # by our tombstone; a user's cancel ends what fired as well
            del self._unread[key]
            self.net -= 1  # now, not when it was committed: the book counts by the log's offsets too
        state = self.state(key)
        if type(state) is int and state <= ~kill.version:  # known already: a tombstone of ours, read back
            if key not in self._newest:  # it was noted before the log stood here, and must last as long as the log says
                self._set(key, state)
            if self.adrift:
                self._drift(key, None)
            return None
        if state is None and kill.ours and self._went_out(kill.version):  # the same, of a page's row
            if self.adrift:
                self._drift(key, None)
            return None
        current = None if state is None else _version(state)
        if current is not None and current > kill.version:
            # rule 3: our tombstone acknowledges an older version; rule 4: the log must not end in it
            self._drift(key, state if isinstance(state, Entry) else None)
            return None
        over = ~kill.version
        paged = state is None and kill.version < self.page_offset and not ended  # a row of the page
        if current is not None or paged:
            self.net -= 1
            self.cancelled += not kill.ours
        self._set(key, min(cast(int, state), over) if state is not None and current is None else over)
        self._drift(key, None)
        return key

    def _drift(self, key: bytes, repeat: Entry | int | None) -> None:
        # Words whose payload is not in memory are left to the book: it marks them, and the next page brings them.
        if repeat is None:
            self.adrift.pop(key, None)
        else:
            self.adrift[key] = repeat

    def _set(self, key: bytes, state: State) -> None:
        if len(self._newest) >= GENERATION and key not in self._newest:
            self._newest = {}
            self._generations.append((self.position, self._newest))
            self._older = [states for _, states in self._generations[-2::-1]]
        self._newest[key] = state

    def note(self) -> None:
        """Remembers how many are pending at this position; called now and then."""
        if self.position > self._nets[-1][0]:
            self._nets.append((self.position, self.net))

    def _net_at(self, offset: int) -> int:
        """What `net` was when the log was read up to `offset`; between two notes, in proportion."""
        before, then = self._nets[0]
        for position, net in [*self._nets[1:], (self.position, self.net)]:
            if position >= offset:
                return then + (net - then) * max(0, offset - before) // max(1, position - before)
            before, then = position, net
        return then

    # What this wheel itself committed: it knows that before it reads it back.

    def fired(self, entry: Entry) -> None:
        """The acknowledgement of this entry is committed."""
        key, version = entry.record.key or b"", entry.version
        self._unread[key] = version
        if self._newest.get(key) is entry:  # by far the most
            self._newest[key] = ~version
            return
        state = self.state(key)
        if state is None:
            self._over[-1][1].add(version)
        elif state is entry or state == version:
            self._set(key, ~version)
        elif type(state) is int and state < 0:
            self._set(key, min(state, ~version))

    def repeated(self, key: bytes, what: Entry | int) -> None:
        """The repeat is committed."""
        if self.adrift.get(key) is what:
            del self.adrift[key]

    def disposed(self, offset: int) -> None:
        """The disposal of the garbage at that offset is committed."""
        self.garbage.pop(offset, None)
        self._disposed.setdefault(offset, None)

    # What a page says.

    def turn(self, offset: int) -> None:
        """A page that speaks up to `offset` takes over: what the log said before is in it."""
        self.page_offset = offset
        while len(self._generations) > 1 and self._generations[1][0] <= offset:
            self._generations.pop(0)
        if self.position <= offset:  # nothing has come since: the last one goes too
            self._newest = {}
            self._generations = [(self.position, self._newest)]
        self._older = [states for _, states in self._generations[-2::-1]]
        self._disposed = {g: d for g, d in self._disposed.items() if d is None or d >= offset}
        while len(self._over) > 1 and self._over[1][0] <= offset:
            self._over.pop(0)
        self._over.append((self.position, Offsets()))
        for key, version in self._unread.items():  # the page may not know of these, and no generation may be left
            if self.state(key) is None:
                self._over[-1][1].add(version)
        past = self._net_at(offset)
        self.net -= past
        self._nets = [(offset, 0), *((position, net - past) for position, net in self._nets if position > offset)]

    def reset(self, offset: int) -> None:
        """Forget everything: the log is read again from `offset`, where the page ends."""
        self.position = self.page_offset = offset
        self.net = 0
        self._nets = [(offset, 0)]
        self.at_end = False
        self.halted = None
        self.adrift.clear()
        self.garbage.clear()
        self._disposed.clear()
        self._unread.clear()
        self._over = [(offset, Offsets())]
        self._newest = {}
        self._generations = [(offset, self._newest)]
        self._older = []

    def adopt(self, entry: Entry, keep: Callable[[Entry], bool]) -> None:
        """A page's row whose word is pending, but not the log's last record (rule 4)."""
        key = entry.record.key or b""
        state = self.state(key)
        if state is None and self._went_out(entry.version):
            return
        if state is None or (type(state) is int and (state == entry.version if state >= 0 else ~state < entry.version)):
            # The repeat needs its payload, even if it is due much later and a later page brings it.
            self._set(key, entry if keep(entry) else entry.version)
            self.adrift[key] = entry

    def adopt_cancel(self, key: bytes, version: int) -> None:
        """A page's row that says: over, but the log's last record is our repeat of it (rule 4)."""
        if self.state(key) is None:
            self._set(key, ~version)
            self.adrift[key] = version

    def adopt_garbage(self, garbage: words.Garbage) -> None:
        """A page's row of garbage that nobody has disposed of yet."""
        if garbage.record.offset not in self._disposed:
            self.garbage[garbage.record.offset] = garbage
