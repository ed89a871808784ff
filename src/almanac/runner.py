"""The driver: brings the book up to date, claims the shards, turns the wheels, and turns the pages.

    Runner(settings).start()   returns when the wheels fire
    Runner(settings, spark)    on a session of the caller's, which stays open
    close()                    ends the wheels and everything that start() made

    start:  topics -> Spark -> book (trusted? else rebuilt) -> page 1 -> claim -> fence -> wheels
    then:   the stream feeds the book; every page length a new page is written, announced, and the old one removed

Whatever fails meanwhile is started again, without a limit: Kafka may be away for as long as it likes. The one thing
that ends a runner by itself is a later owner of its shards (rule 1).
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self, TypeVar

from confluent_kafka import IsolationLevel, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from almanac import (
    board,
    controls,
    errors,
    jars,
    kafka,
    keeper,
    ports,
    priority,
    progress,
    shadow,
    shard,
    sink,
    states,
    tail,
    topics,
    totals,
)
from almanac.book import archive, pages, session
from almanac.settings import Settings

log = logging.getLogger("almanac.runner")

T = TypeVar("T")

LOOK = 10.0  # seconds between looks at the topics
BOOK_WAITS = 30.0  # seconds that wheels have for themselves before the book and the pages begin
SEEN = 500_000  # keys a wheel may have seen since its page before a new one is made early
PACE = 1.0  # seconds between looks whether the book is in time
RETRY = 2.0  # seconds between attempts of what failed


class Replaced(errors.AlmanacError):
    """Another scheduler of this group has taken over."""

    exit_code = 3


class Runner:
    """A scheduler. Start it once."""

    def __init__(
        self,
        settings: Settings,
        spark: SparkSession | None = None,
        progress: Callable[[str], None] = lambda text: log.info("%s", text),
    ) -> None:
        self.settings = settings = shadow.apart(settings) if settings.shadow else settings
        self.failure: BaseException | None = None
        self.totals = totals.Totals()  # of all that its wheels report
        self._spark = spark
        self._own_session = spark is None
        self._progress = progress
        self._stopping = threading.Event()
        self._done = threading.Event()
        self._turn_now = threading.Event()
        self._threads: list[threading.Thread] = []
        self._beginning = threading.Lock()
        self._ownership: shard.Ownership | None = None
        self._admin = kafka.admin_client(settings)
        self._topic_ids: dict[str, str] = {}
        self._sources: list[ports.Source] = []
        self._shards = 0
        self._owners: dict[int, int] = {}

    # Life

    def start(self) -> Self:
        """Returns when every wheel has taken its shard over. Waits for Kafka as long as it takes."""
        try:
            self._prepare_topics()
            self._go_on()
            self._prepare_book()
            self._go_on()
            self._take_over()
        except BaseException:
            self.close()
            raise
        return self

    def wait(self, seconds: float | None = None) -> bool:
        """Waits until the runner ends by itself (see `failure`) or the time is over; says whether it ended."""
        return self._done.wait(seconds)

    def close(self) -> None:
        """Ends everything; safe to call twice."""
        self._stopping.set()
        self._turn_now.set()
        if self._ownership is not None and not isinstance(self.failure, Replaced):  # the later owner ends them
            try:
                self._ownership.stop()
            except ports.Unavailable as error:
                log.warning("the wheels could not be told to stop (%s); their jobs are cancelled", error)
                for work in (*range(self._shards), *self.settings.duties) if self._spark is not None else ():
                    _quietly(partial(self._require(self._spark).sparkContext.cancelJobGroup, self._job_group(work)))
        if self._spark is not None:
            for query in self._spark.streams.active:
                if (query.name or "").startswith("almanac book"):
                    _quietly(query.stop)
        end = time.monotonic() + 4
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.1, end - time.monotonic()))
        if self._spark is not None and self._own_session:
            _quietly(self._spark.stop)
            self._spark = None
        if self._ownership is not None:
            _quietly(self._ownership.close)
            self._ownership = None
        self._done.set()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def statuses(self) -> dict[int, dict[str, Any]]:
        """The wheels' last reports, by shard."""
        return dict(self._ownership.statuses) if self._ownership is not None else {}

    @property
    def duties(self) -> dict[str, dict[str, Any]]:
        """The last reports of what runs beside the wheels: bridge, oscillator."""
        return dict(self._ownership.duties) if self._ownership is not None else {}

    @property
    def controls(self) -> controls.Controls:
        """What people have told the wheels last: pauses, caps."""
        return self._ownership.told.controls if self._ownership is not None else controls.Controls()

    @property
    def pending_in_book(self) -> dict[int, int]:
        """How many schedules the book had when each page was made, by the page's number."""
        return dict(self._keeper.pending) if hasattr(self, "_keeper") else {}

    @property
    def figures(self) -> keeper.Figures:
        """The book and its pages in numbers."""
        return self._keeper.figures() if hasattr(self, "_keeper") else keeper.Figures()

    @property
    def shards(self) -> int:
        """How many wheels there are."""
        return self._shards

    # Start

    def _prepare_topics(self) -> None:
        self._progress(f"Kafka: connecting to {self.settings.bootstrap_servers}")
        self._patiently(self._make_topics)
        counts = self._learn_topics()
        self._shards = topics.shards(self.settings, os.cpu_count() or 1, max(counts.values()))

    def _make_topics(self) -> None:
        changes = topics.ensure(self._admin, self.settings)
        grow = [change for change in changes if change.partitions and change.kind == "alter"]
        if grow:  # more shards or source partitions than before: shard topic and states are ours alone
            topics.apply(self._admin, grow)

    def _learn_topics(self) -> dict[str, int]:
        names = self.settings.topics
        self._topic_ids = self._of_each(names, topics.topic_ids)
        counts = self._of_each(names, topics.partition_counts)
        self._sources = [(topic, partition) for topic in names for partition in range(counts[topic])]
        return counts

    def _of_each(self, names: Sequence[str], ask: Callable[[AdminClient, Sequence[str]], dict[str, T]]) -> dict[str, T]:
        def asked() -> dict[str, T]:
            found = ask(self._admin, names)
            missing = set(names) - set(found)
            if missing:  # just created: the brokers tell each other first
                raise errors.Unreachable(f"topic {', '.join(sorted(missing))} is not there yet")
            return found

        return self._patiently(asked)

    def _prepare_book(self) -> None:
        if self._spark is None:
            self._progress("Spark: starting")
            tasks = self._shards + len(self.settings.duties)
            self._spark = session.session(self.settings, tasks, jars.spark_jars(), archive.options())
        else:
            session.check(self._spark)
        session.check_room(self._spark, self._shards + len(self.settings.duties) + 1)
        self._spark.dataSource.register(sink.WheelSource)
        self._keeper = keeper.Keeper(
            self.settings, self._spark, self._admin, self._topic_ids, self._sources, self._shards, self._stopping,
            self._progress,
        )  # fmt: skip
        self._patiently(self._keeper.bring_up_to_date)
        self._patiently(self._keeper.write_page)

    # Rule 1, the driver's part

    def _take_over(self) -> None:
        self._progress("Shards: claiming")
        name = self.settings.shard_topic
        partitions = self._of_each([name], topics.partition_counts)[name]
        ownership = shard.Ownership(self.settings, self._shards)
        ownership.each_report = self.totals.hear
        self._patiently(lambda: ownership.look(max(partitions, self._shards)))
        self._await_stable_ends(ownership)
        self._go_on()
        self._owners = self._patiently(ownership.claim)
        self._ownership = ownership
        # A partition's former wheel may have had another number: all of them are fenced before any new one reads.
        if not self.settings.shadow:  # which has no producers, so nobody to fence
            self._patiently(self._fence_all)
        self._patiently(lambda: ownership.announce(self._keeper.described()))
        self._keeper.tidy_up_after_others()
        for number in range(self._shards):
            self._spawn(f"wheel {number}", partial(self._turn_wheel, number))
        for duty in self.settings.duties:
            self._spawn(duty, partial(self._serve, duty))
        self._spawn("listen", self._listen)
        self._spawn("topics", self._watch_topics)
        if self.settings.states_topics:
            self._spawn("states", self._tell_states)
        if not self.settings.shadow:
            self._spawn("progress", self._show_progress)
        self._progress("Wheels: taking over")
        begun = said = time.monotonic()
        book = False
        while not self._stopping.is_set() and (late := self._late_wheels()):
            self._stopping.wait(0.05)
            if time.monotonic() - said > LOOK:
                said = time.monotonic()
                self._progress(f"Wheels: waiting for {late}")
            if not book and time.monotonic() - begun > BOOK_WAITS:  # the others need pages
                book = True
                self._begin_book()
        if not book:
            self._begin_book()

    def _late_wheels(self) -> str:
        told = self.statuses
        states = {n: board.state(told[n]) if n in told else "starting" for n in range(self._shards)}
        late = [f"shard {n} ({state})" for n, state in states.items() if state not in ("firing", "paused")]
        late += [duty for duty in self.settings.duties if duty not in self.duties]
        return ", ".join(late)

    def _begin_book(self) -> None:
        if self._own_session:
            self._spawn("pace", self._keep_pace)
        self._spawn("book", self._follow)
        self._spawn("pages", self._turn_pages)

    def _await_stable_ends(self, ownership: shard.Ownership) -> None:
        # A living predecessor is replaced only when its successor can catch up at once: a foreign transaction that
        # hangs on a schedules partition holds the last stable offset, and nobody would fire until it ends.
        high = self._patiently(lambda: tail.ends(self._admin, self._sources, IsolationLevel.READ_UNCOMMITTED))
        said = 0.0
        while not self._stopping.is_set() and ownership.predecessor_alive():
            stable = self._patiently(lambda: tail.ends(self._admin, self._sources, IsolationLevel.READ_COMMITTED))
            behind = ", ".join(f"{topic}/{p}" for (topic, p), end in high.items() if stable[topic, p] < end)
            if not behind:
                return
            if time.monotonic() - said > LOOK:
                said = time.monotonic()
                self._progress(f"Shards: waiting for a transaction that another producer holds open on {behind}")
            self._stopping.wait(0.5)

    def _fence_all(self) -> None:
        # A dead bridge may have left a transaction open on the partitions that the wheels are about to read.
        names = [
            *map(self.settings.transactional_id, self._owners),
            *map(self.settings.transactional_id, self.settings.duties),
        ]
        for name in names:
            try:
                producer = Producer(kafka.producer(self.settings, transactional_id=name))
                producer.list_topics(timeout=10)
                producer.init_transactions(10)
            except KafkaException as error:
                raise ports.Unavailable(f"cannot fence {name}: {error.args[0].str()}") from error

    def _turn_wheel(self, number: int) -> None:
        page, lost = 0, False
        while not self._stopping.is_set():
            try:
                if lost:
                    self._begin_again(page)
                page, lost = self._keeper.number, False
                self._run_wheel(number)
            except Exception as error:
                if self._stopping.is_set():
                    return
                log.error("wheel %d ended: %s; it is started again", number, errors.brief(error))
                lost = lost or ports.LogLost.__name__ in str(error)
            self._stopping.wait(RETRY)  # if it was stopped or replaced, the listener decides what follows

    def _serve(self, duty: str) -> None:
        while not self._stopping.is_set():
            try:
                owner, size = self._owners[0], topics.broker_max_bytes(self._admin)
                self._run(duty, sink.Job(self.settings, 0, owner, [], {}, size, duty))
            except Exception as error:
                if self._stopping.is_set():
                    return
                log.error("the %s ended: %s; it is started again", duty, errors.brief(error))
            self._stopping.wait(RETRY)

    def _run_wheel(self, number: int) -> None:
        job = sink.Job(
            settings=self.settings,
            shard=number,
            owner=self._owners[number],
            partitions=[s for s in self._sources if pages.shard_of(s[1], self._shards) == number],
            topic_ids=self._topic_ids,
            broker_max_bytes=topics.broker_max_bytes(self._admin),
            shards=self._shards,
        )
        self._run(number, job)

    def _run(self, work: int | str, job: sink.Job) -> None:
        spark = self._require(self._spark)
        spark.sparkContext.setJobGroup(self._job_group(work), f"almanac {_called(work)}", interruptOnCancel=True)
        frame = spark.createDataFrame([(job.shard, job.to_json())], sink.SCHEMA).coalesce(1)
        frame.write.format("almanac").mode("append").save()

    def _job_group(self, work: int | str) -> str:
        claim = self._owners.get(work if isinstance(work, int) else 0)
        return f"almanac {_called(work)}, claim {claim}"  # a session may hold several runners

    def _begin_again(self, page: int) -> None:
        """The log no longer reaches back to `page`, or there is more of it: all is looked at as at a start."""
        with self._beginning:
            if self._keeper.number > page:
                return  # another wheel's thread was here first
            self._learn_topics()
            self._keeper.know(self._topic_ids, self._sources)
            self._patiently(self._keeper.bring_up_to_date)
            self._patiently(self._keeper.write_page)
            self._patiently(self._announce)

    def _watch_topics(self) -> None:
        """Partitions may be added at any time: the wheels are started again with them."""
        grown = False  # the wheels have not been told yet
        while not self._stopping.wait(LOOK):
            try:
                counts = topics.partition_counts(self._admin, self.settings.topics)
                if sum(counts.values()) > len(self._sources):
                    self._progress(
                        f"Topics: there are {sum(counts.values())} partitions now, were {len(self._sources)}"
                    )
                    grown = True
                    self._make_topics()
                    self._begin_again(self._keeper.number)
                if grown:
                    self._require(self._ownership).stop()
                    grown = False
            except Exception as error:
                log.info("the topics could not be looked at: %s", errors.brief(error))

    def _tell_states(self) -> None:
        reporter = states.Reporter(self.settings, self._admin)
        while not self._stopping.wait(1):
            try:
                told = [source for source in self._sources if source[0] in self.settings.states_topics]
                shards = {source: pages.shard_of(source[1], self._shards) for source in told}
                reporter.look({source: self.statuses.get(n, {}) for source, n in shards.items()}, self._topic_ids)
            except Exception as error:  # people miss a record of how it is; nothing else depends on it
                log.info("the states could not be told: %s", errors.brief(error))
                self._stopping.wait(RETRY)
        if not isinstance(self.failure, Replaced):  # else the later owner tells
            _quietly(reporter.close)

    def _show_progress(self) -> None:
        shown = progress.Progress(self.settings)
        while not self._stopping.wait(progress.INTERVAL):
            shown.show(self.statuses.values())
        shown.close()

    def _listen(self) -> None:
        while not self._stopping.is_set():
            try:
                self._hear()
            except Exception as error:  # whatever it is, a later owner must be noticed
                if self._stopping.is_set():
                    return
                log.warning("the shard topic could not be read: %s", errors.brief(error))
                self._stopping.wait(RETRY)

    def _hear(self) -> None:
        ownership = self._require(self._ownership)
        ownership.listen(0.2)
        if ownership.replaced_by:
            self._fail(Replaced(f"{ownership.replaced_by} has taken over group {self.settings.group_id}: "
                                "this scheduler fires nothing more and ends"))  # fmt: skip
        elif any(status.get("seen", 0) > SEEN for status in ownership.statuses.values()):
            self._turn_now.set()

    def _fail(self, error: BaseException) -> None:
        log.error("%s", error)
        self.failure = error
        self._stopping.set()
        self._turn_now.set()
        self._done.set()

    # The book and the pages

    def _follow(self) -> None:
        while not self._stopping.is_set():
            try:
                self._keeper.follow()
            except Exception as error:
                self._mend("the book's stream ended", error)

    def _keep_pace(self) -> None:
        pace = priority.Pace(self._late)
        try:
            while not self._stopping.is_set():
                pace.look()
                self._stopping.wait(PACE)
        finally:
            pace.end()

    def _late(self) -> str | None:
        if any(status.get("seen", 0) > SEEN for status in self.statuses.values()):
            return "the wheels wait for a page"
        if wheels := self._late_wheels():  # Spark has to start one, or to read what it needs
            return f"{wheels} does not fire yet"
        return self._keeper.late()

    def _turn_pages(self) -> None:
        age = time.time() - self._keeper.described()["made"] / 1000
        turned = time.monotonic() - max(0.0, age)  # when the page in use was written
        written: float | None = None  # when the page was that could not be announced yet
        while not self._stopping.is_set():
            early = self._turn_now.wait(max(0.0, turned + self.settings.page_length - time.monotonic()))
            if self._stopping.is_set():
                return
            self._turn_now.clear()
            try:
                early = early and time.monotonic() < turned + self.settings.page_length
                if early and written is None and not self._keeper.has_news():
                    self._stopping.wait(1)  # a page would not relieve the wheels yet: the book has to read first
                    continue
                if written is None or time.monotonic() > written + self.settings.page_length:
                    begun = time.monotonic()
                    self._keeper.write_page()
                    written = begun
                self._announce()
                turned, written = written, None
            except Exception as error:
                self._mend("no page was written", error)

    def _announce(self) -> None:
        self._require(self._ownership).announce(self._keeper.described())
        # a page is removed when every wheel has turned it
        self._keeper.remove_old_pages(min((s.get("page") or 0 for s in self.statuses.values()), default=0))

    def _mend(self, what: str, error: Exception) -> None:
        if self._stopping.is_set():
            return
        log.warning("%s: %s; trying again", what, errors.brief(error))
        try:
            if self._keeper.failed(error):
                self._keeper.write_page()
                self._announce()
        except Exception as worse:
            log.warning("the book could not be built again yet: %s", errors.brief(worse))
        self._stopping.wait(RETRY)

    # Small things

    def _go_on(self) -> None:
        if self._stopping.is_set():
            raise keeper.Stopped

    def _spawn(self, name: str, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name=f"almanac {name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _patiently(self, work: Callable[[], T]) -> T:
        """Until it works: Kafka may be away. A wrong setting is not waited for."""
        said = ""
        while True:
            try:
                return work()
            except (errors.Unreachable, ports.Unavailable) as error:
                self._go_on()
                self._admin.poll(0)  # lets it log why: a wrong password, say
                if str(error) != said:
                    said = str(error)
                    self._progress(f"Kafka: waiting ({said})")
                self._stopping.wait(RETRY / 2)

    def _require(self, thing: T | None) -> T:
        if thing is None:
            raise errors.AlmanacError("the runner is not started, or closed")
        return thing


def _called(work: int | str) -> str:
    return work if isinstance(work, str) else f"wheel {work}"


def _quietly(work: Callable[[], object]) -> None:
    try:
        work()
    except Exception as error:
        log.debug("while stopping: %s", errors.brief(error))
