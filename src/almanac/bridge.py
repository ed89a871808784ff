"""The bridge: timer requests become schedules, each exactly once.

A topic of timer requests is not compacted and many requests share a key, so that none can be acknowledged there. Each
is written anew into a native schedules topic instead, in a transaction that also commits how far requests were read:

    timer-request/1/42   key 1893456000, Future{callbacks, call-7, "..."}
        ->  schedules    id timer-request/1/42, scheduler-epoch 1893456000, scheduler-target-topic callbacks,
                         scheduler-target-key call-7, scheduler-request timer-request/1/42, value "..."
        and             offset 43 of timer-request/1 in the group <group>-bridge

A request that cannot be read goes to the dead letters in the same transaction. Where to begin is asked after the fence:

    an offset was committed for this topic (by its id)   there
    none, but one is remembered (Kafka forgets offsets   there
      of a week ago)
    one that lies behind the end of the log (Kafka has   at the end; told as an error
      lost what it acknowledged)
    the topic is known, but not this partition, or it    at its beginning: nobody has read it
      was made anew
    the topic was never read                             at its end, or at its beginning if told so; committed at once,
                                                         as what comes from then on must not be missed
"""

import logging
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from almanac import outgoing, ports
from almanac.clock import Clock
from almanac.formats import etf1, timers
from almanac.outgoing import Outgoing
from almanac.record import Headers, Record

log = logging.getLogger("almanac.bridge")

LOOK = 10_000  # ms between looks at the request topics: more partitions, or made anew
REMEMBER = 1_000  # ms between notes how far it is, for when Kafka has forgotten its offsets
WAIT = 0.1  # seconds for requests to come


@dataclass(frozen=True)
class Options:
    """How the bridge works."""

    topic: str = "schedules"  # where requests go
    dead_letters: str = "dead-letters"
    earliest: bool = False  # whether all requests of a topic that was never read are wanted
    requests: int = 4_000  # a transaction
    bytes: int = 16 << 20  # a transaction


class Bridge:
    """See the module, and duty.Work."""

    doing = "bridging"
    trouble: str | None = None

    def __init__(
        self, inbox: ports.Inbox, writer: ports.Writer, post: ports.Post, clock: Clock, options: Options
    ) -> None:
        self.bridged = 0
        self.letters: Counter[str] = Counter()
        self.lost = 0  # requests that their topic deleted before they were read
        self._inbox, self._writer, self._post, self._clock, self._options = inbox, writer, post, clock, options
        self._first: dict[str, str] = {}  # the id that each topic had when it was read first
        self._partitions: dict[ports.Source, ports.Partition] = {}
        self._marks: dict[ports.Source, ports.Mark] = {}  # how far all is committed
        self._prefixes: dict[ports.Source, bytes] = {}  # of the ids
        self._others: dict[ports.Source, ports.Mark] = {}  # of topics that are not bridged now
        self._ends: dict[ports.Source, int] = {}  # which ends were reached
        self._queue: deque[Record] = deque()
        self._most = options.requests  # fewer while one is looked for that does not fit
        self._shrunk = 0  # how often the head of the queue did not fit
        self._looked = self._remembered = 0.0

    # Where to begin

    def begin(self) -> None:
        """See duty.Work."""
        memory = self._post.memory() or {"first": {}, "marks": []}
        remembered = {(topic, number): ports.Mark(*mark) for topic, number, *mark in memory["marks"]}
        self._partitions = self._inbox.look()
        self._looked = self._clock.monotonic()
        self._marks = {
            source: ports.Mark(self._where(source, partition, remembered), partition.topic_id)
            for source, partition in self._partitions.items()
        }
        self._first = {**{topic: mark.topic_id for (topic, _), mark in self._marks.items()}, **memory["first"]}
        self._prefixes = {
            source: timers.prefix(*source, mark.topic_id if mark.topic_id != self._first[source[0]] else None)
            for source, mark in self._marks.items()
        }
        self._others = {source: mark for source, mark in remembered.items() if source not in self._marks}
        self._queue.clear()
        self._ends = {}
        self._most, self._shrunk = self._options.requests, 0
        if any(self._partitions[source].mark != mark for source, mark in self._marks.items()):
            self._commit(self._marks)
        self._remember()
        self._inbox.seek({source: mark.offset for source, mark in self._marks.items()})

    def _where(
        self, source: ports.Source, partition: ports.Partition, remembered: dict[ports.Source, ports.Mark]
    ) -> int:
        for mark in (partition.mark, remembered.get(source)):
            if mark is not None and mark.topic_id in ("", partition.topic_id):
                self._notice_loss(source, partition.low - mark.offset)
                if mark.offset > partition.stable:  # an unclean election, or a disk that forgot
                    text = "%s/%d ends at %d, but was bridged up to %d: Kafka has lost what it acknowledged"
                    log.error(text, *source, partition.stable, mark.offset)
                return min(max(mark.offset, partition.low), partition.stable)
        # The memory is written after the first commit: either tells that the topic was bridged before.
        marked = (each for each, found in self._partitions.items() if found.mark is not None)
        known = any(topic == source[0] for topic, _ in (*remembered, *marked))
        return partition.low if known or self._options.earliest else partition.stable

    def _notice_loss(self, source: ports.Source, count: int) -> None:
        if count > 0:
            self.lost += count
            log.error("%s/%d has deleted up to %d requests before they were read: make its retention longer than the "
                      "scheduler may be down", *source, count)  # fmt: skip

    def _remember(self) -> None:
        self._remembered = self._clock.monotonic()
        marks = [[*source, *mark] for source, mark in {**self._others, **self._marks}.items()]
        memory = {"first": self._first, "marks": marks}
        if memory != self._post.memory():
            self._post.remember(memory)

    def _look_again(self) -> None:
        before, self._partitions = self._partitions, self._inbox.look()
        self._looked = self._clock.monotonic()
        if {s: p.topic_id for s, p in before.items()} != {s: p.topic_id for s, p in self._partitions.items()}:
            log.info("the request topics have changed: looking where to go on")
            self.begin()
            return
        if not self._queue:  # a requester's transactions leave markers behind its records: read, too
            marks = {
                s: ports.Mark(max(end, self._marks[s].offset), before[s].topic_id) for s, end in self._ends.items()
            }
            if marks.items() - self._marks.items():
                self._commit(marks)
                self._marks |= marks
        self._remember()

    # From there on

    def step(self) -> None:
        """See duty.Work."""
        if self._clock.monotonic() - self._looked >= LOOK:
            self._look_again()
        elif self._clock.monotonic() - self._remembered >= REMEMBER:
            self._remember()
        if len(self._queue) < self._most:
            found = self._inbox.poll(0 if self._queue else WAIT)
            self._queue.extend(each for each in found if isinstance(each, Record))
            self._ends |= {each[:2]: each.offset for each in found if isinstance(each, ports.End)}
        if self._queue:
            self._pass_on(self._batch())

    def end(self) -> None:
        """See duty.Work."""
        self._remember()

    def _batch(self) -> list[Record]:
        batch: list[Record] = []
        size = 0
        for record in self._queue:
            size += len(record.key or b"") + len(record.value or b"") + 400
            if record.headers:  # an unreadable request takes them along into the dead letters
                size += sum(len(name) + len(value or b"") for name, value in record.headers)
            if len(batch) >= self._most or (batch and size > self._options.bytes):
                break
            batch.append(record)
        return batch

    def _pass_on(self, batch: Sequence[Record]) -> None:
        reasons: Counter[str] = Counter()
        now = int(self._clock.wall())  # only bounds time stamps
        records = [out for record in batch if (out := self._written(record, now, reasons)) is not None]
        ends = {(record.topic, record.partition): record.offset + 1 for record in batch}
        marks = {source: ports.Mark(end, self._partitions[source].topic_id) for source, end in ends.items()}
        faults = self._write(records, marks)
        if not faults:
            for _ in batch:
                self._queue.popleft()
            self._marks |= marks
            self._most, self._shrunk = min(self._options.requests, 2 * self._most), 0
            self.bridged += len(records) - reasons.total()
            self.letters += reasons
        elif any(fault.kind == "size" for fault in faults.values()):
            # The broker judges a batch: one that is too large need not hold a record that is. Halves tell.
            self._shrunk += len(batch) == 1
            self._most = max(1, len(batch) // 2)
        else:  # our own topics: never a request's fault (rule 8)
            raise ports.Unavailable(f"cannot write schedules or dead letters: {next(iter(faults.values())).detail}")

    def _write(self, records: Sequence[Outgoing], marks: dict[ports.Source, ports.Mark]) -> dict[int, ports.Fault]:
        if self._most < self._options.requests:  # a culprit is looked for
            return self._writer.attempt(records, marks)
        try:  # to watch each record costs more than to write it
            self._writer.begin()
            self._writer.send(records, stamped=True)
            self._writer.commit(marks)
        except ports.Refused as error:
            log.debug("refused: %s", error)
            self._writer.abort()
            return self._writer.attempt(records, marks)
        return {}

    def _written(self, record: Record, now: int, reasons: Counter[str]) -> Outgoing | None:
        """The schedule; else a dead letter, a stub of one, and in the end nothing: whatever fits (rule 9)."""
        topic = self._options.topic
        try:
            good = schedule(record, topic, self._prefixes[record.topic, record.partition], now)
            if not self._shrunk:
                return good
            reason, detail, tries = "undeliverable", f"as a schedule it is too large for {topic}", self._shrunk - 1
        except Exception as error:  # rule 5: whatever is wrong with one request, it stops no other
            reason, detail, tries = "invalid", str(error) or type(error).__name__, self._shrunk
        if tries > 1:
            log.error("%s/%d/%d: its dead letter does not fit and is left out", *record[:3])
            return None
        reasons[reason] += 1
        return outgoing.dead_letter(record, record.offset, reason, detail, self._options.dead_letters, stub=tries == 1)

    def _commit(self, marks: dict[ports.Source, ports.Mark]) -> None:
        faults = self._writer.attempt([], marks)
        if faults:
            raise ports.Unavailable(f"cannot commit offsets: {next(iter(faults.values())).detail}")

    def status(self) -> dict[str, Any]:
        """See duty.Work."""
        return {
            "bridged": self.bridged,
            "dead_letters": dict(self.letters),
            "lost": self.lost,
            # a partition that was added has no mark until it is looked where to begin
            "behind": sum(
                max(0, p.stable - self._marks[s].offset) for s, p in self._partitions.items() if s in self._marks
            ),
            "positions": [[topic, number, mark.offset] for (topic, number), mark in self._marks.items()],
        }


def schedule(record: Record, topic: str, ids: bytes, now: int) -> Outgoing:
    """A request as a native schedule for `topic`; `ids` is the prefix of its partition. Raises Invalid."""
    _, target, key, value = timers.asked(record)
    own = b"%s%d" % (ids, record.offset)
    headers: Headers = [(etf1.EPOCH, record.key), (etf1.TOPIC, target), (etf1.KEY, key), (etf1.REQUEST, own)]
    timestamp = record.timestamp
    if not 0 <= timestamp <= now:  # one ahead of the broker's clock would be refused
        timestamp = max(0, min(timestamp, now))
    return Outgoing(topic, -1, timers.name(record, own), value, headers, timestamp)
