"""The scheduler without Kafka, Java or Spark, up in a moment, for tests of programs that schedule messages.

    with Mini() as mini:
        Scheduler({"bootstrap.servers": mini.bootstrap_servers}).schedule(message, "id", after=timedelta(hours=1))
        mini.advance(timedelta(hours=1))
        assert mini.records("reminders")[0].value == b"..."

The wheel is the same, in a thread instead of a Spark task. The rest is smaller: Kafka is a mock cluster in this process
(`cluster` says what it lacks), there is no book and no page, all that is pending is in memory, and all of it is gone at
the end.
"""

import logging
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple, Self

from almanac import errors, formats, wheel
from almanac import ports as seam
from almanac.ledger import Ledger
from almanac.mini import ports
from almanac.mini.clock import MovableClock
from almanac.mini.cluster import Cluster
from almanac.record import Record
from almanac.settings import Settings, is_topic

if TYPE_CHECKING:
    from almanac.mini.bridging import Bridging

log = logging.getLogger("almanac.mini")

SETTLE = 10.0  # seconds
DAY = 86_400_000  # ms
FOREVER = 1 << 60  # ms: no page brings what is due later, so everything is kept
_TOO_MUCH = (
    "more was written at once to a partition of schedules or timer requests than mini could read: the mock cluster "
    "keeps 5 MB of each. Write less at once, or use `almanac up`, a real Kafka"
)


class Turn(NamedTuple):
    """How a wheel was at the beginning of a turn."""

    at: float  # monotonic seconds
    idle: bool
    positions: dict[seam.Source, int]  # of partitions that are not halted

    def settled(self, since: float, ends: dict[seam.Source, int]) -> bool:
        """Was it idle after that time, with all read up to these ends?"""
        return self.at >= since and self.idle and all(at >= ends[source] for source, at in self.positions.items())


class Mini:
    """A scheduler and its Kafka. Start it once."""

    def __init__(self, settings: Settings | None = None) -> None:
        """Of the settings, those count that say what is scheduled and how; Kafka, book and Spark are not there."""
        self.settings = settings or Settings()
        self._clock = MovableClock()
        self._cluster: Cluster | None = None
        self._wheels: list[_Turning] = []
        self._bridging: Bridging | None = None
        self._fired = 0  # by wheels that have ended
        self._sources: list[seam.Source] = []

    # Life

    def start(self) -> Self:
        """Returns when the wheels fire."""
        if self._cluster is not None:
            raise errors.AlmanacError("mini is started already")
        cluster = self._cluster = Cluster()
        nothing: dict[str, str] = {}  # what was told of another Kafka does not count
        settings = self.settings = self.settings.replaced(
            bootstrap_servers=cluster.bootstrap_servers,
            kafka_common=nothing, kafka_producer=nothing, kafka_consumer=nothing,
        )  # fmt: skip
        try:
            for topic in filter(None, (settings.history_topic, settings.dead_letters_topic)):
                cluster.make_topic(topic)
            self._sources = cluster.sources(settings.topics)
            shards = min(settings.shards or 1, 1 + max(partition for _, partition in self._sources))
            for shard in range(shards):
                mine = [source for source in self._sources if source[1] % shards == shard]
                self._wheels.append(_Turning(settings, cluster, self._clock, mine))
            if settings.request_topics:
                from almanac.mini.bridging import Bridging  # loads protobuf, which others do without

                self._bridging = Bridging(settings, cluster, self._clock)
            self.settle()
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Ends the wheels, then Kafka; safe to call twice."""
        threads: list[_Turning | Bridging] = [*self._wheels, *filter(None, (self._bridging,))]
        for thread in threads:
            thread.stop()
        for thread in threads:
            thread.close()
        self._fired, self._wheels, self._bridging = self.fired, [], None
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # What it is

    @property
    def bootstrap_servers(self) -> str:
        """Where clients of this machine connect that are built on librdkafka."""
        return self._running.bootstrap_servers

    @property
    def fired(self) -> int:
        """How many messages it has delivered."""
        return self._fired + sum(turning.wheel.tally.fired for turning in self._wheels)

    def check(self) -> None:
        """Raises what a wheel ended with, if one did."""
        for turning in self._wheels:
            if isinstance(turning.failure, seam.LogLost):
                raise errors.AlmanacError(_TOO_MUCH) from turning.failure
            if turning.failure is not None:
                raise errors.AlmanacError(f"a wheel ended: {turning.failure!r}") from turning.failure
        if self._bridging is not None and self._bridging.lost:
            raise errors.AlmanacError(_TOO_MUCH)
        if self._bridging is not None and self._bridging.failure is not None:
            raise errors.AlmanacError(f"the bridge ended: {self._bridging.failure!r}") from self._bridging.failure

    # Topics

    def make_topic(self, name: str) -> str:
        """A topic for those who read it before anything was written to it; returns its name."""
        if not is_topic(name):
            raise errors.UsageError(f"{name!r} is no topic's name: 1 to 249 of a-z A-Z 0-9 . _ -")
        self._running.make_topic(name)
        return name

    def records(self, topic: str) -> list[Record]:
        """All that is in a topic, the earliest first: `key`, `value`, `headers`, `timestamp` ..."""
        return self._running.records(topic)

    # Time

    @property
    def now(self) -> datetime:
        """The scheduler's time."""
        return datetime.fromtimestamp(self._clock.now() / 1000, UTC)

    def advance(self, by: timedelta) -> None:
        """Moves the clock. Before, all that was written is heeded; when it returns, all that fell due is delivered."""
        if by < timedelta():
            raise errors.TimeRefused(f"the clock cannot go back (by {by}): what was delivered stays delivered")
        if self._clock.now() + by / timedelta(milliseconds=1) > formats.LAST_DUE - DAY:
            raise errors.TimeRefused(f"the clock cannot go on by {by}: time ends with the year 9999")
        self.settle()
        self._clock.move(by / timedelta(milliseconds=1))
        self.settle()

    def advance_to(self, at: datetime) -> None:
        """Moves the clock to that time, unless it is later already."""
        if at.tzinfo is None:
            raise errors.TimeRefused(f"{at!r} has no time zone: give one, such as datetime(..., tzinfo=UTC)")
        self.advance(max(timedelta(), at - self.now))

    def settle(self, seconds: float = SETTLE) -> None:
        """Waits until all that was written is read, and all that is due is delivered."""
        until = time.monotonic() + seconds
        ends: dict[seam.Source, int] = {}
        while (now := self._ends(until)) != ends:  # what was fired may have been a schedule
            ends = now
            self._await(ends, until)

    def _ends(self, until: float) -> dict[seam.Source, int]:
        if self._bridging is not None:
            self._bridging.settle(until)
            self.check()
        return self._running.ends(self._sources)

    def _await(self, ends: dict[seam.Source, int], until: float) -> None:
        asked = time.monotonic()
        for turning in self._wheels:
            while not turning.settles(asked, ends):
                self.check()
                if time.monotonic() > until:
                    raise errors.AlmanacError(f"the scheduler does not come to rest: {turning.status()}")

    @property
    def _running(self) -> Cluster:
        if self._cluster is None:
            raise errors.AlmanacError("mini is not started, or closed")
        return self._cluster


class _Turning:
    """A wheel in its thread."""

    def __init__(
        self, settings: Settings, cluster: Cluster, clock: MovableClock, sources: Sequence[seam.Source]
    ) -> None:
        self.failure: BaseException | None = None
        self._stopping = threading.Event()
        self._turned = threading.Condition()
        self._turn = Turn(0.0, False, {})
        grace = settings.schedule_grace_interval * 1000
        kinds = {topic: formats.named(name, grace) for topic, name in settings.sources}
        options = wheel.Options(
            history=settings.history_topic,
            dead_letters=settings.dead_letters_topic,
            fires=settings.fires_per_transaction,
            bytes=settings.transaction_bytes,
            ahead=0,  # what is not begun early need not be taken back when the clock jumps
            since_delta=settings.since_delta,
            keep=FOREVER,
            forbidden=settings.forbids if settings.targets_allow or settings.targets_deny else None,
        )
        self._tail, self._writer = ports.Tail(settings, sources), ports.Writer(settings, cluster, clock)
        self.wheel = wheel.Wheel(
            # Nobody can delete a topic and make it anew: its name will do for its id.
            [Ledger(topic, partition, topic, kinds[topic]) for topic, partition in sources],
            self._tail, self._writer, ports.Claims(self._at_turn), clock, options,
            lambda page: page,
        )  # fmt: skip
        self._thread = threading.Thread(target=self._run, name="almanac wheel", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.wheel.run()
        except BaseException as error:
            log.exception("the wheel ended")
            self.failure = error

    def _at_turn(self) -> bool:
        now = time.monotonic()
        positions = {source: ledger.position for source, ledger in self.wheel.ledgers.items() if not ledger.halted}
        with self._turned:
            self._turn = Turn(now, self.wheel.idle(), positions)
            self._turned.notify_all()
        return self._stopping.is_set()

    def settles(self, since: float, ends: dict[seam.Source, int]) -> bool:
        """Waits a moment for a turn at which all up to these ends was read and done; says whether there was one."""
        with self._turned:
            return self._turned.wait_for(lambda: self._turn.settled(since, ends), 0.1)

    def status(self) -> str:
        """For people."""
        return f"{self.wheel.state}, read up to {self._turn.positions}"

    def stop(self) -> None:
        self._stopping.set()

    def close(self) -> None:
        self._thread.join(ports.ANSWER)
        self._tail.close()
        self._writer.close()
