"""The lineup: what goes next. It merges up to three sorted sources, so that none holds up another:

    live      what falls due now: memory and page as one lane
    missed    a wheel more than a second behind: what was missed drains beside the live ones, half of each transaction
    asides    targets that people hold back (`controls`), each on its own

A row of the page may be met in more than one of them: what went out is dead to all (`ledger`), and within one batch it
is taken once. An aside lasts until the page turns, which brings everything pending anew.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

from almanac.agenda import Agenda
from almanac.aside import Aside
from almanac.gate import UNBOUNDED, Gate
from almanac.lane import Lane
from almanac.ledger import Entry
from almanac.page import Bury, Ledgers, Page

WINDOW = 2  # ms: what is due this close to each other is staged as one
MISSED = 1_000  # ms behind: from here on the missed ones drain beside the live ones, not before them
NAP = 0.02  # seconds: so soon a wheel hears what people ask; buckets fill, and asides are read on
FEW = 200  # missed ones looked at where few may go: those of asides are sorted out

_target = attrgetter("schedule.target")


class Lineup:
    """See the module. Times in ms."""

    def __init__(self, ledgers: Ledgers, bury: Bury, gate: Gate, fires: int, ahead: int) -> None:
        self._ledgers, self._bury, self._gate = ledgers, bury, gate
        self._fires, self._ahead = fires, ahead
        self._page = Page()
        self.live = Lane(Agenda(), self._page.cursor(ledgers, bury))
        self._missed: Lane | None = None
        self._asides: dict[str, Aside] = {}

    def __len__(self) -> int:
        """Entries in memory."""
        return sum(map(len, self._agendas()))

    @property
    def behind(self) -> bool:
        """Are there missed ones?"""
        return self._missed is not None

    def next_due(self) -> int | None:
        """Of the live ones."""
        return self.live.next_due()

    def wait(self, now: int) -> float:
        """Seconds until there may be something to do, `NAP` at most."""
        due = self.live.next_due()
        return NAP if due is None else min(NAP, max(0.0, (due - self._ahead - now) / 1000))

    def idle(self, now: int) -> bool:
        """Is nothing due?"""
        due = self.live.next_due()
        return self._missed is None and not self._asides and (due is None or due > now)

    def held(self) -> dict[str, int]:
        """Targets that were held back since the page turned, and how many live words of each wait."""
        return {target: len(aside.agenda) for target, aside in self._asides.items()}

    # What the wheel takes

    def gather(self, now: int) -> list[Entry]:
        """What goes into the next transaction; what is due last stands last."""
        due = self.live.next_due()
        if self._missed is None and due is not None and due < now - MISSED:
            self._split(now)
            due = self.live.next_due()
        limit, plain = self._fires, self._gate.open and not self._asides
        held = [] if plain else self._release(now, max(1, limit // 2))
        batch: list[Entry] = [] if self._missed is None else self._take_missed(self._missed, now, max(1, limit // 2))
        if due is not None and due <= now:
            batch += self._sifted(self.live.take(now, limit - len(batch) - len(held)), now)
        elif due is not None and not batch and not held and due <= now + self._ahead:
            batch = self._sifted(self.live.take(due + WINDOW, limit), now)
        if plain:
            return batch
        for target, number in Counter(map(_target, batch)).items():
            self._gate.spend(target, number)
        return list({(entry.ledger, entry.version): entry for entry in held + batch}.values())

    def _split(self, now: int) -> None:
        cursor = self.live.cursor
        cursor.bound(now)
        self._missed = Lane(self.live.agenda.split(now), cursor)
        self.live.agenda.keep(lambda entry: not entry.paged)  # given back; the new cursor reads them again
        self.live = Lane(self.live.agenda, self._page.cursor(self._ledgers, self._bury, now))

    def _take_missed(self, missed: Lane, now: int, limit: int) -> list[Entry]:
        may = self._gate.leaves_missed(now)
        if may <= 0:
            return []
        batch = self._sifted(missed.take(now, min(limit, max(FEW, 2 * may))), now)
        missed.give_back(batch[may:])
        del batch[may:]
        self._gate.spend_missed(len(batch))
        if missed.next_due() is None:
            self._missed = None
        return batch

    def _sifted(self, batch: list[Entry], now: int) -> list[Entry]:
        """What of it may go on; the rest waits aside."""
        gate = self._gate
        if (gate.open and not self._asides) or not batch:
            return batch
        counts = Counter(map(_target, batch))
        for target, number in counts.items():
            if target not in self._asides and number > gate.leaves(target, now):
                self._set_aside(target, batch)
        unbounded = {target for target in counts if gate.leaves(target, now) >= UNBOUNDED}
        good = []
        for entry in batch:
            target = entry.schedule.target
            aside = self._asides.get(target)
            if aside is None or (target in unbounded and not entry.paged):
                good.append(entry)
            else:
                aside.put(entry)
        return good

    def _set_aside(self, target: str, batch: Iterable[Entry]) -> None:
        # From the earliest due time on that any of its rows can have which did not go out yet.
        lanes = [self.live] if self._missed is None else [self.live, self._missed]
        dues = [lane.next_due() for lane in lanes] + [entry.due for entry in batch]
        since = min(due for due in dues if due is not None)
        self._asides[target] = Aside(target, self._page.cursor(self._ledgers, self._bury, since), since)

    def _release(self, now: int, limit: int) -> list[Entry]:
        """What waits aside and may go now."""
        found: list[Entry] = []
        each = max(1, limit // max(1, len(self._asides)))
        for target, aside in self._asides.items():
            may = min(each, self._gate.leaves(target, now))
            due = aside.next_due()
            if due is not None and due < now - MISSED:
                may = min(may, self._gate.leaves_missed(now))
            if may > 0:
                taken = aside.take(now, may)
                self._gate.spend(target, len(taken))
                self._gate.spend_missed(sum(entry.due < now - MISSED for entry in taken))
                found += taken
        return found

    def bounded(self, batch: list[Entry], size: int) -> list[Entry]:
        """As many of them as fit into so many bytes; the others go next time."""
        total = 0
        for number, entry in enumerate(batch):
            total += 2 * len(entry.record.value or b"") + 400
            if total > size and number:
                self.give_back(batch[number:])
                return batch[:number]
        return batch

    # What comes back

    def give_back(self, entries: Sequence[Entry]) -> None:
        """Entries that were taken and did not go out."""
        if not self._asides:
            self.live.give_back(entries)
            return
        for entry in entries:
            aside = self._asides.get(entry.schedule.target)
            (self.live if aside is None else aside).agenda.push(entry)

    # Pages

    def turn(self, page: Page, keeps: Callable[[Entry], bool]) -> None:
        """The page takes over; of what is in memory that stays which meets the condition and is no row of a page."""
        agenda, *others = self._agendas()
        for other in others:
            for entry in other.take(1 << 62, 1 << 62):
                agenda.push(entry)
        agenda.keep(lambda entry: not entry.paged and keeps(entry))
        self._begin(page, agenda)

    def begin(self, page: Page) -> None:
        """The page is all there is."""
        self._begin(page, Agenda())

    def _agendas(self) -> list[Agenda]:
        missed = [self._missed.agenda] if self._missed is not None else []
        return [self.live.agenda, *missed, *(aside.agenda for aside in self._asides.values())]

    def _begin(self, page: Page, agenda: Agenda) -> None:
        self._page = page
        self._missed = None
        self._asides = {}
        self.live = Lane(agenda, page.cursor(self._ledgers, self._bury))
