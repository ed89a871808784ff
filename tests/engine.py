"""A scheduler under test: `almanac run` as a process of its own, with a group, topics and a book of its own.

Group       names, settings, topics; feeds schedules, reads topics, starts schedulers
Scheduler   one process and all it starts: driver, JVM, Python workers
Shards      what the wheels say of themselves, read from the shard topic
Reading     a topic as its consumers see it: committed records only
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import psutil
from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from typer.testing import CliRunner
from waiting import until

from almanac import settings, tail, topics
from almanac.book import read
from almanac.broker import ClientSettings
from almanac.cli import app
from almanac.record import Headers
from almanac.settings import Settings

UP_S = 120.0  # a start, on a machine that does other things too
END_S = 10.0  # SIGTERM to the end
PARTITIONS = 4
# A test's own clients add no delay when Kafka comes back.
QUICK: ClientSettings = {
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "api.version.request.timeout.ms": 2_500,
    "socket.timeout.ms": 10_000,
    "log_level": 0,
}

Source = tuple[str, int]


def now() -> int:
    """Epoch ms."""
    return int(time.time() * 1000)


class Got(NamedTuple):
    """A record that a consumer was given."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    at: int  # epoch ms at which it was given

    def header(self, name: str) -> bytes | None:
        """The last one of that name."""
        return dict(self.headers)[name]


def _got(message: Message, at: int) -> Got:
    place = (message.topic() or "", message.partition() or 0, message.offset() or 0)
    headers: Any = message.headers() or []
    return Got(*place, message.timestamp()[1], message.key(), message.value(), headers, at)


class Reading:
    """A topic from its beginning (or end), as a consumer sees it that reads committed records, or all."""

    def __init__(
        self, group: "Group", topic: str, since: int = OFFSET_BEGINNING, isolation: str = "read_committed"
    ) -> None:
        more = {"group.id": "tests", "isolation.level": isolation, "enable.partition.eof": True}
        reading = {"enable.auto.commit": False, "fetch.wait.max.ms": 20, "queued.max.messages.kbytes": 65_536}
        self.topic = topic
        self.got: list[Got] = []
        self._group = group
        self._consumer = Consumer({**group.client, **more, **reading})
        self._ends: dict[int, int] = {}
        count = topics.partition_counts(group.admin, [topic])[topic]
        self._consumer.assign([TopicPartition(topic, p, since) for p in range(count)])

    def more(self, seconds: float = 0.1) -> list[Got]:
        """What has come now."""
        found = []
        for message in self._consumer.consume(5_000, seconds):
            error = message.error()
            if error is None:
                found.append(_got(message, now()))
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ends[message.partition() or 0] = message.offset() or 0
        self.got += found
        return found

    def until(self, enough: Callable[[list[Got]], bool], timeout: float, what: str) -> list[Got]:
        """All that has come, as soon as it is enough."""

        def look() -> bool:
            self.more()
            return enough(self.got)

        until(look, timeout, f"{what} on {self.topic} ({len(self.got)} records came before)")
        return self.got

    def count(self, number: int, timeout: float = 30) -> list[Got]:
        """At least that many."""
        return self.until(lambda got: len(got) >= number, timeout, f"{number} records")

    def to_the_end(self, timeout: float = 30) -> list[Got]:
        """Everything that was committed before this call; waits for transactions that are open now."""
        ends = self._group.ends([self.topic])

        def reached() -> bool:
            self.more()
            return all(self._ends.get(partition, 0) >= end for (_, partition), end in ends.items())

        until(reached, timeout, f"the end of {self.topic}, {ends}")
        return self.got

    def close(self) -> None:
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Shards:
    """Reads the shard topic: who claimed what, and how each wheel says it is."""

    def __init__(self, group: "Group") -> None:
        reading = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "fetch.wait.max.ms": 50}
        more = {"group.id": f"{group.name}-watch-{uuid.uuid4().hex[:8]}", "topic.metadata.refresh.interval.ms": 500}
        self._consumer = Consumer({**group.client, **more, **reading})
        # Subscribed, not assigned: the topic may not be there yet, and it grows with the number of shards.
        self._consumer.subscribe([group.settings.shard_topic])
        self.owners: dict[tuple[int, int], dict[str, Any]] = {}  # shard, offset of the claim -> what it says
        self.statuses: dict[tuple[int, int], dict[str, Any]] = {}  # shard, offset of the claim it works under
        self.duties: dict[tuple[str, int], dict[str, Any]] = {}  # its name, offset of the claim it works under
        self.starts: Counter[tuple[int, int]] = Counter()  # how often a wheel was started under that claim
        self.states: set[str] = set()  # all that were ever reported

    def look(self) -> Self:
        """Reads what has come."""
        for message in self._consumer.consume(1_000, 0.05):
            if message.error() is not None:
                continue
            shard, offset, key = message.partition() or 0, message.offset() or 0, message.key()
            value = json.loads(message.value() or b"{}")
            if key == b"owner":
                self.owners[shard, offset] = value
            elif key == b"start":
                self.starts[shard, value["owner"]] += 1
            elif key == b"status":
                self.statuses[shard, value["owner"]] = {**value, "reported": message.timestamp()[1]}
                self.states.add(value["state"])
            elif key is not None and key.endswith(b"-status"):
                name = key.decode().removesuffix("-status")
                self.duties[name, value["owner"]] = {**value, "reported": message.timestamp()[1]}
        return self

    def of(self, driver: int) -> dict[int, dict[str, Any]]:
        """The last report of each wheel of that driver, by shard."""
        claims = {shard: offset for (shard, offset), value in sorted(self.owners.items()) if _pid(value) == driver}
        found = {shard: self.statuses.get((shard, offset), {}) for shard, offset in claims.items()}
        wheels = max((self.owners[claim]["shards"] for claim in claims.items()), default=0)
        return {shard: status for shard, status in found.items() if shard < wheels}

    def duty(self, name: str, driver: int) -> dict[str, Any]:
        """The last report of that duty of that driver."""
        claims = [offset for (shard, offset), value in self.owners.items() if shard == 0 and _pid(value) == driver]
        return self.duties.get((name, max(claims, default=-1)), {})

    def close(self) -> None:
        self._consumer.close()


def _pid(value: dict[str, Any]) -> int:
    return int(value["who"].rpartition("/")[2])


class Scheduler:
    """One run of the scheduler."""

    def __init__(self, group: "Group", environment: dict[str, str], output: Path) -> None:
        self.group = group
        self._output = output
        with output.open("wb") as file:
            # A session of its own, as a service would have: no signal of the test's terminal reaches it.
            self.process = subprocess.Popen(
                [sys.executable, "-m", "almanac", "run"], env=environment, cwd=group.folder, stdin=subprocess.DEVNULL,
                stdout=file, stderr=file, start_new_session=True,
            )  # fmt: skip
        self.pid = self.process.pid
        self._known: list[psutil.Process] = []

    @property
    def output(self) -> str:
        """What it has said so far."""
        return self._output.read_text(errors="replace")

    def tree(self) -> list[psutil.Process]:
        """The driver, the JVM and Python's workers; those that were seen before and still run are among them."""
        with contextlib.suppress(psutil.NoSuchProcess):
            driver = psutil.Process(self.pid)
            self._known = list({*self._known, driver, *driver.children(recursive=True)})
        return [process for process in self._known if running(process)]

    def jvm(self) -> psutil.Process:
        return next(process for process in self.tree() if process.name() == "java")

    def wheels(self) -> dict[int, int]:
        """The processes of the wheels, by shard."""
        return {shard: _pid(status) for shard, status in self.statuses().items() if status}

    # How it is

    def statuses(self) -> dict[int, dict[str, Any]]:
        """The wheels' last reports, by shard."""
        return self.group.shards.look().of(self.pid)

    def duty(self, name: str) -> dict[str, Any]:
        """The last report of what runs beside the wheels; with the `pid` of its process."""
        status = self.group.shards.look().duty(name, self.pid)
        return {**status, "pid": _pid(status)} if status else {"state": "none", "pid": 0}

    def reports(self, condition: Callable[[dict[str, Any]], bool], timeout: float, what: str) -> None:
        """Waits until every wheel has reported, from now on, what the condition asks for."""
        since = now()

        def reported() -> bool:
            statuses = self.statuses()
            self.alive()
            fresh = [status for status in statuses.values() if status.get("reported", 0) > since]
            return 0 < len(fresh) == len(statuses) and all(map(condition, fresh))

        until(reported, timeout, f"{what}; last reports: {self.statuses()}")

    def up(self, timeout: float = UP_S) -> Self:
        """Waits until every wheel fires."""

        def fires() -> bool:
            self.alive()
            statuses = self.statuses()
            return bool(statuses) and all(status.get("state") == "firing" for status in statuses.values())

        try:
            until(fires, timeout, "all wheels fire")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.output[-3000:]}") from None
        self.tree()
        return self

    def alive(self) -> None:
        if self.process.poll() is not None:
            raise AssertionError(f"the scheduler ended with code {self.process.returncode}:\n{self.output[-3000:]}")

    def quiet(self, before: int | None = None, timeout: float = 30) -> None:
        """Waits until the wheels have read all there is, and nothing is due before that time (now, unless told).

        What lies in a partition that is halted is not waited for.
        """
        ends = self.group.ends(self.group.settings.topics)
        limit = before or now()

        def nothing_left(status: dict[str, Any]) -> bool:
            halted = {(topic, partition) for topic, partition, _ in status["halted"]}
            read_all = all(
                offset >= ends[topic, p] for topic, p, offset in status["positions"] if (topic, p) not in halted
            )
            idle = status["next_due"] is None or status["next_due"] > limit
            return bool(status["state"] == "firing" and read_all and idle and not status["missed"])

        self.reports(nothing_left, timeout, "the wheels have nothing left to do")

    def page(self) -> int:
        """The page that all wheels have reached."""
        return min((status.get("page") or 0 for status in self.statuses().values()), default=0)

    # How it ends

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def stop(self, timeout: float = END_S) -> int:
        """SIGTERM; the exit code."""
        self.tree()
        self.signal(signal.SIGTERM)
        return self.ended(timeout)

    def ended(self, timeout: float) -> int:
        """Waits until it has ended by itself, and all it started; the exit code."""
        until(lambda: self.process.poll() is not None, timeout, "the scheduler ends")
        self.gone(timeout)
        return int(self.process.returncode)

    def gone(self, timeout: float) -> None:
        """Waits until nothing of it runs any more."""
        until(lambda: not self.tree(), timeout, "nothing of it is left running")

    def kill(self) -> None:
        """SIGKILL to the driver alone: the rest must end by itself."""
        self.tree()
        self.process.kill()
        self.process.wait(10)

    def freeze(self) -> None:
        """SIGSTOP to all of it."""
        for process in self.tree():
            with contextlib.suppress(psutil.NoSuchProcess):  # one that had nothing more to do
                process.suspend()

    def thaw(self) -> None:
        for process in self._known:
            if running(process):
                process.resume()

    def destroy(self) -> None:
        """Whatever state it is in, nothing of it runs afterwards."""
        for process in self.tree():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait(10)


def running(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Group:
    """A group of its own on a broker: `with Group(servers, folder, page_length="5s") as group: group.start().up()`."""

    def __init__(self, servers: str, folder: Path, **told: str) -> None:
        self.name = f"g{uuid.uuid4().hex[:8]}"
        self.folder = folder / self.name
        self.folder.mkdir(parents=True)
        self.topic, self.target = f"{self.name}-schedules", f"{self.name}-target"
        self.client: ClientSettings = {"bootstrap.servers": servers, **QUICK}
        self.admin = AdminClient(self.client)
        self.schedulers: list[Scheduler] = []
        ours = {variable for name in settings.NAMES for variable in settings.environment(name)}
        self._environment = {name: value for name, value in os.environ.items() if name not in ours} | {
            "BOOTSTRAP_SERVERS": servers,
            "GROUP_ID": self.name,
            "SCHEDULES_TOPICS": self.topic,
            "HISTORY_TOPIC": f"{self.name}-history",
            "DEAD_LETTERS_TOPIC": f"{self.name}-dead",
            "TOPIC_PARTITIONS": str(PARTITIONS),
            "BOOK_LOCATION": str(self.folder / "book"),
            "SHARDS": "2",
            "DATA_FOLDER": str(self.folder),
            # Schedulers of several tests and groups run at once: who wants to ask one gives it an address.
            "SERVER_ADDR": "",
            "METRICS_HTTP_ADDR": "",
        }
        self.tell(**told)
        topics.ensure(self.admin, self.settings)
        self.make_topic(self.target)
        self.shards = Shards(self)
        self._refused: list[str] = []
        long = {"message.timeout.ms": 1_800_000, "queue.buffering.max.messages": 2_000_000, "linger.ms": 2}
        more = {"queue.buffering.max.kbytes": 1_048_576, "enable.idempotence": True, "partitioner": "murmur2_random"}
        only = {"delivery.report.only.error": True, "on_delivery": self._told}
        self._producer = Producer({**self.client, **long, **more, **only})

    def tell(self, **told: str) -> None:
        """Settings for later starts."""
        self._environment |= {name.upper(): value for name, value in told.items()}

    @property
    def settings(self) -> Settings:
        return Settings.load({}, self._environment)

    @property
    def environment(self) -> dict[str, str]:
        """For a command."""
        return dict(self._environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all of its schedulers, in whatever state they are."""
        for scheduler in self.schedulers:
            scheduler.destroy()
        self.shards.close()
        self._producer.purge()

    # Schedulers

    def start(self, **told: str) -> Scheduler:
        """A scheduler with these settings on top; does not wait until it is up."""
        environment = self._environment | {name.upper(): value for name, value in told.items()}
        output = self.folder / f"output-{len(self.schedulers) + 1}.log"
        self.schedulers.append(Scheduler(self, environment, output))
        return self.schedulers[-1]

    # Topics

    def make_topic(self, name: str, partitions: int = PARTITIONS, config: dict[str, str] | None = None) -> str:
        """Its records have the broker's time: it tells whether a message was early."""
        stamped = {"message.timestamp.type": "LogAppendTime", **(config or {})}
        self.admin.create_topics([NewTopic(name, partitions, 1, config=stamped)])[name].result(30)
        until(lambda: name in topics.partition_counts(self.admin, [name]), 10, f"{name} is known")
        return name

    def ends(self, names: Sequence[str]) -> dict[Source, int]:
        """Where the topics end, open transactions included."""
        counts = topics.partition_counts(self.admin, names)
        sources = [(topic, partition) for topic in names for partition in range(counts[topic])]
        return tail.ends(self.admin, sources, IsolationLevel.READ_UNCOMMITTED)

    def read(self, topic: str | None = None, isolation: str = "read_committed") -> Reading:
        """A topic (the target, unless told) from its beginning."""
        return Reading(self, topic or self.target, isolation=isolation)

    def dead_letters(self) -> Reading:
        return Reading(self, self.settings.dead_letters_topic)

    # Users

    def schedule(
        self,
        key: bytes,
        due: int,
        value: bytes = b"",
        target: str | None = None,
        headers: Sequence[Any] = (),
        **more: Any,
    ) -> None:
        """Writes a schedule; `flush()` waits for the broker's answer. Due in epoch ms."""
        to = (target or self.target).encode()
        when: Headers = [("scheduler-epoch-ms", b"%d" % due), ("scheduler-target-topic", to)]
        self.write(key, value, [*when, *headers], **more)

    def cancel(self, key: bytes, **more: Any) -> None:
        self.write(key, None, [], **more)

    def write(
        self, key: bytes | None, value: bytes | None, headers: Sequence[Any], topic: str | None = None, **more: Any
    ) -> None:
        """Any record; `more` as the producer takes it (partition, timestamp)."""
        while True:
            try:
                self._producer.produce(topic or self.topic, value, key, headers=list(headers), **more)
                return
            except BufferError:
                self._producer.poll(0.1)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._refused.append(f"{message.topic()}: {error.str()}")

    def flush(self, timeout: float = 60) -> None:
        """Returns when Kafka has taken all that was written."""
        assert self._producer.flush(timeout) == 0, "Kafka does not take what was fed"
        assert not self._refused

    # What people ask

    def ls(self, limit: int = 100_000) -> dict[str, int]:
        """`almanac ls --json`: due times by id."""
        result = CliRunner().invoke(app, ["ls", "--json", "--limit", str(limit)], env=self._environment)
        assert result.exit_code == 0, result.output
        return {row["id"]: row["due_ms"] for row in json.loads(result.stdout)}

    def explain(self, key: bytes) -> str:
        """`almanac explain`."""
        return CliRunner().invoke(app, ["explain", key.decode()], env=self._environment).output

    def book(self) -> dict[bytes, int]:
        """Due times by id, from the book alone."""
        return {row.id: row.due for row in read.Reader(self.settings.book_folder).pending(limit=10_000_000)}

    def booked(self, timeout: float = 60) -> None:
        """Waits until the book has taken in all that is in the log now."""
        ends = self.ends(self.settings.topics)

        def taken() -> bool:
            try:
                known = read.Reader(self.settings.book_folder).offsets()
            except read.BookError:
                return False
            return all(known.get(source, 0) >= end for source, end in ends.items())

        until(taken, timeout, "the book has read the log to its end")
