"""Writes schedules into a schedules topic, as a client of any language would."""

import time
from collections.abc import Iterable, Iterator

from confluent_kafka import KafkaError, Message, Producer

from almanac import errors, kafka
from almanac.bench import PAYLOAD, Progress
from almanac.settings import Settings

DUE = "due"  # header with the due time in epoch ms: what `watch` compares with
ANSWER = 60.0  # seconds in which Kafka takes what was written
LOOK = 10_000  # schedules between two looks at Kafka's answers


def together(due: int, count: int) -> Iterator[int]:
    """All due at the same time (epoch ms)."""
    return (due for _ in range(count))


def by_second(first: int, per_second: int, seconds: int) -> Iterator[int]:
    """As many due at each whole second from `first` (epoch ms) on."""
    return (first + second * 1000 for second in range(seconds) for _ in range(per_second))


def live(per_second: int, seconds: int, ahead: int) -> Iterator[int]:
    """Paced: each comes when it is to be written, and is due `ahead` ms later."""
    begun = time.monotonic()
    for number in range(per_second * seconds):
        time.sleep(max(0.0, begun + number / per_second - time.monotonic()))
        yield int(time.time() * 1000) + ahead


def write(settings: Settings, topic: str, target: str, dues: Iterable[int], total: int, progress: Progress) -> None:
    """One schedule for each due time. Returns when Kafka has them all."""
    failed: list[KafkaError] = []

    def told(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    config = kafka.producer(
        settings,
        linger_ms=1,
        queue_buffering_max_messages=5_000_000,
        queue_buffering_max_kbytes=2_000_000,
        delivery_report_only_error=True,
    )
    producer = Producer({**config, "on_delivery": told})
    name = target.encode()
    for number, due in enumerate(dues):
        headers: list[tuple[str, str | bytes | None]] = [
            ("scheduler-epoch", b"%d" % (due // 1000)),
            ("scheduler-target-topic", name),
            ("scheduler-target-key", b"key%d" % number),
            ("trace", b"bench"),
            (DUE, b"%d" % due),
        ]
        if due % 1000:
            headers.append(("scheduler-epoch-ms", b"%d" % due))
        producer.produce(topic, PAYLOAD, f"{target}-{number}".encode(), headers=headers)
        if number % LOOK == 0:
            producer.poll(0)
            progress("feeding", number, total)
    left = producer.flush(ANSWER)
    if failed or left:
        reason = failed[0].str() if failed else f"no answer within {ANSWER:.0f} s"
        raise errors.Unreachable(f"{len(failed) + left:,} of {total:,} schedules were not written to {topic}: {reason}")
    progress("feeding", total, total)
