"""librdkafka's mock cluster: a Kafka address on this machine that lives in a client of this process.

What it has: produce, fetch, offsets, consumer groups, headers, timestamps; a topic is made when a producer (or anybody
who asks for its metadata) names it, with four partitions.

What it lacks, looked up in rdkafka_mock.c and tried with librdkafka 2.16:

    admin requests      no topic can be created with partitions or settings of its own, altered, described or deleted
    transactions        are accepted, but records are visible before the commit and after an abort, and nobody is fenced
    compaction          none; a partition keeps its last 5 MB or 100,000 batches, older ones are dropped
    long polls          a fetch that finds nothing answers after fetch.wait.max.ms, not when something comes
    sizes               whatever the client sends is taken
    other machines      it listens on 127.0.0.1, at a port that the system chooses
    other clients       Java's own (4.1) finds no topic there; those built on librdkafka do
"""

import logging
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from almanac import errors, ports, tail
from almanac.record import Record

log = logging.getLogger("almanac.mini")

ANSWER = 5.0  # seconds
QUICK = 5  # ms that a fetch waits for something to come


class Cluster:
    """One mock broker; it is there from the start to `close()`."""

    def __init__(self) -> None:
        mock: dict[str, Any] = {"test.mock.num.brokers": 1, "bootstrap.servers": "mock:1", "logger": log}
        self._home: Producer | None = Producer(mock)  # the cluster ends with it
        brokers = self._home.list_topics(timeout=ANSWER).brokers.values()
        self.bootstrap_servers = ",".join(f"{each.host}:{each.port}" for each in brokers)
        self._admin = AdminClient(self.client)
        self._partitions: dict[str, int] = {}  # of topics that are there; it never changes

    @property
    def client(self) -> dict[str, Any]:
        """For librdkafka's clients."""
        return {"bootstrap.servers": self.bootstrap_servers, "logger": log}

    def make_topic(self, name: str) -> int:
        """Makes it unless it is there; says how many partitions it has."""
        if name in self._partitions:
            return self._partitions[name]
        found = self._running.list_topics(name, timeout=ANSWER).topics[name]
        if found.error is not None:
            raise errors.UsageError(f"topic {name!r}: {found.error}")
        self._partitions[name] = len(found.partitions)
        return self._partitions[name]

    def sources(self, topics: Sequence[str]) -> list[ports.Source]:
        """Every partition of these topics, which are made if they are not there."""
        return [(topic, partition) for topic in topics for partition in range(self.make_topic(topic))]

    def ends(self, sources: Sequence[ports.Source]) -> dict[ports.Source, int]:
        """Where these partitions end."""
        return tail.ends(self._admin, sources, IsolationLevel.READ_UNCOMMITTED)

    def beginnings(self, sources: Sequence[ports.Source]) -> dict[ports.Source, int]:
        """Where these partitions begin."""
        return tail.beginnings(self._admin, sources)

    def records(self, topic: str) -> list[Record]:
        """All that is in a topic, as its consumers see it, in order of time stamp, partition and offset."""
        sources = self.sources([topic])
        ends, found = self.ends(sources), list[Record]()
        reading = {"group.id": "almanac-mini", "enable.auto.commit": False, "enable.partition.eof": True}
        consumer = Consumer({**self.client, **reading, "auto.offset.reset": "earliest", "fetch.wait.max.ms": QUICK})
        until = time.monotonic() + ANSWER
        try:
            # Asked here: a consumer that has to find out by itself may wait for up to a second before it does.
            consumer.list_topics(topic, timeout=ANSWER)
            begin = self.beginnings(sources)
            if dropped := sum(begin.values()):
                raise errors.AlmanacError(
                    f"{topic}: the mock cluster keeps 5 MB or 100,000 batches of a partition, and has dropped the "
                    f"{dropped} oldest records. Write less, or use `almanac up`, a real Kafka"
                )
            consumer.assign([TopicPartition(topic, partition, offset) for (_, partition), offset in begin.items()])
            while ends:
                for said in map(tail.said, consumer.consume(1_000, 0.01)):
                    if isinstance(said, Record):
                        found.append(said)
                    elif said is not None and said.offset >= ends.get(said[:2], 1 << 62):
                        del ends[said[:2]]
                if time.monotonic() > until:
                    raise errors.Unreachable(f"topic {topic} cannot be read to its end")
        finally:
            consumer.close()
        return sorted(found, key=lambda record: (record.timestamp, record.partition, record.offset))

    def close(self) -> None:
        """The cluster, and all that was in it, is gone."""
        if self._home is not None:
            del self._admin  # its threads end with it; who holds us may be collected much later
            self._home = None

    @property
    def _running(self) -> Producer:
        if self._home is None:
            raise errors.AlmanacError("mini is closed; start another one")
        return self._home
