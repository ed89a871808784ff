"""How many records a second the book takes in: Kafka, Spark, Delta, as the scheduler has them, and nothing beside.

fill    an empty book reads the log from its beginning
merge   that book takes as many records once more
bridge  timer requests become schedules of a native topic, which the book then reads as above

The table of what fired is fed along with it, as in the scheduler. To put the tables in order afterwards is upkeep,
which nobody waits for: it is told, and not counted.

Machines differ by a factor of three, and one machine from hour to hour: so what bare producers can do is measured right
before each fill, and the ratio told. Ratios compare, figures do not.
"""

import os
import platform
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from almanac import errors, formats, jars, kafka, topics
from almanac.bench import PARTITIONS, Progress, bridging
from almanac.bench.measure import Bench
from almanac.bench.traffic import Requests, Traffic
from almanac.book import archive, fired, ingest, read, session, stretch, table
from almanac.broker import Broker, Config
from almanac.broker import ports as free_ports
from almanac.settings import Settings

BAR = 60_000  # rows a second that the project asks for, of each format, on two cores
LOOK = 10_000  # records between two looks at Kafka's answers
ANSWER = 60.0  # seconds in which Kafka takes what was written

LIMIT_FIRES = 200_000  # that the machine's limit is measured with: some seconds

COLUMNS = ("format", "new", "measure", "run", "rows", "seconds", "upkeep", "rows/s", "bar", "limit", "ratio", "pending")


@dataclass(frozen=True, kw_only=True)
class Figures:
    """One run of one measure of one format."""

    format: str
    new: float  # share of the records that are schedules nobody has heard of
    measure: str  # fill, merge or bridge
    run: int  # of a JVM: the first compiles
    rows: int
    seconds: float  # from the stream's start until all is in the tables
    upkeep: float  # seconds after that
    pending: int  # as the book says afterwards; of a bridge, what it committed
    expected: int
    limit: int  # fires a second of bare producers, right before the fill

    @property
    def rows_per_s(self) -> int:
        return round(self.rows / self.seconds)

    @property
    def ratio(self) -> float:
        return round(self.rows_per_s / self.limit, 2)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        worked_out = {"rows_per_s": self.rows_per_s, "ratio": self.ratio, "exact": self.pending == self.expected}
        return asdict(self) | worked_out


def to_json(runs: Sequence[Figures]) -> dict[str, Any]:
    """All runs, their medians, and whether the book says what was fed."""
    return {
        "machine": {"cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()},
        "runs": [figures.to_json() for figures in runs],
        "median": {f"{form} {measure}": _median(some) for (form, measure), some in _grouped(runs).items()},
        "bar": BAR,
        "exact": all(figures.pending == figures.expected for figures in runs),
    }


def rows(runs: Sequence[Figures]) -> list[tuple[object, ...]]:
    """The lines of the table, with one for the median where there are several runs."""
    lines: list[tuple[object, ...]] = []
    for (form, measure), some in _grouped(runs).items():
        lines += [
            (form, f"{each.new:.0%}", measure, each.run, f"{each.rows:,}", f"{each.seconds:.1f}", f"{each.upkeep:.1f}",
             f"{each.rows_per_s:,}", f"{BAR:,}", f"{each.limit:,}", f"{each.ratio:.2f}",
             f"{each.pending:,} of {each.expected:,}")
            for each in some
        ]  # fmt: skip
        if len(some) > 1:
            speed, ratio = f"{_median(some):,}", f"{statistics.median(each.ratio for each in some):.2f}"
            lines.append((form, "", f"{measure}: median", "", "", "", "", speed, f"{BAR:,}", "", ratio, ""))
    return lines


def _grouped(runs: Sequence[Figures]) -> dict[tuple[str, str], list[Figures]]:
    found: dict[tuple[str, str], list[Figures]] = {}
    for figures in runs:
        found.setdefault((figures.format, figures.measure), []).append(figures)
    return found


def _median(runs: Sequence[Figures]) -> int:
    return round(statistics.median(figures.rows_per_s for figures in runs))


def measure(
    settings: Settings, forms: Sequence[str], new: float, count: int, runs: int, folder: Path, progress: Progress
) -> Iterator[Figures]:
    """Each format in turn, each run with a topic and a book of its own; one Kafka and one Spark for all."""
    config = Config(folder=folder / "kafka", port=free_ports.free(), controller_port=free_ports.free())
    with Broker(config) as broker:
        broker.start(lambda text: progress(text, 0, 0))
        own = settings.replaced(bootstrap_servers=config.bootstrap_servers, group_id="bench", configuration_file=None)
        progress("starting Spark", 0, 0)
        with _output_elsewhere():
            spark = session.session(own, 0, jars.spark_jars(), archive.options())
        try:
            for run in range(1, runs + 1):
                for form in forms:
                    yield from _Measured(own, spark, form, new, run, folder, progress).steps(count)
        finally:
            spark.stop()


@contextmanager
def _output_elsewhere() -> Iterator[None]:
    """What is started meanwhile writes to stderr: Delta says on Java's stdout what it removed, ours is for figures."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


class _Measured:
    """A topic of one format and the book of it."""

    def __init__(
        self, settings: Settings, spark: SparkSession, form: str, new: float, run: int, folder: Path, progress: Progress
    ) -> None:
        self._spark, self._form, self._new, self._run, self._progress = spark, form, new, run, progress
        self._bridged = form == formats.BRIDGED
        self._topic = topic = f"{form}-{run}"
        self._fed = f"{topic}-request" if self._bridged else topic
        admin = kafka.admin_client(settings)
        self._settings = settings.replaced(group_id=f"bench-{topic}", bridge_from="earliest", schedules_topics=topic)
        if self._bridged:
            self._new, form = 1.0, "auto"
            self._settings = self._settings.replaced(schedules_topics=f"{topic},{self._fed}={formats.BRIDGED}")
            _make(admin, self._fed, {})
        _make(admin, topic, {"cleanup.policy": "compact"})
        while not (ids := topics.topic_ids(admin, [topic])):
            time.sleep(0.05)  # just created: the brokers tell each other first
        self._parts: list[Traffic | Requests] = [
            Requests(self._fed, number) if self._bridged else Traffic(form, topic, ids[topic], number, new)
            for number in range(PARTITIONS)
        ]
        self._book = table.Book(str(folder / "books" / topic), spark)
        self._book.create()
        self._fired = fired.Fired(self._book.folder, spark)
        self._fired.open()
        self._source = ingest.Source(
            kafka={name.removeprefix("kafka."): value for name, value in kafka.java(settings).items()},
            log=stretch.KafkaLog(kafka.consumer(settings)), topic_ids=ids,
            partitions={topic: PARTITIONS}, formats={topic: form},
        )  # fmt: skip

    def steps(self, count: int) -> Iterator[Figures]:
        each = count // PARTITIONS
        limit = Bench(self._settings, self._progress).most_fires(LIMIT_FIRES)
        for what in ("fill", "merge"):
            self._feed(each)
            if self._bridged:
                self._progress("bridge", 0, 0)
                seconds, bridged = bridging.bridge(self._settings, self._spark)
                yield self._figures("bridge", each, seconds, 0.0, limit, bridged)
            self._progress(f"{what}, {self._form}", 0, 0)
            reader = ingest.Ingest(self._book, self._source, gone=self._fired)
            begun = time.monotonic()
            reader.catch_up().awaitTermination()
            seconds = time.monotonic() - begun - reader.upkeep_s
            reader.close()
            yield self._figures(what, each, seconds, reader.upkeep_s, limit, read.Reader(self._book.folder).count())

    def _figures(self, what: str, each: int, seconds: float, upkeep: float, limit: int, pending: int) -> Figures:
        return Figures(
            format=self._form, new=self._new, measure=what, run=self._run, rows=each * PARTITIONS,
            seconds=round(seconds, 3), upkeep=round(upkeep, 3), pending=pending,
            expected=sum(part.pending for part in self._parts), limit=limit,
        )  # fmt: skip

    def _feed(self, each: int) -> None:
        producer = Producer(kafka.producer(self._settings, linger_ms=20, queue_buffering_max_messages=2_000_000))
        for number, part in enumerate(self._parts):
            for done, record in enumerate(part.records(each)):
                # BufferError is not met: the queue holds more than the looks let pile up
                producer.produce(
                    self._fed, record.value, record.key, partition=number, headers=list(record.headers)
                )  # fmt: skip
                if done % LOOK == 0:
                    producer.poll(0)
                    self._progress(f"feeding {self._form}", number * each + done, each * len(self._parts))
            if left := producer.flush(ANSWER):
                raise errors.Unreachable(f"{left:,} records were not written to {self._fed} within {ANSWER:.0f} s")


def _make(admin: AdminClient, topic: str, config: dict[str, str]) -> None:
    kafka.answer(admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=config)])[topic], f"creating topic {topic}")
