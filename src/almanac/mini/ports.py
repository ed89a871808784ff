"""A wheel's ports on the mock cluster, which has no transactions worth the name, and in one process, where nobody
else could claim a shard.

A transaction is kept here until its commit and then written: so what was aborted is never seen, as with Kafka. Unlike
with Kafka, the records of one commit become visible one after the other, within a millisecond or two.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from almanac import kafka, ports, tail, topics
from almanac.clock import Clock
from almanac.mini.cluster import QUICK, Cluster
from almanac.outgoing import Outgoing
from almanac.page import Page
from almanac.record import Record
from almanac.settings import SIZE_MARGIN, Settings
from almanac.wheel import Opened

ANSWER = 10.0  # seconds
NAP = 0.02  # seconds that an idle wheel waits at most: who moved the clock waits for it
OVERHEAD = 72  # bytes of a batch with one record, beside key, value and headers


class Tail(tail.KafkaTail):
    """See ports.Tail."""

    def __init__(self, settings: Settings, sources: Sequence[ports.Source]) -> None:
        super().__init__(settings, sources, QUICK)
        for topic in {topic for topic, _ in sources}:  # a consumer that does not know its topics may wait a second
            self._consumer.list_topics(topic, timeout=ANSWER)

    def poll(self, seconds: float) -> list[Record | ports.End]:
        """See ports.Tail."""
        return super().poll(min(seconds, NAP))

    def close(self) -> None:
        """Ends reading, and all threads of it: in other people's tests there may be hundreds of these."""
        super().close()
        if self._asking.is_alive():
            self._asking.join(ANSWER)
        del self._admin


class Writer:
    """See ports.Writer."""

    def __init__(self, settings: Settings, cluster: Cluster, clock: Clock) -> None:
        self._cluster, self._clock = cluster, clock
        self._kept = {settings.history_topic, settings.dead_letters_topic}
        largest = topics.MESSAGE_BYTES + SIZE_MARGIN + (1 << 20)
        more = {"linger_ms": 0, "message_max_bytes": largest, "queue_buffering_max_messages": 2_000_000}
        self._producer = Producer(kafka.producer(settings, **more))
        self._producer.list_topics(timeout=ANSWER)  # its first message would wait half a second otherwise
        self._held: list[Outgoing] = []
        self.marks: dict[ports.Source, ports.Mark] = {}  # how far the bridge has read; nobody else has any

    def renew(self) -> None:
        """See ports.Writer."""
        self._held = []

    def begin(self) -> None:
        """See ports.Writer."""
        self._held = []

    def send(self, records: Iterable[Outgoing], stamped: bool = False) -> None:
        """See ports.Writer. All are stamped that have a timestamp."""
        self._held += records

    def flush(self) -> None:
        """See ports.Writer."""

    def hold(self, records: Sequence[Outgoing]) -> Sequence[Outgoing]:
        """See ports.Writer: all are sent when they are due."""
        return records

    def commit(self, marks: Mapping[ports.Source, ports.Mark] | None = None) -> None:
        """See ports.Writer."""
        refused = self._refused(self._held)
        if refused:
            raise ports.Refused(next(iter(refused.values())).detail)
        self._write()
        self.marks |= marks or {}

    def abort(self) -> None:
        """See ports.Writer."""
        self._held = []

    def attempt(
        self, records: Sequence[Outgoing], marks: Mapping[ports.Source, ports.Mark] | None = None
    ) -> dict[int, ports.Fault]:
        """See ports.Writer."""
        refused = self._refused(records)
        if not refused:
            self._held = list(records)
            self._write()
            self.marks |= marks or {}
        return refused

    def partitions(self, topic: str) -> int:
        """See ports.Writer."""
        return self._cluster.make_topic(topic)

    def offline(self, topic: str) -> bool:
        """See ports.Writer."""
        return False

    def close(self) -> None:
        """Its threads end with the producer; who holds us may be collected much later."""
        del self._producer

    def _refused(self, records: Sequence[Outgoing]) -> dict[int, ports.Fault]:
        """Rule 8: looked for before anything is written, since nothing could be taken back."""
        return {number: fault for number, out in enumerate(records) if (fault := self._fault(out)) is not None}

    def _fault(self, out: Outgoing) -> ports.Fault | None:
        count = self.partitions(out.topic)
        if out.partition >= count:
            return ports.Fault("message", f"{out.topic} has {count} partitions, none with the number {out.partition}")
        limit = topics.MESSAGE_BYTES + (SIZE_MARGIN if out.topic in self._kept else 0)  # Kafka's, and rule 9
        if (size := _size(out)) > limit:
            return ports.Fault("size", f"{out.topic} takes {limit} bytes, not {size}")
        return None

    def _write(self) -> None:
        failed: list[str] = []

        def told(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failed.append(f"{message.topic()}: {error.str()}")

        now = self._clock.now()  # on a clock that was moved a message must not look as if it came early
        try:
            for out in self._held:
                headers: Any = out.headers
                self._producer.produce(
                    out.topic, out.value, out.key, out.partition,
                    on_delivery=told, timestamp=out.timestamp or now, headers=headers,
                )  # fmt: skip
            left = self._producer.flush(ANSWER)
        except (BufferError, KafkaException) as error:
            raise ports.Unavailable(f"the mock cluster does not take it: {error}") from error
        self._held = []
        if failed or left:
            raise ports.Unavailable(failed[0] if failed else f"{left} records were not answered for")


class Claims:
    """See ports.Claims."""

    def __init__(self, turned: Callable[[], bool]) -> None:
        """`turned` is called at each turn of the wheel, in its thread; True: it is to stop."""
        self._turned = turned

    def start(self) -> Opened:
        """See ports.Claims. There is no book: the page is empty, and the log is read from its beginning."""
        return Opened(1, Page(), {}, 0)

    def superseded(self) -> str | None:
        """See ports.Claims."""
        return None

    def news(self) -> Sequence[ports.News]:
        """See ports.Claims."""
        return [ports.Stop()] if self._turned() else []

    def answer(self, ask: ports.Ask, position: int) -> Outgoing:
        """See ports.Claims. Nobody asks: there is no shard topic."""
        raise NotImplementedError

    def report(self, status: dict[str, Any]) -> None:
        """See ports.Claims. Who wants to know is told at each turn."""


def _size(out: Outgoing) -> int:
    named = sum(len(name) + len(value or b"") + 2 for name, value in out.headers)
    return OVERHEAD + len(out.key or b"") + len(out.value or b"") + named
