"""The machine's own limit: bare transactional producers that write what a scheduler would, with nothing around it.

A fire is three records in a transaction: the message, its history copy, and the tombstone. No decoding, no order, no
tail: nobody who writes these three can be faster on this machine, whatever the language.
"""

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import NamedTuple

from confluent_kafka import Producer

from almanac import errors, kafka
from almanac.bench import PARTITIONS, PAYLOAD, Progress, feed, watch
from almanac.settings import Settings

PROCESSES = 2
PER_TRANSACTION = 4_000  # fires, as the scheduler's default
CONNECT = 60.0  # seconds in which all producers must be ready
PATIENCE = 30.0  # seconds after the last due time

Headers = list[tuple[str, str | bytes | None]]


class Places(NamedTuple):
    """The topics that take the three records."""

    target: str
    history: str
    schedules: str


def throughput(settings: Settings, places: Places, fires: int, progress: Progress) -> float:
    """The most fires a second."""
    each = fires // PROCESSES
    progress("measuring the machine's limit", 0, 0)
    with _crew(_fire, settings, places, each) as crew:
        begun = time.time()
        _tell(crew, begun)
        ended = max(_hear(crew, 600.0))
    return each * PROCESSES / (ended - begun)


def floor(settings: Settings, places: Places, per_second: int, seconds: int, progress: Progress) -> watch.Seen:
    """The least lateness: at each whole second everything is written and committed, in one transaction a process."""
    seen = watch.Watch(settings, places.target, PARTITIONS)
    with _crew(_tick, settings, places, per_second, seconds) as crew:
        first = int(time.time()) + 2
        _tell(crew, float(first))
        deadline = first + seconds + PATIENCE
        return seen.until(per_second * seconds, deadline, lambda _, *done: progress("measuring the floor", *done))


# In processes of their own


def _fire(link: Connection, settings: Settings, number: int, places: Places, fires: int) -> None:
    producer = _ready(link, settings, number)
    link.recv()
    headers = _headers(places, 1_893_456_000_000, b"id")
    for begin in range(0, fires, PER_TRANSACTION):
        producer.begin_transaction()
        for count in range(begin, min(begin + PER_TRANSACTION, fires)):
            _write(producer, places, b"key%d" % count, headers, number)
        producer.commit_transaction()
    link.send(time.time())


def _tick(link: Connection, settings: Settings, number: int, places: Places, per_second: int, seconds: int) -> None:
    producer = _ready(link, settings, number)
    first = int(link.recv())
    for second in range(first, first + seconds):
        keys = [b"%d-%d" % (second, count) for count in range(number, per_second, PROCESSES)]
        prepared = [(key, _headers(places, second * 1000, key)) for key in keys]
        time.sleep(max(0.0, second - time.time()))
        producer.begin_transaction()
        for key, headers in prepared:
            _write(producer, places, key, headers, number)
        producer.commit_transaction()
    link.send(time.time())


def _ready(link: Connection, settings: Settings, number: int) -> Producer:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one that started us
    config = kafka.producer(
        settings,
        transactional_id=f"{settings.group_id}-bench-{number}",
        linger_ms=1,
        batch_size=1_000_000,
        queue_buffering_max_messages=2_000_000,
        queue_buffering_max_kbytes=1 << 20,
    )
    producer = Producer(config)
    producer.init_transactions(CONNECT)
    link.send(time.time())
    return producer


def _headers(places: Places, due: int, key: bytes) -> Headers:
    return [
        ("scheduler-epoch", b"%d" % (due // 1000)), ("scheduler-target-topic", places.target.encode()),
        ("scheduler-target-key", b"key"), ("trace", b"bench"), (feed.DUE, b"%d" % due),
        ("scheduler-timestamp", b"%d" % (due // 1000)), ("scheduler-key", key),
        ("scheduler-topic", places.schedules.encode()),
    ]  # fmt: skip


def _write(producer: Producer, places: Places, key: bytes, headers: Headers, number: int) -> None:
    producer.produce(places.target, PAYLOAD, key, headers=headers)
    producer.produce(places.history, PAYLOAD, key, headers=headers)
    producer.produce(places.schedules, None, key, number % PARTITIONS, headers=headers[:1])


@contextmanager
def _crew(work: Callable[..., None], settings: Settings, places: Places, *arguments: int) -> Iterator[list[Connection]]:
    """The producers, connected; each begins when it is told a time, and tells when it has done."""
    context = multiprocessing.get_context("spawn")  # a client made before a fork does not work after it
    links: list[Connection] = []
    processes = []
    try:
        for number in range(PROCESSES):
            ours, theirs = context.Pipe()
            process = context.Process(target=work, args=(theirs, settings, number, places, *arguments), daemon=True)
            process.start()
            theirs.close()
            links.append(ours)
            processes.append(process)
        _hear(links, CONNECT)
        yield links
        for process in processes:
            process.join(PATIENCE)
    finally:
        for process in processes:
            process.kill()


def _tell(crew: list[Connection], when: float) -> None:
    for link in crew:
        link.send(when)


def _hear(crew: list[Connection], seconds: float) -> list[float]:
    """What each says next."""
    deadline = time.monotonic() + seconds
    try:
        if all(link.poll(max(0.0, deadline - time.monotonic())) for link in crew):
            return [link.recv() for link in crew]
    except EOFError:
        raise errors.AlmanacError("a bare producer that measures the machine's limit has failed; see above") from None
    raise errors.Unreachable(f"the bare producers that measure the machine's limit did not answer in {seconds:.0f} s")
