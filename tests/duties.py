"""Bridge and oscillator on the log in memory: any call of theirs to the outside may be their last."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from memory import Kafka, MemoryClaims, MemoryWriter

from almanac import bridge, duty, oscillator, outgoing, ports
from almanac.formats import timers
from almanac.record import Headers, Record

REQUESTS, SCHEDULES, LETTERS, TICKS = "timer-request", "schedules", "dead-letters", "oscillator"
BRIDGE, OSCILLATOR = 100, 101  # in place of a shard's number


class Crash(BaseException):
    """The process is gone."""


class Fuse:
    """Burns with every call; at its end the process dies, before the call does anything or before it is answered."""

    def __init__(self, length: int | None = None) -> None:
        self.left = length

    def burn(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Crash


class Fused:
    """Anything whose calls burn a fuse."""

    def __init__(self, thing: Any, fuse: Fuse) -> None:
        self._thing, self._fuse = thing, fuse

    def __getattr__(self, name: str) -> Any:
        work = getattr(self._thing, name)

        def burning(*arguments: Any) -> Any:
            self._fuse.burn()
            answer = work(*arguments)
            self._fuse.burn()
            return answer

        return burning


class FusedWriter(MemoryWriter):
    """A writer that may die between any two steps of a transaction."""

    def __init__(self, kafka: Kafka, shard: int, fuse: Fuse) -> None:
        super().__init__(kafka, shard)
        self._fuse = fuse

    def renew(self) -> None:
        self._fuse.burn()
        super().renew()
        self._fuse.burn()

    def begin(self) -> None:
        super().begin()
        self._fuse.burn()

    def send(self, records: Iterable[outgoing.Outgoing], stamped: bool = False) -> None:
        for out in records:
            super().send([out], stamped)
            self._fuse.burn()

    def commit(self, marks: Mapping[ports.Source, ports.Mark] | None = None) -> None:
        self._fuse.burn()
        super().commit(marks)
        self._fuse.burn()


class MemoryPost(MemoryClaims):
    """See ports.Post."""

    def __init__(self, world: "World", shard: int, owner: int | None) -> None:
        super().__init__(world.kafka, shard, Any, owner)  # type: ignore[arg-type]  # it has no pages
        self._world = world

    def memory(self) -> dict[str, Any] | None:
        return None if self._world.memory is None else dict(json.loads(self._world.memory))

    def remember(self, memory: dict[str, Any]) -> None:
        self._world.memory = json.dumps(memory)


class MemoryInbox:
    """See ports.Inbox."""

    def __init__(self, world: "World", most: int = 3) -> None:
        self._world, self._most = world, most
        self._positions: dict[ports.Source, int] = {}

    def look(self) -> dict[ports.Source, ports.Partition]:
        kafka = self._world.kafka
        if kafka.away:
            raise ports.Unavailable("away")
        return {
            source: ports.Partition(id_, self._world.low, kafka.log(*source).stable, kafka.marks.get(source))
            for source, id_ in self._world.sources.items()
        }

    def seek(self, positions: dict[ports.Source, int]) -> None:
        self._positions = dict(positions)

    def poll(self, seconds: float) -> list[Record | ports.End]:
        kafka, found = self._world.kafka, list[Record | ports.End]()
        for source, position in self._positions.items():
            log = kafka.log(*source)
            found += [r for r in log.committed() if position <= r.offset < log.stable][: self._most]
            if found:
                self._positions[source] = reached = found[-1][2] + 1
                # As Kafka does: the end may come along with the last records.
                return [*found, *([ports.End(*source, log.stable)] if reached >= log.stable else [])]
        kafka.clock.time += seconds * 1000
        return [ports.End(*source, kafka.log(*source).stable) for source in self._positions]


class MemoryDial:
    """See ports.Dial."""

    def __init__(self, world: "World") -> None:
        self._kafka = world.kafka

    def last(self) -> int | None:
        log = self._kafka.log(TICKS)
        if log.stable < log.end:
            raise ports.Unavailable("an open transaction")
        return max((int(record.key or b"") for record in log.committed()), default=None)


class World:
    """A Kafka, and whoever does the duty on it now."""

    def __init__(self, partitions: int = 2, **options: Any) -> None:
        self.kafka = Kafka()
        self.clock = self.kafka.clock
        self.sources = {(REQUESTS, number): "id-1" for number in range(partitions)}
        self.low = 0
        self.memory: str | None = None
        self.fuse = Fuse()
        self._options = bridge.Options(**options)

    # Whoever asks

    def request(self, value: bytes, partition: int = 0, second: int = 1_900_000_000, headers: Headers = []) -> int:  # noqa: B006
        future = timers.Future(callBackTopic="target", callBackKey="key", callBack=value).SerializeToString()
        return self.kafka.write(REQUESTS, b"%d" % second, future, headers, partition)

    # Whoever serves

    def bridge(self, owner: int | None = None) -> "Serving":
        """One more instance; with an owner: the same task, run again."""
        post = MemoryPost(self, BRIDGE, owner)
        writer = FusedWriter(self.kafka, BRIDGE, self.fuse)
        fused: Any = Fused(post, self.fuse)
        work = bridge.Bridge(Fused(MemoryInbox(self), self.fuse), writer, fused, self.clock, self._options)
        return Serving(duty.Duty("bridge", work, writer, fused, self.clock), work, post, writer)

    def oscillator(self, owner: int | None = None) -> "Serving":
        post = MemoryPost(self, OSCILLATOR, owner)
        writer = FusedWriter(self.kafka, OSCILLATOR, self.fuse)
        fused: Any = Fused(post, self.fuse)
        work = oscillator.Oscillator(Fused(MemoryDial(self), self.fuse), writer, self.clock, TICKS)
        return Serving(duty.Duty("oscillator", work, writer, fused, self.clock), work, post, writer)

    # What came of it

    def schedules(self) -> list[Record]:
        return self.kafka.read(SCHEDULES)

    def letters(self) -> list[Record]:
        return self.kafka.read(LETTERS)

    def ticks(self) -> list[Record]:
        return self.kafka.read(TICKS)


class Serving:
    """A duty, its work and its ports."""

    def __init__(self, served: duty.Duty, work: Any, post: MemoryPost, writer: FusedWriter) -> None:
        self.duty, self.work, self.post, self.writer = served, work, post, writer

    def begin(self) -> "Serving":
        self.post.start()
        assert self.duty.take_over() is None
        return self

    def step(self) -> "Serving":
        """One step, and rule 6 if it ends in doubt."""
        try:
            self.duty.step()
        except ports.Unsettled:
            assert self.duty.take_over() is None
        return self

    def steps(self, number: int) -> "Serving":
        for _ in range(number):
            self.step()
        return self
