"""How far the wheels have read, as committed offsets of the consumer group GROUP_ID: for Kafka's own tools.

    kafka-consumer-groups --describe --group scheduler-cg

shows each source partition, its wheel's position and its lag. Nobody reads them back: where a wheel begins is said by
its page (rule 10).
"""

import logging
import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from almanac import kafka
from almanac.settings import Settings

log = logging.getLogger("almanac.progress")

INTERVAL = 3.0  # seconds
AGAIN = 600.0  # seconds after which they are committed though nothing has changed: Kafka forgets those of quiet groups


class Progress:
    """Commits positions; a failure is a line in the log and no more."""

    def __init__(self, settings: Settings) -> None:
        # A consumer that never joins the group: no rebalance, no member.
        self._consumer = Consumer(kafka.consumer(settings))
        self._shown: dict[tuple[str, int], int] = {}
        self._at = -AGAIN

    def show(self, statuses: Iterable[dict[str, Any]]) -> None:
        """Commits what these reports of wheels say."""
        positions = {(t, p): offset for status in statuses for t, p, offset in status.get("positions", ())}
        again = time.monotonic() - self._at >= AGAIN
        news = {source: at for source, at in positions.items() if again or self._shown.get(source) != at}
        if not news:
            return
        try:
            told = self._consumer.commit(offsets=[TopicPartition(*s, at) for s, at in news.items()], asynchronous=False)
        except KafkaException as error:
            log.info("the group's offsets were not committed: %s", error.args[0].str())
            return
        refused = {(each.topic, each.partition): each.error for each in told or () if each.error is not None}
        if refused:
            log.info("the group's offsets were not committed: %s", next(iter(refused.values())))
        self._shown.update((source, at) for source, at in news.items() if source not in refused)
        self._at = time.monotonic() if again and not refused else self._at

    def close(self) -> None:
        """Ends it."""
        self._consumer.close()
