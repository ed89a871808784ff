"""The bridge in mini: timer requests become schedules, in a thread beside the wheels."""

import logging
import threading
import time
from typing import Any

from confluent_kafka import Consumer

from almanac import bridge, duty, errors, inbox, kafka
from almanac import ports as seam
from almanac.clock import Clock
from almanac.mini import ports
from almanac.mini.cluster import QUICK, Cluster
from almanac.settings import Settings

log = logging.getLogger("almanac.mini")

GLANCE = 0.002  # seconds between looks whether all is passed on


class Inbox(inbox.KafkaInbox):
    """See ports.Inbox. Topics are never made anew; how far they were read, the writer knows."""

    def __init__(self, settings: Settings, cluster: Cluster, writer: ports.Writer) -> None:
        self.sources, self._cluster, self._writer = cluster.sources(settings.request_topics), cluster, writer
        self.consumer = Consumer(kafka.consumer(settings, group_id=settings.bridge_group, fetch_wait_max_ms=QUICK))
        for topic in settings.request_topics:  # a consumer that does not know its topics may wait a second
            self.consumer.list_topics(topic, timeout=ports.ANSWER)

    def look(self) -> dict[seam.Source, seam.Partition]:
        """See ports.Inbox."""
        low, ends = self._cluster.beginnings(self.sources), self._cluster.ends(self.sources)
        marks = self._writer.marks
        return {s: seam.Partition(s[0], low[s], end, marks.get(s)) for s, end in ends.items()}


class Post(ports.Claims):
    """See ports.Post. What ends with the process need not be remembered."""

    def start(self) -> Any:
        """See ports.Post."""

    def memory(self) -> None:
        """See ports.Post."""

    def remember(self, memory: dict[str, Any]) -> None:
        """See ports.Post."""


class Bridging:
    """The bridge in its thread."""

    def __init__(self, settings: Settings, cluster: Cluster, clock: Clock) -> None:
        self.failure: BaseException | None = None
        self._cluster, self._stopping = cluster, threading.Event()
        self._writer, post = ports.Writer(settings, cluster, clock), Post(self._stopping.is_set)
        self._inbox = Inbox(settings, cluster, self._writer)
        options = bridge.Options(settings.bridge_target, settings.dead_letters_topic, earliest=True)
        self._bridge = bridge.Bridge(self._inbox, self._writer, post, clock, options)
        self._duty = duty.Duty("bridge", self._bridge, self._writer, post, clock)
        self._thread = threading.Thread(target=self._run, name="almanac bridge", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._duty.run()
        except BaseException as error:
            log.exception("the bridge ended")
            self.failure = error

    @property
    def lost(self) -> int:
        """Requests that the mock cluster dropped before they were read."""
        return self._bridge.lost

    def settle(self, until: float) -> None:
        """Returns when all requests that were written are schedules."""
        ends = self._cluster.ends(self._inbox.sources)
        while not self._passed(ends) and self.failure is None and not self.lost:
            if time.monotonic() > until:
                raise errors.AlmanacError(f"the bridge does not come to rest: {self._duty.status()}")
            time.sleep(GLANCE)

    def _passed(self, ends: dict[seam.Source, int]) -> bool:
        passed = {(topic, number): offset for topic, number, offset in self._bridge.status()["positions"]}
        return all(passed.get(source, -1) >= end for source, end in ends.items())

    def stop(self) -> None:
        self._stopping.set()

    def close(self) -> None:
        self._thread.join(ports.ANSWER)
        self._inbox.close()
        self._writer.close()
