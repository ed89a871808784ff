"""Reads a target topic as a consumer would (read_committed): how late is each message, does each come once?"""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from almanac import errors, kafka
from almanac.bench import Progress, feed
from almanac.settings import Settings

MOST = 5_000  # messages of one look
LINGER = 2.0  # seconds in which a second delivery is waited for, once all are there
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}


class Receipt(NamedTuple):
    """A message came."""

    at: float  # epoch ms
    due: int  # epoch ms
    id: bytes


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What came, of what was expected."""

    expected: int
    received: int
    different: int
    early: int
    fires_per_s: int  # from the first due time to the last message
    late_ms: dict[str, float]  # min, p50, p90, p99, p999, max

    @property
    def double(self) -> int:
        """Deliveries too many."""
        return self.received - self.different

    @property
    def missing(self) -> int:
        """Schedules that were never delivered."""
        return self.expected - self.different

    @property
    def exact(self) -> bool:
        """Each once, none early."""
        return not (self.early or self.double or self.missing)


def summary(expected: int, receipts: Iterable[Receipt]) -> Seen:
    """Adds the receipts up."""
    all_of_them = list(receipts)
    late = sorted(receipt.at - receipt.due for receipt in all_of_them)
    first = min((receipt.due for receipt in all_of_them), default=0)
    last = max((receipt.at for receipt in all_of_them), default=0.0)
    return Seen(
        expected=expected,
        received=len(late),
        different=len({receipt.id for receipt in all_of_them}),
        early=sum(each < 0 for each in late),
        fires_per_s=round(len(late) / max(0.001, (last - first) / 1000)) if late else 0,
        late_ms=_spread(late),
    )


def _spread(late: Sequence[float]) -> dict[str, float]:
    if not late:
        return {}
    at = {name: late[math.ceil(q * len(late)) - 1] for name, q in QUANTILES.items()}
    return {name: round(value, 1) for name, value in {"min": late[0], **at, "max": late[-1]}.items()}


class Watch:
    """Made before the first message is due; reads the whole topic."""

    def __init__(self, settings: Settings, topic: str, partitions: int) -> None:
        config = kafka.consumer(
            settings,
            group_id=f"{settings.group_id}-bench",
            auto_offset_reset="earliest",
            enable_partition_eof=False,
            fetch_wait_max_ms=5,
            fetch_min_bytes=1,
            queued_min_messages=1_000_000,
            queued_max_messages_kbytes=500_000,
        )
        self._consumer = Consumer(config)
        self._consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])

    def until(self, expected: int, deadline: float, progress: Progress) -> Seen:
        """Reads until all have come (and a little longer), or to the deadline (epoch s)."""
        batches: list[tuple[float, list[Message]]] = []
        received, end = 0, deadline
        while time.time() < end:
            head = self._consumer.poll(0.1)
            if head is not None:  # the loop stays light: headers are read afterwards
                messages = [head, *self._consumer.consume(MOST, 0)]
                batches.append((time.time() * 1000, messages))
                received += len(messages)
                if received >= expected:
                    end = min(end, time.time() + LINGER)
            progress("receiving", min(received, expected), expected)
        self._consumer.close()
        return summary(expected, (_receipt(at, message) for at, messages in batches for message in messages))


def _receipt(at: float, message: Message) -> Receipt:
    if (error := message.error()) is not None:
        raise errors.AlmanacError(f"reading {message.topic()}: {error.str()}")
    headers: dict[str, Any] = dict(message.headers() or ())
    return Receipt(at, int(headers[feed.DUE]), headers["scheduler-key"])
