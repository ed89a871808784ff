"""The oscillator's topic on Kafka: which second is its last."""

import logging
import time

from confluent_kafka import Consumer, IsolationLevel, TopicPartition

from almanac import errors, kafka, ports, tail, topics
from almanac.record import Record
from almanac.settings import Settings

log = logging.getLogger("almanac.dial")

ANSWER = 10.0  # seconds
BACK = 100  # offsets before the end to begin with: records, and the marks of transactions
DIGITS = 12  # of a second; more are none


class KafkaDial:
    """See ports.Dial."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._topic = settings, settings.oscillator_topic
        self._admin = kafka.admin_client(settings)

    def last(self) -> int | None:
        """See ports.Dial."""
        try:
            count = topics.partition_counts(self._admin, [self._topic]).get(self._topic, 0)
        except errors.AlmanacError as error:
            raise ports.Unavailable(str(error)) from error
        if not count:
            raise ports.Unavailable(f"topic {self._topic} does not exist: almanac topics apply")
        sources = [(self._topic, number) for number in range(count)]
        low = tail.beginnings(self._admin, sources)
        high = tail.ends(self._admin, sources, IsolationLevel.READ_UNCOMMITTED)
        found: dict[ports.Source, int] = {}
        unknown, back = set(sources), BACK
        while unknown:  # in each partition, whatever others hold: what was aborted there may hide its last second
            begin = {source: max(low[source], high[source] - back) for source in unknown}
            found |= self._latest(begin, high)
            unknown = {source for source in unknown - set(found) if begin[source] > low[source]}
            back *= 10
        if not found and any(high.values()):
            log.warning("%s holds no second any more: it goes on with the present one", self._topic)
        return max(found.values(), default=None)

    def _latest(self, begin: dict[ports.Source, int], high: dict[ports.Source, int]) -> dict[ports.Source, int]:
        """Of the committed records between these offsets, in each partition that has any."""
        seconds: dict[ports.Source, int] = {}
        unread = {source for source, offset in begin.items() if offset < high[source]}
        consumer = Consumer(kafka.consumer(self._settings, group_id=self._settings.transactional_id("oscillator")))
        try:
            consumer.assign([TopicPartition(*source, begin[source]) for source in unread])
            end = time.monotonic() + ANSWER
            while unread:
                if time.monotonic() > end:
                    raise ports.Unavailable(f"{self._topic} cannot be read to its end")
                message = consumer.poll(0.1)
                if message is None:
                    continue
                said = tail.said(message)
                if isinstance(said, ports.End) and said.offset >= high[said.topic, said.partition]:
                    unread.discard((said.topic, said.partition))
                elif isinstance(said, Record) and (key := said.key or b"").isdigit() and len(key) <= DIGITS:
                    seconds[said[:2]] = max(int(key), seconds.get(said[:2], 0))
        except ports.LogLost as error:
            raise ports.Unavailable(str(error)) from error
        finally:
            consumer.close()
        return seconds
