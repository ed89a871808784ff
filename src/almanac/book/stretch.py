"""A stretch of one partition's log, and who reads it: a task of Spark's, with the client that the wheels have."""

import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from operator import methodcaller
from typing import Any, NamedTuple, Protocol

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

from almanac import errors, kafka, tail
from almanac.record import UNREADABLE, Record

Partition = tuple[str, int]
Offsets = Mapping[Partition, int]

BEGINNING = OFFSET_BEGINNING  # where a stretch starts that begins with the log itself

RECORDS = 2_000  # of one look
LOOK = 0.02  # seconds that it takes at most: with large payloads it holds little more than the client's queue
_MEMORY = {"queued.max.messages.kbytes": 8_192, "queued.min.messages": 10_000, "fetch.queue.backoff.ms": 5}
PATIENCE = 120.0  # seconds without a record: what was aborted, and holes, take their time too


class Stretch(NamedTuple):
    """From `start` to before `end`, and how its records are read."""

    topic: str
    partition: int
    start: int
    end: int
    complete: int  # of versions below it the book knows all there is to know: see `table`
    topic_id: str
    form: str  # the wire format's name


class Log(Protocol):
    """Where records are. It is sent to the tasks, and must not be used before."""

    def read(self, stretch: Stretch) -> Iterator[list[Record]]:
        """The stretch's committed records, in order, some at a time."""

    def close(self) -> None:
        """Ends reading."""


class KafkaLog:
    """The real one. `config` is a consumer's, as `kafka.consumer` makes it, without what cannot be sent."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = {name: value for name, value in config.items() if name not in ("error_cb", "logger")}
        self._consumer: Consumer | None = None

    def read(self, stretch: Stretch) -> Iterator[list[Record]]:
        """See Log."""
        if self._consumer is None:  # never before a fork
            self._consumer = Consumer({**self._config, **_MEMORY, "group.id": f"{self._config['group.id']}-book"})
        consumer, end, place = self._consumer, stretch.end, (stretch.topic, stretch.partition)
        consumer.assign([TopicPartition(*place, stretch.start)])
        heard, last, trouble = time.monotonic(), stretch.start - 1, "it says nothing"
        while last + 1 < end:
            found = consumer.consume(RECORDS, LOOK)
            good = [message for message in found if message.error() is None]
            records = _records(good, stretch)
            for message in found if len(good) < len(found) else ():
                if kafka.is_end(message) and (message.topic(), message.partition()) == place:
                    # A transaction's marker may be the last thing before the end: then the end is told instead.
                    last = max(last, (message.offset() or 0) - 1)
                elif not kafka.is_end(message) and (error := message.error()) is not None:
                    tail.said(message)  # raises if the log no longer reaches back to the start
                    explained = kafka.explained(KafkaException(error), f"reading {place}")
                    if not isinstance(explained, errors.Unreachable):
                        raise explained  # whatever it is, records may be missing behind it
                    trouble = error.str()
            if records:
                heads = [message for message in (found[0], found[-1]) if message.error() is None]
                if any((message.topic(), message.partition()) != place for message in heads):
                    raise RuntimeError(f"asked for {place}, and got records of another partition")
                last = max(last, records[-1].offset)
                while records and records[-1].offset >= end:
                    records.pop()
                yield records
                heard = time.monotonic()  # behind the yield: whoever asked may take their time
            elif time.monotonic() - heard > PATIENCE and last + 1 < end:
                raise errors.Unreachable(f"reading {place} at {last + 1}: {trouble}")

    def close(self) -> None:
        """See Log."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


def _records(messages: list[Message], stretch: Stretch) -> list[Record]:
    """As `tail.said`, of which the place is known: column by column, for it is done for every record there is."""
    columns = zip(
        repeat(stretch.topic), repeat(stretch.partition), map(Message.offset, messages),
        [at for _, at in map(Message.timestamp, messages)], map(Message.key, messages), map(Message.value, messages),
        readable(messages),
    )  # fmt: skip
    # what a named tuple does on top of it would be felt
    return list(map(tuple.__new__, repeat(Record), columns))


def readable(messages: Iterable[Message]) -> Iterator[Any]:
    """The headers of each. A message is asked once: after an error the client would say that there are none."""
    rest, more = iter(messages), True
    while more:
        try:
            for found in map(methodcaller("headers"), rest):
                yield found or []
            more = False
        except Exception:  # rule 5: a header's name that is not UTF-8 makes the client raise
            yield [(UNREADABLE, None)]
