"""What a scheduler says of itself to Prometheus.

Wheels report through Kafka, once a second, wherever they run; the driver keeps the last report of each
(`Runner.statuses`) and adds their counts up over all starts (`totals.py`). A scrape turns these into samples: it asks
neither Kafka nor Spark, and takes a millisecond or two.

`kafka_scheduler_event_total` is the peer's, with its label. docs/metrics.md lists all of them.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Protocol

import psutil
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

import almanac
from almanac import board, keeper, tally, totals
from almanac.settings import Settings

# The peer's types of events, and the count of ours that means the same. Dead letters are counted beside.
EVENTS = {
    "kafka_scheduler_missed_schedule": "missed_total",
    "kafka_scheduler_deleted_schedule": "cancelled",
    "kafka_scheduler_planned_schedule": "planned",
    "kafka_scheduler_triggered_schedule": "fired",
}
INVALID = "kafka_scheduler_invalid_schedule"
# Dead letters that were never a schedule in force. The others were planned, and could not be delivered.
NEVER_VALID = ("invalid", "outdated", "forbidden")
# Shown from the beginning: an alert on an increase does not see a series that begins with its first one.
REASONS = (*NEVER_VALID, "missed-too-old", "undeliverable")
EVERYTHING = "*"  # the target's name where all of them are meant
SILENT = "silent"
STATES = ("starting", "fencing", "catching-up", "firing", "paused", "waiting", "stopped", "replaced", SILENT)
LOOK = 10.0  # seconds between two looks for Spark's process, while there is none: it reads the whole process table

Samples = Iterable[tuple[tuple[str, ...], float]]


class Told(Protocol):
    """What is known of a scheduler; a Runner is one."""

    settings: Settings
    totals: totals.Totals

    @property
    def statuses(self) -> Mapping[int, Mapping[str, Any]]: ...
    @property
    def duties(self) -> Mapping[str, Mapping[str, Any]]: ...
    @property
    def figures(self) -> keeper.Figures: ...
    @property
    def shards(self) -> int: ...


def registry(told: Told) -> CollectorRegistry:
    """All metrics of one scheduler, and of this process."""
    made = CollectorRegistry(auto_describe=False)
    made.register(Scheduler(told))
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=made)
    return made


def exposed(shown: CollectorRegistry) -> bytes:
    """A scrape, as text."""
    return generate_latest(shown)


class Scheduler(Collector):
    """Asked anew at each scrape."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._jvm: psutil.Process | None = None
        self._looked = -LOOK  # for it, monotonic seconds

    def describe(self) -> Iterable[Metric]:
        """Nothing: the names are ours alone, nothing has to be compared."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        told, now = self._told, time.time()
        statuses, duties, counts = told.statuses, told.duties, told.totals.counts()
        yield from self._about(told)
        yield from _counters(counts, told.totals.starts())
        yield from _histograms(counts)
        yield from _pending(statuses, told.figures, told.settings.topics)
        yield from _book(told.figures, told.settings.topics, now)
        yield from _shards(statuses, told.shards, now)
        yield from _controls(statuses)
        yield from _partitions(statuses)
        yield from _duties(duties, now)
        yield _gauge(
            "almanac_resident_memory_bytes", "Memory of each process", ("process",), self._memory(statuses, duties)
        )

    def _about(self, told: Told) -> Iterator[Metric]:
        settings = told.settings
        labels = {"version": almanac.__version__, "group": settings.group_id, "shadow": str(settings.shadow).lower()}
        yield InfoMetricFamily("almanac", "The scheduler", value=labels)
        yield _gauge("almanac_shards", "Wheels that there should be; 0 while it starts", (), [((), told.shards)])
        yield _gauge("almanac_page_length_seconds", "PAGE_LENGTH", (), [((), settings.page_length)])

    def _memory(self, statuses: Mapping[int, Mapping[str, Any]], duties: Mapping[str, Mapping[str, Any]]) -> Samples:
        with suppress(psutil.Error):
            yield ("driver",), psutil.Process().memory_info().rss
        with suppress(psutil.Error):
            if (self._jvm is None or not self._jvm.is_running()) and time.monotonic() - self._looked >= LOOK:
                self._looked = time.monotonic()
                self._jvm = _find_jvm()
            if self._jvm is not None:
                yield ("jvm",), self._jvm.memory_info().rss
        reports = {**{f"wheel-{shard}": each for shard, each in statuses.items()}, **duties}
        yield from (((name,), status["rss"]) for name, status in reports.items() if status.get("rss"))


def _find_jvm() -> psutil.Process | None:
    """Spark's: a child of this process, or, under spark-submit, its parent."""
    here = psutil.Process()
    for process in [*here.children(), *here.parents()[:1]]:
        with suppress(psutil.Error):
            if "org.apache.spark.deploy.SparkSubmit" in process.cmdline():
                return process
    return None


def _counters(counts: Counter[totals.Name], starts: Mapping[int | str, int]) -> Iterator[Metric]:
    invalid = sum(counts["dead_letters", reason] for reason in NEVER_VALID)
    events = [((kind,), counts[(field,)]) for kind, field in EVENTS.items()]
    yield _counter("kafka_scheduler_event", "Events by type, as etf1's scheduler has them", ("type",),
                   [*events, ((INVALID,), invalid)])  # fmt: skip
    yield _counter("almanac_fired", "Messages fired, of the most frequent targets", ("target",), _by(counts, "targets"))
    known: dict[totals.Name, int] = {("dead_letters", reason): 0 for reason in REASONS}
    yield _counter("almanac_dead_letters", "Dead letters", ("reason",), _by({**known, **counts}, "dead_letters"))
    outcomes = [(("committed",), counts[("transactions",)]), (("aborted",), counts[("aborted",)])]
    yield _counter("almanac_transactions", "Transactions of the wheels", ("outcome",), outcomes)
    yield _counter("almanac_repeats", "Words that were written once more (rule 4)", (), [((), counts[("repeats",)])])
    yield _counter("almanac_starts", "Starts of wheels and duties", ("work",),
                   [((_work(work),), number) for work, number in starts.items()])  # fmt: skip
    yield _counter("almanac_bridged", "Timer requests made schedules", (), [((), counts[("bridged",)])])
    yield _counter("almanac_bridge_lost", "Timer requests deleted unread", (), [((), counts[("lost",)])])
    yield _counter("almanac_oscillator_ticks", "Seconds written", (), [((), counts[("ticks",)])])


def _histograms(counts: Counter[totals.Name]) -> Iterator[Metric]:
    named = {
        "late": ("almanac_lateness_seconds", "From the due time to the commit", "late_sum"),
        "transaction_ms": ("almanac_transaction_seconds", "What a commit took", "transaction_sum"),
    }
    bounds = [*(f"{bound / 1000:g}" for bound in tally.BOUNDS), "+Inf"]
    for field, (name, about, total) in named.items():
        family = HistogramMetricFamily(name, about)
        reached = totals.histogram(counts, field, tally.BOUNDS)
        family.add_metric([], list(zip(bounds, reached, strict=True)), counts[(total,)] / 1000)
        yield family


def _pending(
    statuses: Mapping[int, Mapping[str, Any]], figures: keeper.Figures, topics: Iterable[str]
) -> Iterator[Metric]:
    pages = [status["page"] for status in statuses.values() if status.get("page") in figures.rows]
    # What a wheel adds counts from its page on: the book is taken as of the oldest page in use, as the status does it.
    page = min(pages) if pages else max(figures.rows, default=None)
    pending = Counter({**dict.fromkeys(topics, 0), **(figures.rows[page] if page is not None else {})})
    for status in statuses.values():
        pending.update(status.get("nets") or {})
    yield _gauge("almanac_pending", "Schedules that wait", ("topic",),
                 [((topic,), max(0, number)) for topic, number in sorted(pending.items())])  # fmt: skip
    dues = [status["next_due"] for status in statuses.values() if status.get("next_due") is not None]
    yield _gauge("almanac_next_due_timestamp_seconds", "When the next schedule is due, of those due soon", (),
                 [((), min(dues) / 1000)] if dues else [])  # fmt: skip


def _book(figures: keeper.Figures, topics: Iterable[str], now: float) -> Iterator[Metric]:
    rows = {**dict.fromkeys(topics, 0), **(figures.rows[max(figures.rows)] if figures.rows else {})}
    yield _gauge("almanac_book_rows", "Schedules in the book, as of the last page", ("topic",),
                 [((topic,), number) for topic, number in sorted(rows.items())])  # fmt: skip
    yield _gauge("almanac_book_files", "Files of the book, as of the last page", (), [((), figures.files)])
    yield _gauge("almanac_book_lag_records", "Records that the book had not read at its last merge", (),
                 [((), figures.behind)])  # fmt: skip
    yield _gauge("almanac_book_following", "1 while the stream into the book runs", (), [((), figures.following)])
    yield _counter("almanac_book_records", "Records that the book has read", (), [((), figures.merged)])
    yield SummaryMetricFamily(
        "almanac_merge_seconds", "Merges into the book", count_value=figures.merges, sum_value=figures.merge_ms / 1000
    )
    yield SummaryMetricFamily(
        "almanac_page_seconds", "Pages written", count_value=figures.pages, sum_value=figures.page_ms / 1000
    )
    made = [] if figures.page_made is None else [((), max(0.0, now - figures.page_made / 1000))]
    yield _gauge("almanac_page_age_seconds", "Since the last page was made", (), made)


def _shards(statuses: Mapping[int, Mapping[str, Any]], shards: int, now: float) -> Iterator[Metric]:
    everyone = {shard: statuses.get(shard, {}) for shard in range(shards)}
    named = {str(shard): status for shard, status in everyone.items()}
    yield _gauge("almanac_shard_state", "1 for the state that a wheel is in", ("shard", "state"),
                 _states(named, STATES, now))  # fmt: skip
    yield _of_each(named, "almanac_shard_report_age_seconds", "Since a wheel's last report", "reported",
                   lambda at: max(0.0, now - at / 1000))  # fmt: skip
    yield _of_each(named, "almanac_tail_lag_records", "Records of the log that a wheel has not read", "lag", float)
    yield _of_each(named, "almanac_clock_difference_seconds", "The broker's clock less the wheel's", "clock_ms",
                   lambda ms: ms / 1000)  # fmt: skip
    yield _of_each(named, "almanac_open_transaction_seconds", "How long the wheel's transaction is open", "open_ms",
                   lambda ms: ms / 1000)  # fmt: skip
    yield _of_each(named, "almanac_in_memory", "Schedules in a wheel's memory", "in_memory", float)
    yield _of_each(named, "almanac_page_number", "The page that a wheel is on", "page", float)
    set_apart: Counter[str] = Counter()
    for status in statuses.values():
        set_apart.update(status.get("quarantine") or {})
    yield _gauge("almanac_set_apart", "Messages that wait for a target that cannot be written", ("target",),
                 [((target,), number) for target, number in sorted(set_apart.items())])  # fmt: skip


def _controls(statuses: Mapping[int, Mapping[str, Any]]) -> Iterator[Metric]:
    """As the wheels have heard them."""
    paused, caps = {EVERYTHING: 0.0}, {}
    for status in statuses.values():
        told = status.get("controls") or {}
        paused.update(dict.fromkeys(told.get("paused_targets", ()), 1.0))
        paused[EVERYTHING] = max(paused[EVERYTHING], float(told.get("paused", False)))
        caps.update(told.get("target_per_second", {}))
        if told.get("missed_per_second") is not None:
            caps[EVERYTHING] = told["missed_per_second"]
    yield _gauge("almanac_paused", f"1: nothing is fired to that target ({EVERYTHING}: at all)", ("target",),
                 [((target,), value) for target, value in sorted(paused.items())])  # fmt: skip
    yield _gauge("almanac_cap_per_second", f"Fires a second at most ({EVERYTHING}: of missed ones)", ("target",),
                 [((target,), value) for target, value in sorted(caps.items())])  # fmt: skip


def _partitions(statuses: Mapping[int, Mapping[str, Any]]) -> Iterator[Metric]:
    positions, states, hanging, halted = [], [], [], []
    for status in statuses.values():
        halts = {(topic, partition) for topic, partition, _ in status.get("halted", ())}
        hangs = {(topic, partition) for topic, partition in status.get("hanging", ())}
        for topic, partition, offset in status.get("positions", ()):
            place = (topic, str(partition))
            positions.append((place, float(offset)))
            state = "incompatible" if (topic, partition) in halts else _state(status)
            states.append(((*place, state), 1.0))
            halted.append((place, float((topic, partition) in halts)))
            hanging.append((place, float((topic, partition) in hangs)))
    where = ("topic", "partition")
    yield _gauge("almanac_partition_state", "1 for the state that it is in", (*where, "state"), states)
    yield _gauge("almanac_partition_position", "The next offset that its wheel reads", where, positions)
    yield _gauge(
        "almanac_partition_halted", "1: it holds a record that only a newer version understands", where, halted
    )
    yield _gauge("almanac_partition_hanging", "1: a transaction of another producer is open for long", where, hanging)


def _duties(duties: Mapping[str, Mapping[str, Any]], now: float) -> Iterator[Metric]:
    yield _gauge("almanac_duty_state", "1 for the state that it is in", ("duty", "state"), _states(duties, (), now))
    second = duties.get("oscillator", {}).get("second", -1)
    yield _gauge("almanac_oscillator_age_seconds", "Since the last second that was written", (),
                 [((), max(0.0, now - second))] if second > 0 else [])  # fmt: skip
    behind = duties.get("bridge", {}).get("behind")
    yield _gauge("almanac_bridge_behind", "Timer requests that wait", (), [] if behind is None else [((), behind)])


# Small things


def _state(status: Mapping[str, Any]) -> str:
    silent = time.time() * 1000 - status.get("reported", 0) > board.SILENT
    return SILENT if silent else str(status.get("state", "starting"))


def _states(named: Mapping[str, Mapping[str, Any]], all_of_them: tuple[str, ...], now: float) -> Samples:
    for name, status in named.items():
        current = _state(status) if status else "starting"
        for state in dict.fromkeys((*all_of_them, current)):
            yield (name, state), float(state == current)


def _work(work: int | str) -> str:
    return work if isinstance(work, str) else f"wheel-{work}"


def _by(counts: Mapping[totals.Name, int], field: str) -> Samples:
    return [((name[1],), number) for name, number in sorted(counts.items()) if name[0] == field]


def _of_each(named: Mapping[str, Mapping[str, Any]], name: str, about: str, field: str, value: Any) -> Metric:
    found = [((shard,), value(status[field])) for shard, status in named.items() if status.get(field) is not None]
    return _gauge(name, about, ("shard",), found)


def _gauge(name: str, about: str, labels: tuple[str, ...], samples: Samples) -> Metric:
    return _filled(GaugeMetricFamily(name, about, labels=labels), samples)


def _counter(name: str, about: str, labels: tuple[str, ...], samples: Samples) -> Metric:
    return _filled(CounterMetricFamily(name, about, labels=labels), samples)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, samples: Samples) -> Metric:
    for labels, value in samples:
        family.add_metric(labels, float(value))
    return family
