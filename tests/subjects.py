"""The same scheduler in two shapes, so that one suite of behaviour can try both.

MiniSubject   `almanac.mini` in this process: time is moved
RealSubject   `almanac run` on a real broker and a real Spark: time passes
"""

import contextlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import KafkaError, Message, Producer
from engine import Group, Scheduler, now
from waiting import until

from almanac.mini import Mini
from almanac.record import Record
from almanac.settings import Settings

FORMATS = ("etf1", "karafka", "sky-avro", "sky-json")
FUTURE = "future"  # a second topic in karafka's format, to be halted
SOON = 1_500  # ms: time for a real scheduler to hear of what is written


def told(name: str) -> dict[str, str]:
    """The settings of a subject whose topics begin with that name."""
    topics = {**{form: form for form in FORMATS}, FUTURE: "karafka", "timers": "timers"}
    return {"schedules_topics": ",".join(f"{name}-{topic}={form}" for topic, form in topics.items())}


class Subject(ABC):
    """A scheduler that runs."""

    def __init__(self, name: str, settings: Settings) -> None:
        self.name, self.settings = name, settings
        self._numbers = itertools.count(1)
        more = {"partitioner": "murmur2_random", "message.max.bytes": 4_000_000, "log_level": 0}
        self._producer = Producer({"bootstrap.servers": settings.bootstrap_servers, **more})

    def topic(self, form: str) -> str:
        """The schedules topic of that format; of `timers`, that of the requests."""
        return f"{self.name}-{form}"

    def new_target(self) -> str:
        """A topic that is there, and that nobody else uses."""
        name = f"{self.name}-target-{next(self._numbers)}"
        self.make_topic(name)
        return name

    def soon(self) -> int:
        """A due time shortly ahead, a whole second."""
        return (self.now() + SOON) // 1000 * 1000 + 1000

    def write(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Sequence[Any] = (), **more: Any
    ) -> None:
        """As any producer would; Kafka has it when it returns."""
        failed: list[KafkaError] = []

        def told(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed.append(error)

        self._producer.produce(topic, value, key, headers=list(headers), on_delivery=told, **more)
        assert self._producer.flush(10) == 0
        assert not failed

    def letters(self, key: bytes) -> list[Record]:
        """The dead letters of that id."""
        return [record for record in self.records(self.settings.dead_letters_topic) if record.key == key]

    @abstractmethod
    def now(self) -> int:
        """Epoch ms by the scheduler's clock."""

    @abstractmethod
    def make_topic(self, name: str) -> None:
        """With four partitions."""

    @abstractmethod
    def reach(self, due: int) -> None:
        """It is later than `due` (epoch ms), and all that was due by then is done."""

    @abstractmethod
    def records(self, topic: str) -> list[Record]:
        """All that a consumer finds in a topic that reads committed records, the earliest first."""

    @abstractmethod
    def close(self) -> None:
        """Ends it."""


class MiniSubject(Subject):
    """See the module."""

    def __init__(self) -> None:
        self._mini = Mini(Settings.model_validate(told("mini"))).start()
        super().__init__("mini", self._mini.settings)

    def now(self) -> int:
        return int(self._mini.now.timestamp() * 1000)

    def make_topic(self, name: str) -> None:
        self._mini.make_topic(name)

    def reach(self, due: int) -> None:
        self._mini.advance_to(datetime.fromtimestamp((due + 1) / 1000, UTC))

    def records(self, topic: str) -> list[Record]:
        return self._mini.records(topic)

    def close(self) -> None:
        self._mini.close()


class RealSubject(Subject):
    """See the module."""

    def __init__(self, group: Group, scheduler: Scheduler) -> None:
        super().__init__(group.name, group.settings)
        self._group, self._scheduler = group, scheduler

    def now(self) -> int:
        return now()

    def make_topic(self, name: str) -> None:
        self._group.make_topic(name)

    def reach(self, due: int) -> None:
        until(lambda: now() > due, (due - now()) / 1000 + 5, "the time comes")
        self._scheduler.quiet(due)

    def records(self, topic: str) -> list[Record]:
        with contextlib.closing(self._group.read(topic)) as reading:
            found = [Record(*got[:7]) for got in reading.to_the_end()]
        return sorted(found, key=lambda record: (record.timestamp, record.partition, record.offset))

    def close(self) -> None:
        self._group.close()
