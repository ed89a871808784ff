"""The wheel: one shard's schedules, fired exactly once, on time.

It merges what a page says with what its tail has read since, sleeps until the next due time, and writes target, history
copy and tombstone of everything due in one transaction. It knows neither Spark nor Kafka: `ports` names what it needs.

    start -> fence -> look again -> catch up -> FIRE <-> pause (clock, stalled tail)
               ^                                  |
               +------- any doubt (rule 6) -------+           a later claim: return; the driver says stop: return
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from almanac import lineup, outgoing, page, ports, tally, when
from almanac.answers import Answers
from almanac.chores import Chores
from almanac.clock import Clock
from almanac.controls import Controls
from almanac.gate import Gate
from almanac.horizon import Horizon
from almanac.judge import Judge
from almanac.ledger import Entry, Ledger
from almanac.lineup import Lineup
from almanac.page import Page
from almanac.poison import Ward
from almanac.pulse import Pulse
from almanac.record import Record

log = logging.getLogger("almanac.wheel")

PREPARE = 10_000  # ms ahead that rows of a page are decoded in idle time
REPORT = 1_000  # ms between reports
FRESH = 50  # ms for which what was read is the whole truth
DRAIN = 200  # full polls in a row
SAY_AGAIN = 30_000  # ms after which the log is told once more why the wheel waits
HEED = 500  # ms for which a wheel reads what came before the controls, at most
HASTE = 30  # ms before the due time: from here on all of a message is written at once
LISTEN = 250  # ms: a message that is staged for longer than that can still be held back
FEW = 400  # fires of a transaction: Kafka has as much to do for fewer
REST = 25  # ms that a wheel rests after one of these, at most: what falls due meanwhile goes together


@dataclass(frozen=True)
class Options:
    """How a wheel works. Times in ms."""

    history: str = "history"  # empty: none
    dead_letters: str = "dead-letters"
    fires: int = 4_000  # a transaction
    bytes: int = 16 << 20  # a transaction
    ahead: int = 80  # history copies are written this long before the due time
    since_delta: int | None = None  # days
    keep: int = 600_000  # how far behind the page's horizon live words stay in memory
    early: Callable[[str], bool] | None = None  # targets that may be written ahead of time, committed on time
    forbidden: Callable[[str], str | None] | None = None  # why nothing may go to that target; None: all may
    shards: int = 1  # wheels that share a cap


@dataclass(frozen=True)
class Opened:
    """A page, ready to be read."""

    number: int
    page: Page
    offsets: dict[ports.Source, int]
    horizon: int


class Wheel:
    """See the module."""

    def __init__(
        self,
        ledgers: Sequence[Ledger],
        tail: ports.Tail,
        writer: ports.Writer,
        claims: ports.Claims,
        clock: Clock,
        options: Options,
        open_page: Callable[[Any], Opened],
    ) -> None:
        self.ledgers = {(ledger.topic, ledger.partition): ledger for ledger in ledgers}
        self.tally = tally.Tally()
        self.state = "starting"
        self._tail, self._writer, self._claims, self._clock = tail, writer, claims, clock
        self._options = options
        self._open = open_page
        self._page: Opened | None = None
        self._coming: Opened | None = None
        self._horizon = Horizon(options.keep)
        self._sources = {ledger.topic for ledger in ledgers}
        self._staged: set[tuple[Ledger, bytes]] = set()
        self._stopped_keys = False  # rule 11: a staged key was touched
        self._holds = False  # the writer holds records of the open transaction back
        self._chores = Chores(ledgers, writer, options.dead_letters, options.fires, options.bytes, self.tally)
        self._gate = Gate(options.shards)
        self._steered = False  # the controls changed while something was staged
        self._lineup = Lineup(self.ledgers, self._chores.bury, self._gate, options.fires, options.ahead)
        self._ward = Ward(
            writer, clock, options.history, options.fires, self._chores, self.tally,
            self._lineup.give_back, self._committed, self._gate.grant,
        )  # fmt: skip
        kinds = {ledger.topic: ledger.format.name for ledger in ledgers}
        # Of this start, not of now: what is late at midnight in a wheel that runs was not missed.
        floor = when.floor(clock.now(), options.since_delta)
        self._judge = Judge(self._chores, self._ward, floor, options.forbidden, kinds)
        self._pulse = Pulse(self.ledgers, tail, clock)
        self._answers = Answers(self.ledgers, writer, claims)
        self._polled = -1e18
        self._rested = -1e18  # when the next transaction may begin
        self._reported = -1e18
        self._trouble: str | None = None
        self._said: tuple[str, str | None, float] = ("", None, 0.0)  # and when
        self._stop: ports.Stop | None = None

    # Rule 1: claim, fence, look again, catch up, fire.

    def run(self) -> str:
        """Turns until told to stop or replaced; returns which."""
        backoff = 0.1
        while True:
            try:
                if self._page is None:
                    self.begin()
                newer = self.take_over()
                if newer:
                    self._stop = ports.Stop(newer)
                while self._stop is None:
                    self.step()
                    backoff = 0.1
            except ports.Unsettled as error:
                self._say("waiting", str(error))
                self._clock.sleep(backoff)
                self._listen(pages=False)
                backoff = min(0.5, backoff * 2)
            if self._stop is not None:
                ended = "replaced" if self._stop.replaced else "stopped"
                self._say(ended, self._stop.replaced and f"a later claim holds this shard: {self._stop.replaced}")
                return ended

    def begin(self) -> None:
        """Says that it starts, and opens the newest page."""
        self._reopen(self._open(self._claims.start()))

    def take_over(self) -> str | None:
        """Fences, looks again, catches up; then it may fire. Names the later owner if there is one."""
        self.state = "fencing"
        newer = self._claims.superseded()  # a wheel that Spark runs again must not fence who replaced it
        if newer:
            return newer
        self._writer.renew()
        newer = self._claims.superseded()
        if newer:
            return newer
        self.state = "catching-up"
        self._catch_up()
        self.state = "firing"
        return None

    def _catch_up(self, longest: float = float("inf")) -> None:
        # The high watermark, not the last stable offset: a foreign transaction may hold that below a tombstone.
        asked = self._clock.monotonic()
        ends = self._tail.high()
        while (
            self._stop is None
            and self._clock.monotonic() - asked < longest
            and any(
                self.ledgers[source].position < end and not self.ledgers[source].halted for source, end in ends.items()
            )
        ):
            self._poll(0.1)
            self._listen(pages=False)
            self._report_in_time()
        for source, end in ends.items():
            if self.ledgers[source].position >= end:
                self._pulse.felt(source, asked)

    # One turn of the loop.

    def step(self) -> None:
        """Does what is due now, or waits a little for something to happen."""
        self._listen()
        if self._steered:  # who cancels some and then resumes expects that these are heeded
            self._steered = False
            self._catch_up(HEED)
        self._watch()
        self._answers.give()
        now = self._clock.now()
        if self._trouble:
            self._poll(0.05)
            return
        if self._chores.do():
            self._poll(0)
            return
        if self._gate.shut:
            self._poll(lineup.NAP)
            return
        if self._ward.release(now):
            self._poll(0)
            return
        rest = self._rested - self._clock.monotonic()
        if rest > 0:
            self._poll(rest / 1000)
            return
        batch = self._fresh(self._gather(now))
        if batch:
            self._rest(batch, now, self._fire(batch))
            self._poll(0)
            return
        if self._lineup.live.cursor.prepare(now + PREPARE):
            self._poll(0)
            return
        self._poll(self._lineup.wait(self._clock.now()))

    def _fresh(self, batch: list[Entry]) -> list[Entry]:
        """What of it still stands. To turn a page or to read its rows takes a while, and a cancel may have come."""
        if not batch or self._clock.monotonic() - self._polled < FRESH:
            return batch
        self._poll(0)
        return [entry for entry in batch if entry.ledger.alive(entry)]

    def _poll(self, seconds: float) -> None:
        """Reads what has come, all of it: what is fired next must not be judged by an old view."""
        for _ in range(DRAIN):
            found = self._tail.poll(seconds)
            self._take(found)
            if len(found) < ports.FULL:
                break
            seconds = 0
        self._polled = self._clock.monotonic()

    def _take(self, found: Sequence[Record | ports.End]) -> None:
        staged, keep = self._staged, self._keep
        for said in found:
            source = said[0], said[1]
            ledger = self.ledgers[source]
            if type(said) is Record:
                key = ledger.take(said, keep)
                ledger.at_end = False
                if staged and ((key is not None and (ledger, key) in staged) or ledger.halted):
                    self._stopped_keys = True
            elif not ledger.halted:
                ledger.position = max(ledger.position, said[2])
                ledger.at_end = True

    def _keep(self, entry: Entry) -> bool:
        if not self._horizon.keeps(entry.due, self._clock.now()):
            return False
        self._lineup.live.agenda.push(entry)
        return True

    def _gather(self, now: int) -> list[Entry]:
        return self._lineup.bounded(self._judge.judge(self._lineup.gather(now)), self._options.bytes)

    # Rule 2: target, history copy and tombstone are one transaction.

    def _fire(self, batch: list[Entry]) -> float:
        """Says for how many ms Kafka was busy with it; 0 if it did not go out."""
        try:
            self._writer.begin()
            records = self._stage(batch)
            if self._await(batch):
                self._writer.send(records)
                begun = self._clock.monotonic()
                self._writer.commit()
                took = self._clock.monotonic() - begun
                self.tally.took(took)
                self._committed(batch)
                return took
            if not self._holds:
                self._writer.flush()
            self._writer.abort()
            self.tally.aborted += 1
            self._lineup.give_back(batch)
        except ports.Refused as error:
            log.warning("transaction refused: %s; looking for the culprit", error)
            self._take_apart(batch)
        except ports.Unsettled:
            self._lineup.give_back(batch)  # rule 1 will tell which of them went out
            raise
        finally:
            self._staged = set()
        return 0.0

    def _rest(self, batch: Sequence[Entry], now: int, took: float) -> None:
        """Not before the next transaction if there is more than went into this one."""
        left = self._lineup.next_due()
        whole = not self._lineup.behind and (left is None or left > max(now, _due(batch)))
        if whole and len(batch) < FEW:
            # As long as Kafka took: one that has little to do is not waited for, a busy one is not driven.
            self._rested = self._clock.monotonic() + min(REST, took)

    def _take_apart(self, batch: list[Entry]) -> None:
        self.tally.aborted += 1
        try:
            self._writer.abort()
            in_time = self._await(batch)  # what was refused while it was staged is not due yet (rule 7)
        except ports.Unsettled:
            self._lineup.give_back(batch)
            raise
        if in_time:
            self._ward.sort_out(batch)
        else:
            self._lineup.give_back(batch)

    def _stage(self, batch: list[Entry]) -> list[outgoing.Outgoing]:
        """Writes what may be written before the due time; returns what must wait for it, ready to go."""
        topic, early, partitions = self._options.history, self._options.early, self._writer.partitions
        due = _due(batch)
        left = due - self._clock.now()
        held_back = HASTE < left < ports.HOLD
        waiting: list[outgoing.Outgoing] = []
        now: list[outgoing.Outgoing] = []
        held: list[outgoing.Outgoing] = []
        for entry in batch:
            target = entry.schedule.target
            if topic:
                now.append(outgoing.history(entry, topic))
            waiting.append(outgoing.tombstone(entry))  # before the target, which may be a schedules topic
            if early is not None and early(target):
                now.append(outgoing.target(entry, partitions))
            elif held_back and target not in self._sources:
                held.append(outgoing.target(entry, partitions, due))
            else:
                waiting.append(outgoing.target(entry, partitions))
        self._writer.send(now)
        if left > HASTE:
            self._writer.flush()  # now, not with the commit
        # What is held is only in the client: when the due time comes it is encoded, and the transaction knows its
        # partitions. It must not be the first that the transaction hears of: an abort might overtake it.
        self._holds = bool(held and now)
        return [*waiting, *(self._writer.hold(held) if self._holds else held)]

    def _await(self, batch: list[Entry]) -> bool:
        """Rule 7: waits for the due time; rule 11: false if a staged key was cancelled or updated meanwhile."""
        due = _due(batch)
        if self._clock.now() < due:
            longest = self._clock.monotonic() + due - self._clock.now() + ports.HOLD
            self._staged = {(entry.ledger, entry.record.key or b"") for entry in batch}
            self._stopped_keys = self._steered = False
            while (left := due - self._clock.now()) > 0:
                self._poll(max(0.0005, min(LISTEN, left - 1) / 1000))
                if left > LISTEN:
                    self._listen(pages=False)
                sooner = self._lineup.live.agenda.next_due()
                if self._stopped_keys or self._steered or (sooner is not None and sooner < due - 2 * lineup.WINDOW):
                    return False
                if self._clock.monotonic() > longest:  # the clock was set back: what is held would leave too soon
                    return False
        return len(self._fresh(batch)) == len(batch)  # staging may have taken until now

    def _committed(self, batch: Sequence[Entry]) -> None:
        for entry in batch:
            entry.ledger.fired(entry)
        self.tally.add(batch, self._clock.now())
        self.tally.transactions += 1

    # Pages.

    def _listen(self, pages: bool = True) -> None:
        for said in self._claims.news():
            if isinstance(said, ports.Stop):
                self._stop = said
                continue
            if isinstance(said, ports.Ask):
                self._answers.hear(said)
                continue
            if isinstance(said, Controls):
                self._steer(said)
                continue
            try:
                coming = self._open(said.page)
            except OSError as error:  # an old announcement; the page it names is gone
                log.info("page not opened: %s", error)
                continue
            if self._page is None or coming.number > self._page.number:
                self._coming = coming
        if pages and self._coming is not None and self._reaches(self._coming):
            coming, self._coming = self._coming, None
            self._tell_if_late(coming)
            known = self._horizon.known_before(coming.offsets)
            if coming.horizon <= known or self._horizon.can_wait(known, self._clock.now()):
                self._turn(coming, known)
            else:
                self._read_again(coming)
        elif pages and self._page is not None and self._horizon.is_near(self._clock.now()):
            self._read_again(self._page)

    def _steer(self, controls: Controls) -> None:
        self._gate.steer(controls, self._clock.now())
        self._steered = True
        log.info("controls: %s", controls.to_json())

    def _tell_if_late(self, page: Opened) -> None:
        late = 0 if self._page is None else self._clock.now() - self._page.horizon
        if late > 0:  # what only the book knew could not be fired meanwhile
            text = "page %d comes %.1f s after the end of the one before: if that repeats, raise PAGE_LENGTH"
            log.warning(text, page.number, late / 1000)

    def _read_again(self, page: Opened) -> None:
        log.info("page %d reaches further than what was kept; reading the tail again", page.number)
        self._reopen(page)
        self._catch_up()

    def _reaches(self, page: Opened) -> bool:
        # The page may know more than this wheel has read: its rows would be fired on an older view.
        return all(ledger.position >= page.offsets.get(source, 0) for source, ledger in self.ledgers.items())

    def _turn(self, page: Opened, known: int) -> None:
        """The page takes over from the one in use: no fence, no gap."""
        for source, ledger in self.ledgers.items():
            ledger.turn(page.offsets.get(source, 0))
        # rows of the old page, waiting letters and quarantined ones: the new page brings them again
        self._lineup.turn(page.page, lambda entry: entry.ledger.alive(entry))
        self._chores.turn()
        self._ward.turn()
        self._horizon.turn(self._positions(), page.offsets, page.horizon, known)
        self._use(page)

    def _reopen(self, page: Opened) -> None:
        """The page becomes the only memory; the log is read again from its offsets."""
        for source, ledger in self.ledgers.items():
            ledger.reset(page.offsets.get(source, 0))
        self._tail.seek(self._positions())
        self._chores.clear()
        self._ward.quarantine.clear()
        self._horizon.begin(self._positions(), page.horizon)
        self._lineup.begin(page.page)
        self._use(page)

    def _use(self, opened: Opened) -> None:
        self._page = opened
        page.adopt(opened.page, self.ledgers, self._keep, self._chores.bury)

    def _positions(self) -> dict[ports.Source, int]:
        return {source: ledger.position for source, ledger in self.ledgers.items()}

    # Rules 7 and 12, and the report.

    def _watch(self) -> None:
        if self._pulse.look(urgent=self._trouble is not None):
            self._trouble = self._pulse.trouble
        self.state = "paused" if self._trouble or self._gate.shut else "firing"
        self._report_in_time()

    def _report_in_time(self) -> None:
        if self._clock.monotonic() - self._reported >= REPORT:
            self._report()

    def _report(self) -> None:
        self._reported = self._clock.monotonic()
        for ledger in self.ledgers.values():
            ledger.note()
        self._claims.report(self.status())

    def _say(self, state: str, why: str | None = None) -> None:
        now = self._clock.monotonic()
        if (state, why) != self._said[:2] or now - self._said[2] > SAY_AGAIN:
            log.info("%s%s", state, f": {why}" if why else "")
            self._said = (state, why, now)
        self.state, self._trouble = state, why
        if self._clock.monotonic() - self._reported >= REPORT or state in ("replaced", "stopped"):
            self._report()

    def idle(self) -> bool:
        """Is all read that has come, all done that is due, and nothing to do until something comes or falls due?"""
        return (
            self.state == "firing"
            and all(ledger.at_end or ledger.halted for ledger in self.ledgers.values())
            and self._lineup.idle(self._clock.now())
            and self._chores.none()
        )

    def status(self) -> dict[str, Any]:
        """How the wheel is, for people and metrics."""
        return {
            "state": self.state,
            "why": self._trouble or (f"paused by {self._gate.controls.by or 'somebody'}" if self._gate.shut else None),
            "page": self._page.number if self._page else None,
            "horizon": self._page.horizon if self._page else None,
            "positions": [[t, p, offset] for (t, p), offset in self._positions().items()],
            "next_due": self._lineup.next_due(),
            "missed": self._lineup.behind,
            "in_memory": len(self._lineup),
            "seen": sum(map(len, self.ledgers.values())),
            "net": sum(ledger.net for ledger in self.ledgers.values()),
            "nets": self._nets(),
            "adrift": sum(len(ledger.adrift) for ledger in self.ledgers.values()),
            "quarantine": {target: len(kept.entries) for target, kept in self._ward.quarantine.items()},
            "hanging": self._pulse.hanging(),
            "halted": [[t, p, ledger.halted] for (t, p), ledger in self.ledgers.items() if ledger.halted],
            "controls": self._gate.controls.fields(),
            "held": self._lineup.held(),
            "planned": sum(ledger.planned for ledger in self.ledgers.values()),
            "cancelled": sum(ledger.cancelled for ledger in self.ledgers.values()),
            "lag": self._pulse.lag(),
            "open_ms": self._pulse.open_ms(),
            "clock_ms": self._clock.broker_ms,
            **self.tally.report(),
        }

    def _nets(self) -> dict[str, int]:
        """By topic, how many more (or fewer) wait than the page's book knew."""
        found: Counter[str] = Counter()
        for (topic, _), ledger in self.ledgers.items():
            found[topic] += ledger.net
        return dict(found)


def _due(batch: Sequence[Entry]) -> int:
    """When all of it is due; what is due last stands last, or first."""
    return max(batch[0].due, batch[-1].due)
