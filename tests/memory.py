"""A log in memory with Kafka's rules as a wheel sees them: transactions, fencing, last stable offset, compaction.

It stands behind `ports` in the unit tests, so that time and interleaving are the test's to decide.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from almanac import controls, formats, outgoing, page, parquet, ports, wheel, words
from almanac.clock import Clock
from almanac.ledger import Ledger
from almanac.record import Headers, Record

TOPIC, TOPIC_ID = "schedules", "topic-id"
START = 1_800_000_000_000


class FakeClock(Clock):
    """Time that moves when somebody waits."""

    def __init__(self) -> None:
        self.time = float(START)
        self.skew = 0.0  # of the wall
        super().__init__()

    def wall(self) -> float:
        return self.time + self.skew

    def monotonic(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds * 1000


@dataclass
class Slot:
    """A place in a log: a record, or a transaction's marker (no record)."""

    record: Record | None
    transaction: "Transaction | None" = None


@dataclass
class Transaction:
    """Open until `state` says otherwise."""

    state: str = "open"
    marks: Mapping[ports.Source, ports.Mark] = field(default_factory=dict)


@dataclass
class Log:
    """One partition."""

    slots: dict[int, Slot] = field(default_factory=dict)
    clean: int = 0  # how far the cleaner has come
    end: int = 0
    stalled: bool = False  # a reader gets nothing, not even the end

    def append(self, slot: Slot) -> int:
        offset = self.end
        self.slots[offset] = slot
        self.end += 1
        return offset

    @property
    def stable(self) -> int:
        opened = [o for o, slot in self.slots.items() if slot.transaction and slot.transaction.state == "open"]
        return min(opened, default=self.end)

    def committed(self) -> list[Record]:
        return [
            slot.record
            for _, slot in sorted(self.slots.items())
            if slot.record is not None and (slot.transaction is None or slot.transaction.state == "committed")
        ]

    def compact(self) -> None:
        """The cleaner: of each key only the last record stays."""
        last = {record.key: record.offset for record in self.committed()}
        kept = set(last.values())
        self.slots = {o: s for o, s in self.slots.items() if s.record is None or o in kept}
        self.clean = self.end

    def forget_tombstones(self) -> None:
        """The cleaner, after delete.retention.ms."""
        self.compact()
        self.slots = {o: s for o, s in self.slots.items() if s.record is None or s.record.value is not None}


class Kafka:
    """All partitions, and who may write."""

    def __init__(self) -> None:
        self.logs: dict[ports.Source, Log] = {}
        self.epochs: dict[int, int] = {}
        self.claims: dict[int, list[tuple[str, Any]]] = {}
        self.clock = FakeClock()
        self.unknown: set[str] = set()  # topics that are not there
        self.offline: set[str] = set()  # topics nobody answers for
        self.away = False
        self.partitions: dict[str, int] = {}  # of targets
        self.limits: dict[str, int] = {}  # bytes a record of that topic may have
        self.marks: dict[ports.Source, ports.Mark] = {}  # committed offsets
        self.controls: controls.Controls | None = None  # as told last

    def log(self, topic: str, partition: int = 0) -> Log:
        return self.logs.setdefault((topic, partition), Log())

    def write(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers | None = None, partition: int = 0,
        timestamp: int | None = None,
    ) -> int:  # fmt: skip
        """As a user does."""
        log = self.log(topic, partition)
        at = int(self.clock.wall()) if timestamp is None else timestamp
        record = Record(topic, partition, log.end, at, key, value, list(headers or []))
        return log.append(Slot(record))

    def schedule(self, key: bytes, due: int, value: bytes = b"v", target: str = "target", partition: int = 0) -> int:
        headers: Headers = [("scheduler-epoch-ms", b"%d" % due), ("scheduler-target-topic", target.encode())]
        return self.write(TOPIC, key, value, headers, partition)

    def cancel(self, key: bytes, partition: int = 0) -> int:
        return self.write(TOPIC, key, None, partition=partition)

    def read(self, topic: str, partition: int = 0) -> list[Record]:
        """What a consumer that reads committed has seen."""
        return [r for r in self.log(topic, partition).committed() if r.offset < self.log(topic, partition).stable]

    def fired(self) -> list[bytes | None]:
        return [record.value for record in self.read("target")]


class MemoryTail:
    """See ports.Tail."""

    def __init__(self, kafka: Kafka, sources: Sequence[ports.Source]) -> None:
        self._kafka, self._sources = kafka, list(sources)
        self._positions: dict[ports.Source, int] = {}
        self._told: dict[ports.Source, int] = {}
        self.plan: list[tuple[float, Callable[[], object]]] = []  # what happens when, while the wheel waits
        self.answers = True  # whether the question for the ends is answered

    def seek(self, positions: dict[ports.Source, int]) -> None:
        self._positions = dict(positions)
        self._told = {}

    def at(self, time: float, action: Callable[[], object]) -> None:
        """Somebody does this at that time, even if the wheel is waiting then."""
        self.plan.append((time, action))
        self.plan.sort(key=lambda item: item[0])

    def poll(self, seconds: float) -> list[Record | ports.End]:
        clock = self._kafka.clock
        end = clock.time + seconds * 1000
        while not (found := self._read()) and self.plan and self.plan[0][0] <= end:
            time, action = self.plan.pop(0)
            clock.time = max(clock.time, time)
            action()
        if not found:
            clock.time = max(clock.time, end)
        return found

    def _read(self) -> list[Record | ports.End]:
        found: list[Record | ports.End] = []
        if self._kafka.away:
            return found
        for source in self._sources:
            log = self._kafka.log(*source)
            if log.stalled:
                continue
            stable = log.stable
            position = self._positions[source]
            found += [r for r in log.committed() if position <= r.offset < stable]
            self._positions[source] = max(position, stable)
            if self._told.get(source) != stable:
                self._told[source] = stable
                found.append(ports.End(*source, stable))
        return found

    def high(self) -> dict[ports.Source, int]:
        if self._kafka.away:
            raise ports.Unavailable("away")
        return {source: self._kafka.log(*source).end for source in self._sources}

    def stable(self) -> ports.Stable | None:
        if self._kafka.away or not self.answers:
            return None
        stable = {source: self._kafka.log(*source).stable for source in self._sources}
        return ports.Stable(self._kafka.clock.monotonic(), stable, self.high())


class MemoryWriter:
    """See ports.Writer."""

    def __init__(self, kafka: Kafka, shard: int) -> None:
        self._kafka, self._shard = kafka, shard
        self._epoch = -1
        self._transaction: Transaction | None = None
        self._logs: set[ports.Source] = set()
        self._refused: str | None = None
        self.before_commit: list[Callable[[], None]] = []
        self.while_flushing: list[Callable[[], None]] = []
        self.before_ours: list[Callable[[], None]] = []  # just before a record of ours reaches the schedules topic
        self.after_commit: list[Callable[[], None]] = []  # at each commit, when consumers may see it
        self.lose_answer = False  # the commit happens, its answer does not arrive
        self.held: list[outgoing.Outgoing] = []
        self.staged: list[str] = []

    def renew(self) -> None:
        if self._kafka.away:
            raise ports.Unavailable("away")
        self._epoch = self._kafka.epochs[self._shard] = self._kafka.epochs.get(self._shard, 0) + 1
        for log in self._kafka.logs.values():  # initialising aborts what an older producer left open
            for slot in list(log.slots.values()):
                owner = getattr(slot.transaction, "shard", None)
                if owner == self._shard and slot.transaction and slot.transaction.state == "open":
                    slot.transaction.state = "aborted"
        self._transaction = None

    def begin(self) -> None:
        self._check()
        self._transaction = Transaction()
        self._transaction.shard = self._shard  # type: ignore[attr-defined]
        self._logs = set()
        self._refused = None
        self.held = []
        self.staged = []

    def send(self, records: Iterable[outgoing.Outgoing], stamped: bool = False) -> None:
        for out in records:
            self._send(out if stamped else out._replace(timestamp=0))

    def _send(self, out: outgoing.Outgoing) -> None:
        self._check()
        if self._fault(out):
            self._refused = f"{out.topic} refused"
            return
        if out.topic == TOPIC:
            hooks, self.before_ours = self.before_ours, []
            for hook in hooks:  # what a hook adds waits for our next record
                hook()
        place = (out.topic, max(0, out.partition))
        log = self._kafka.log(*place)
        at = out.timestamp or int(self._kafka.clock.wall())
        log.append(Slot(Record(*place, log.end, at, out.key, out.value, list(out.headers)), self._transaction))
        self._logs.add(place)
        self.staged.append(out.topic)

    def flush(self) -> None:
        while self.while_flushing:
            self.while_flushing.pop(0)()
        self._check()

    def hold(self, records: Sequence[outgoing.Outgoing]) -> Sequence[outgoing.Outgoing]:
        self._check()
        self.held = list(records)
        return ()

    def commit(self, marks: Mapping[ports.Source, ports.Mark] | None = None) -> None:
        while self.before_commit:
            self.before_commit.pop(0)()
        self._check()
        for out in self.held:
            self._send(out._replace(timestamp=0))  # stamped when it arrives: it tells whether it was early
        if self._refused:
            raise ports.Refused(self._refused)
        if self._transaction is not None:
            self._transaction.marks = marks or {}
        self._end("committed")
        for hook in self.after_commit:
            hook()
        if self.lose_answer:
            self.lose_answer = False
            raise ports.Unavailable("the answer was lost")

    def abort(self) -> None:
        self._check()
        self._end("aborted")

    def attempt(
        self, records: Sequence[outgoing.Outgoing], marks: Mapping[ports.Source, ports.Mark] | None = None
    ) -> dict[int, ports.Fault]:
        self.begin()
        faults = {n: fault for n, out in enumerate(records) if (fault := self._fault(out))}
        if faults:
            self.abort()
            return faults
        self.send(records, stamped=True)
        self.commit(marks)
        return {}

    def partitions(self, topic: str) -> int:
        return self._kafka.partitions.get(topic, 1)

    def offline(self, topic: str) -> bool:
        return topic in self._kafka.offline

    def _end(self, state: str) -> None:
        assert self._transaction is not None
        self._transaction.state = state
        if state == "committed":
            self._kafka.marks.update(self._transaction.marks)
        for place in self._logs:
            self._kafka.log(*place).append(Slot(None))
        self._transaction = None

    def _fault(self, out: outgoing.Outgoing) -> ports.Fault | None:
        if out.topic in self._kafka.unknown:
            return ports.Fault("message", "unknown topic")
        if out.topic in self._kafka.offline:
            return ports.Fault("time-out", "no leader")
        if out.topic == TOPIC and out.key is None:
            return ports.Fault("message", "INVALID_RECORD: a compacted topic takes no record without a key")
        if len(out.key or b"") + len(out.value or b"") > self._kafka.limits.get(out.topic, 1 << 30):
            return ports.Fault("size", "too large")
        return None

    def _check(self) -> None:
        if self._kafka.away:
            raise ports.Unavailable("away")
        if self._kafka.epochs.get(self._shard) != self._epoch:
            raise ports.Fenced("fenced")


class MemoryClaims:
    """See ports.Claims: a list instead of a partition; `mine` is the index of the owner's claim."""

    def __init__(self, kafka: Kafka, shard: int, first_page: wheel.Opened, owner: int | None = None) -> None:
        self._list = kafka.claims.setdefault(shard, [])
        if owner is None:
            self._list.append(("owner", None))
            owner = len(self._list) - 1
        self.owner = owner
        self._start = -1
        self._page = first_page
        self._kafka, self._shard = kafka, shard
        # what people tell stands in the shard topic: who starts hears it again
        self._said: list[ports.News] = [kafka.controls] if kafka.controls is not None else []
        self.reports: list[dict[str, Any]] = []

    def start(self) -> wheel.Opened:
        self._list.append(("start", self.owner))
        self._start = len(self._list) - 1
        return self._page

    def say(self, news: ports.News) -> None:
        self._said.append(news)
        if isinstance(news, controls.Controls):
            self._kafka.controls = news

    def answer(self, ask: ports.Ask, position: int) -> outgoing.Outgoing:
        return outgoing.Outgoing("shards", self._shard, b"answer", f"{ask.id} {position}".encode(), [])

    def superseded(self) -> str | None:
        for at, (kind, owner) in enumerate(self._list):
            if (kind == "owner" and at > self.owner) or (kind == "start" and owner == self.owner and at > self._start):
                return f"record {at}"
        return None

    def news(self) -> list[ports.News]:
        said, self._said = self._said, []
        return said

    def report(self, status: dict[str, Any]) -> None:
        self.reports.append(status)


class MemoryPage(page.Page):
    """A page's rows without a file."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        rows = sorted(rows, key=lambda row: (row["mark"] is None, row["due"] or 0, row["version"]))
        self._rows = rows

    def batches(self, since: int) -> Iterator[page.Batch]:
        if self._rows:
            yield parquet.batch(pa.RecordBatch.from_pylist(self._rows, schema=_SCHEMA))


_SCHEMA = pa.schema(
    [
        ("mark", pa.string()), ("topic", pa.string()), ("partition", pa.int32()), ("key", pa.binary()),
        ("version", pa.int64()), ("kill", pa.int64()), ("due", pa.int64()), ("timestamp", pa.int64()),
        ("value", pa.binary()), ("pending", pa.bool_()), ("reason", pa.string()), ("slot", pa.int64()),
        ("headers", pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))),
    ]
)  # fmt: skip


def book(records: Sequence[Record], form: formats.Format) -> list[dict[str, Any]]:
    """The book of a log, by the letter of rules 3 to 5: one row per pending schedule, marked ones, garbage."""
    keys: dict[bytes, list[tuple[Record, words.Said]]] = {}
    disposed = set()
    for record in records:
        said = words.read(record, form, TOPIC_ID)
        keys.setdefault(record.key or b"", []).append((record, said))
        if isinstance(said, words.Disposal):
            disposed.add(said.of)
    rows = []
    for key, history in keys.items():
        for record, said in history:
            if isinstance(said, words.Garbage) and record.offset not in disposed:
                rows.append(_row(record.key, "garbage", record.offset, record, None, said.reason, slot=record.offset))
        kill, word = fold(said for _, said in history)
        last = history[-1][1]
        pending = word is not None and word.version > kill
        ours = isinstance(last, words.Disposal) or (isinstance(last, words.Word | words.Kill) and last.ours)
        if pending and word is not None:
            adrift = ours and not (isinstance(last, words.Word) and last.version == word.version)
            # a tombstone to the cleaner, or a peer's that acknowledges an older version
            adrift = adrift or (not ours and (word.record.value is None or isinstance(last, words.Kill)))
            rows.append(_row(key, "adrift" if adrift else None, word.version, word.record, word.schedule.due))
        elif ours and isinstance(last, words.Word):
            rows.append(_row(key, "adrift", max(kill, last.version), last.record, None, pending=False))
    return rows


def fold(said: Any) -> tuple[int, words.Word | None]:
    """The highest kill, and the word with the highest version."""
    kill, word = -1, None
    for each in said:
        if isinstance(each, words.Kill):
            kill = max(kill, each.version)
        elif isinstance(each, words.Word) and (word is None or each.version > word.version):
            word = each
    return kill, word


def _row(
    key: bytes | None, mark: str | None, version: int, record: Record, due: int | None, reason: str | None = None,
    pending: bool = True, slot: int = -1,
) -> dict[str, Any]:  # fmt: skip
    headers = [{"name": name, "value": value} for name, value in record.headers]
    return {
        "mark": mark, "topic": TOPIC, "partition": record.partition, "key": key, "version": version,
        "kill": version if not pending else -1, "due": due, "timestamp": record.timestamp, "value": record.value,
        "headers": headers, "pending": pending and mark != "garbage", "reason": reason, "slot": slot,
    }  # fmt: skip


class Rig:
    """A Kafka in memory and wheels on it."""

    def __init__(self, partitions: int = 1, form: str = "etf1", grace: int = 0, **options: Any) -> None:
        self.kafka = Kafka()
        self.clock = self.kafka.clock
        self.sources = [(TOPIC, p) for p in range(partitions)]
        self.options = options
        self.form = formats.named(form, grace)
        self.pages = 0

    def page(self, upto: dict[ports.Source, int] | None = None, horizon: int = 600_000) -> wheel.Opened:
        """A page of what is due within `horizon` ms, as the book stands at these offsets."""
        self.pages += 1
        due_before = int(self.clock.wall()) + horizon
        offsets = {}
        rows: list[dict[str, Any]] = []
        for source in self.sources:
            log = self.kafka.log(*source)
            # rule 10: a book that stands before what the cleaner has reached is not trusted
            offsets[source] = min(log.stable, max(log.clean, (upto or {}).get(source, log.stable)))
            known = [r for r in log.committed() if r.offset < offsets[source]]
            halts = [r.offset for r in known if isinstance(words.read(r, self.form, TOPIC_ID), words.Halt)]
            offsets[source] = min([offsets[source], *halts])
            known = [r for r in known if r.offset < offsets[source]]
            rows += [r for r in book(known, self.form) if r["mark"] or (r["due"] or 0) < due_before]
        return wheel.Opened(self.pages, MemoryPage(rows), offsets, due_before)

    def wheel(self, page_: wheel.Opened | None = None, shard: int = 0, owner: int | None = None) -> "Turning":
        return Turning(self, page_ or self.page(), shard, owner)


class Turning:
    """A wheel and its ports; `begin` takes the shard over, `run_for` lets time pass."""

    def __init__(self, rig: Rig, first: wheel.Opened, shard: int, owner: int | None) -> None:
        self.rig, self.kafka, self.clock = rig, rig.kafka, rig.clock
        self.tail = MemoryTail(rig.kafka, rig.sources)
        self.writer = MemoryWriter(rig.kafka, shard)
        self.claims = MemoryClaims(rig.kafka, shard, first, owner)
        ledgers = [Ledger(topic, partition, TOPIC_ID, rig.form) for topic, partition in rig.sources]
        options = wheel.Options(**rig.options)
        self.wheel = wheel.Wheel(
            ledgers, self.tail, self.writer, self.claims, rig.clock, options, lambda opened: opened
        )

    def begin(self) -> "Turning":
        self.wheel.begin()
        assert self.wheel.take_over() is None
        return self

    def run_for(self, ms: float) -> "Turning":
        end = self.clock.time + ms
        while self.clock.time < end:
            before = self.clock.time
            self.step_or_recover()
            if self.clock.time == before:
                self.clock.time += 1  # work takes time too
        return self

    def step_or_recover(self) -> None:
        """One step, and rule 6 if it ends in doubt."""
        try:
            self.wheel.step()
        except ports.Unsettled:
            if self.wheel.take_over() is not None:
                raise
