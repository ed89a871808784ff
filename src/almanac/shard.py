"""The shard topic: who owns a shard, which page it is on, how it is (rule 1).

Partition s of `<group>-shards` orders everything that concerns shard s:

    owner    a driver claims the shard: from here on it is the owner, every earlier one is not
    start    a wheel starts under an owner (a retried task starts again)
    page     the owner announces a page
    stop     the owner ends its wheels
    status   a wheel tells how it is
    controls, controls-again   what people tell the wheels: see `controls`
    ask, answer                whether a wheel has passed an offset: see `asks`

The duties beside the wheels (bridge, oscillator) belong to the owner of shard 0; their records stand in partition 0:

    <duty>-start, <duty>-status   as above
    <duty>-memory                 what the next holder of the duty must know

Offsets decide who is newer; times and hosts in the records are for people.
"""

import json
import logging
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import psutil
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from almanac import controls, errors, kafka, outgoing, ports, tail, topics
from almanac.clock import Clock
from almanac.settings import Settings

log = logging.getLogger("almanac.shard")

ANSWER = 10.0  # seconds
ALIVE = 3_000  # ms since a wheel's last report in which it counts as alive
WAITS = 60_000  # ms for which somebody may wait for the answer to an ask
GONE = ("stopped", "replaced")


def who() -> str:
    """This process, for people."""
    return f"{socket.gethostname()}/{os.getpid()}"


class Journal:
    """Writes to the shard topic and waits for the answer."""

    def __init__(self, settings: Settings) -> None:
        self.topic = settings.shard_topic
        self._producer = Producer(kafka.producer(settings, linger_ms=0, message_timeout_ms=int(ANSWER * 1000)))

    def write(self, shard: int, key: str, value: dict[str, Any], seconds: float = ANSWER) -> int:
        """Appends a record; returns its offset."""
        answers: list[tuple[KafkaError | None, Message]] = []
        self._produce(shard, key, value, lambda error, message: answers.append((error, message)))
        self._producer.flush(seconds)
        if not answers or answers[0][0] is not None:
            reason = answers[0][0].str() if answers and answers[0][0] else "no answer"
            raise ports.Unavailable(f"cannot write {key} to {self.topic}/{shard}: {reason}")
        return answers[0][1].offset() or 0

    def tell(self, shard: int, key: str, value: dict[str, Any], clock: Clock) -> None:
        """Appends a record without waiting; the broker's time stamp on it is a look at its clock (rule 7)."""
        sent = clock.wall()

        def told(error: KafkaError | None, message: Message) -> None:
            if error is None:
                clock.hear_broker(message.timestamp()[1], sent, clock.wall())

        self._produce(shard, key, value, told)

    def poll(self) -> None:
        """Lets answers come in."""
        self._producer.poll(0)

    def close(self) -> None:
        """Lets the last records out."""
        self._producer.flush(1)

    def _produce(self, shard: int, key: str, value: dict[str, Any], told: Any) -> None:
        try:
            self._producer.produce(self.topic, _text(value), key.encode(), shard, on_delivery=told)
        except (BufferError, KafkaException) as error:
            raise ports.Unavailable(f"cannot write {key} to {self.topic}/{shard}: {error}") from error


class Reader:
    """Reads partitions of the shard topic from given offsets on.

    Uncommitted records too: only answers (`asks`) are written in transactions, and one that a dead wheel left open must
    not hide claims.
    """

    def __init__(self, settings: Settings, since: dict[int, int]) -> None:
        self.topic = settings.shard_topic
        # Compacted: the offset asked for may be gone, and reading goes on behind it.
        more = {"auto_offset_reset": "earliest", "isolation_level": "read_uncommitted", "fetch_wait_max_ms": 100}
        self._consumer = Consumer(kafka.consumer(settings, group_id=f"{settings.group_id}-shards", **more))
        self._consumer.assign([TopicPartition(self.topic, shard, offset) for shard, offset in since.items()])
        self._admin = AdminClient(kafka.admin(settings))
        self._positions = dict(since)

    def poll(self, seconds: float = 0.0) -> list[tuple[int, int, int, str, dict[str, Any]]]:
        """What has come: shard, offset, timestamp, key, value."""
        found = []
        for message in self._consumer.consume(100, seconds):
            shard, offset = message.partition() or 0, message.offset() or 0
            if message.error() is None:
                self._positions[shard] = offset + 1
                try:
                    key, value = (message.key() or b"").decode(), json.loads(message.value() or b"{}")
                    if not isinstance(value, dict):
                        raise ValueError("no object")
                except ValueError:
                    log.warning("%s/%d/%d is not one of ours: skipped", self.topic, shard, offset)
                    continue
                found.append((shard, offset, message.timestamp()[1], key, value))
            elif kafka.is_end(message):
                self._positions[shard] = max(self._positions[shard], offset)
        return found

    def at(self, ends: dict[int, int]) -> bool:
        """Has everything below these offsets been read?"""
        return all(self._positions[shard] >= end for shard, end in ends.items())

    def ends(self) -> dict[int, int]:
        """Where the partitions end now."""
        sources = [(self.topic, shard) for shard in self._positions]
        found = tail.ends(self._admin, sources, IsolationLevel.READ_UNCOMMITTED)
        return {shard: end for (_, shard), end in found.items()}

    def close(self) -> None:
        """Ends reading."""
        self._consumer.close()


class KafkaClaims:
    """A wheel's side of its shard; see ports.Claims."""

    def __init__(
        self, settings: Settings, shard: int, owner: int, clock: Clock, prefix: str = "", since: int | None = None
    ) -> None:
        self._shard, self._owner, self._clock, self._prefix = shard, owner, clock, prefix
        self._journal = Journal(settings)
        self._reader = Reader(settings, {shard: owner if since is None else since})
        self._start = -1
        self._newer: str | None = None
        self._page: dict[str, Any] | None = None
        self._controls = -1  # the version of those heard
        self._news: list[ports.News] = []

    def start(self) -> dict[str, Any]:
        """See ports.Claims."""
        self._begin()
        end = time.monotonic() + ANSWER
        ends = self._reader.ends()
        while self._page is None or not self._reader.at(ends):
            self._read(0.1)
            if time.monotonic() > end:
                raise ports.Unavailable(f"no page was announced for shard {self._shard}")
        self._news = [said for said in self._news if not isinstance(said, ports.Turn)]
        return self._page

    def _begin(self) -> None:
        value = {"owner": self._owner, "who": who()}
        self._start = self._journal.write(self._shard, f"{self._prefix}start", value)

    def superseded(self) -> str | None:
        """See ports.Claims."""
        ends = self._reader.ends()
        until = time.monotonic() + ANSWER
        while not self._reader.at(ends):
            self._read(0.05)
            if time.monotonic() > until:
                raise ports.Unavailable("the shard topic cannot be read to its end")
        return self._newer

    def news(self) -> Sequence[ports.News]:
        """See ports.Claims."""
        self._journal.poll()
        self._read()
        news, self._news = self._news, []
        return news

    def answer(self, ask: ports.Ask, position: int) -> outgoing.Outgoing:
        """See ports.Claims."""
        value = {"ask": ask.id, "position": position, "at": self._clock.now(), "who": who()}
        return outgoing.Outgoing(self._journal.topic, self._shard, b"answer", _text(value), [])

    def report(self, status: dict[str, Any]) -> None:
        """See ports.Claims."""
        memory = psutil.Process().memory_info().rss  # of the task's process
        value = {"owner": self._owner, "start": self._start, "who": who(), "rss": memory, **status}
        try:
            self._journal.tell(self._shard, f"{self._prefix}status", value, self._clock)
        except ports.Unavailable as error:
            log.debug("%s", error)  # it is only a report; what matters says so itself

    def close(self) -> None:
        """Ends reading; lets the last report out."""
        self._journal.close()
        self._reader.close()

    def _read(self, seconds: float = 0.0) -> None:
        for _, offset, timestamp, key, value in self._reader.poll(seconds):
            if key != "ask":
                self._hear(offset, key, value)
            elif self._clock.wall() - timestamp < WAITS and (ask := ports.Ask.of(value)) is not None:
                self._news.append(ask)  # one of before is heard again by a wheel that is started again

    def _hear(self, offset: int, key: str, value: dict[str, Any]) -> None:
        ours = value.get("owner") == self._owner
        later_owner = key == "owner" and offset > self._owner
        later_start = key == f"{self._prefix}start" and ours and offset > self._start >= 0
        if later_owner or later_start:
            self._newer = value.get("who", "?")
            self._news.append(ports.Stop(self._newer))
        elif key == "page" and ours:
            self._page = value["page"]
            self._news.append(ports.Turn(value["page"]))
        elif key == "stop" and ours and offset > self._start:  # an earlier one was for an earlier start
            self._news.append(ports.Stop())
        elif (told := controls.heard(self._shard, offset, key, value)) is not None and told.version > self._controls:
            self._controls = told.version
            self._news.append(told.controls)


class KafkaPost(KafkaClaims):
    """A duty's side of shard 0; see ports.Post."""

    def __init__(self, settings: Settings, duty: str, owner: int, clock: Clock) -> None:
        super().__init__(settings, 0, owner, clock, prefix=f"{duty}-", since=0)  # memory may be older than the claim
        self._memory: dict[str, Any] | None = None

    def start(self) -> dict[str, Any]:
        """See ports.Post."""
        self._begin()
        return {}

    def memory(self) -> dict[str, Any] | None:
        """See ports.Post."""
        return self._memory

    def remember(self, memory: dict[str, Any]) -> None:
        """See ports.Post."""
        self._journal.write(self._shard, f"{self._prefix}memory", {"owner": self._owner, "memory": memory})
        self._memory = memory

    def _hear(self, offset: int, key: str, value: dict[str, Any]) -> None:
        if key == f"{self._prefix}memory":
            self._memory = value["memory"]
        else:
            super()._hear(offset, key, value)


class Ownership:
    """A driver's side of all shards: claims them, announces pages, hears its wheels and any later owner."""

    def __init__(self, settings: Settings, shards: int) -> None:
        self.shards = shards
        self._journal = Journal(settings)
        self._offsets: dict[int, int] = {}  # of the claims
        self._looked: dict[int, int] = {}  # where the partitions ended when they were looked at first
        self._reader: Reader | None = None
        self._settings = settings
        self.statuses: dict[int, dict[str, Any]] = {}
        self.duties: dict[str, dict[str, Any]] = {}  # their last reports
        self._predecessors: dict[int, tuple[int, str]] = {}  # time and state of their last report
        self.told = controls.Kept()  # what people tell the wheels
        self.replaced_by: str | None = None
        self.each_report: Callable[[int | str, dict[str, Any]], None] = lambda work, status: None  # told as it comes

    def look(self, partitions: int) -> None:
        """Begins to read, from a little before the end: a predecessor's last report tells whether it is alive."""
        sources = [(self._settings.shard_topic, shard) for shard in range(partitions)]
        found = tail.ends(kafka.admin_client(self._settings), sources, IsolationLevel.READ_UNCOMMITTED)
        self._looked = {shard: end for (_, shard), end in found.items()}
        self._reader = Reader(self._settings, {shard: max(0, end - 20) for shard, end in self._looked.items()})

    def predecessor_alive(self) -> bool:
        """Has an earlier wheel reported within the last seconds, and not that it ended?"""
        until = time.monotonic() + ANSWER
        self.listen(0.2)
        while self._reader is not None and not self._reader.at(self._looked) and time.monotonic() < until:
            self.listen(0.1)  # what it said before must be read, however long connecting takes
        now = time.time() * 1000
        return any(state not in GONE and now - at < ALIVE for at, state in self._predecessors.values())

    def claim(self) -> dict[int, int]:
        """Appends an owner record to every partition, also those beyond `shards`: their wheels must end too."""
        works_on = () if self._settings.shadow else self._settings.own_topics
        value = {"who": who(), "shards": self.shards, "topics": list(works_on), "at": time.time()}
        self._offsets = {shard: self._journal.write(shard, "owner", value) for shard in self._looked}
        told = controls.latest(self._settings)  # what is told from now on, wheels hear themselves
        if told is not None:
            self._repeat(told, self._looked)
        return self._offsets

    def _repeat(self, told: controls.Told, shards: Iterable[int]) -> None:
        for shard in shards:
            self._journal.write(shard, controls.AGAIN, told.value())
            self.told.learn(shard, told)

    def announce(self, page: dict[str, Any]) -> None:
        """A page for every shard."""
        for shard in range(self.shards):
            self._journal.write(shard, "page", {"owner": self._offsets[shard], "page": page})

    def stop(self) -> None:
        """Ends the wheels."""
        for shard in range(self.shards):
            self._journal.write(shard, "stop", {"owner": self._offsets[shard]}, seconds=1.5)

    def listen(self, seconds: float) -> None:
        """Reads what wheels report, and whether somebody else has claimed a shard."""
        if self._reader is None:
            return
        for shard, offset, timestamp, key, value in self._reader.poll(seconds):
            claim = self._offsets.get(shard)
            if key == "owner" and claim is not None and offset > claim:
                self.replaced_by = value.get("who", "?")
            elif key == "status" and claim is not None and value.get("owner") == claim:
                self.statuses[shard] = {**value, "reported": timestamp}
                self.each_report(shard, value)
            elif key.endswith("-status") and claim is not None and value.get("owner") == claim:
                duty = key.removesuffix("-status")
                self.duties[duty] = {**value, "reported": timestamp}
                self.each_report(duty, value)
            elif key == "status":
                self._predecessors[shard] = (timestamp, value.get("state", "?"))
            elif (told := controls.heard(shard, offset, key, value)) is not None:
                self.told.learn(shard, told)
        lacking = self.told.lacking(self._offsets, time.monotonic())
        if lacking and self.told.last is not None and self.replaced_by is None:
            self._repeat(self.told.last, lacking)

    def close(self) -> None:
        """Ends reading."""
        if self._reader is not None:
            self._reader.close()


def read(settings: Settings, shard: int) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Offset, key and value of what a partition holds now; nothing if it does not exist. Takes a moment."""
    if partitions(settings) <= shard:
        return
    reader = Reader(settings, {shard: 0})
    try:
        ends = reader.ends()
        until = time.monotonic() + ANSWER
        while not reader.at(ends):
            if time.monotonic() > until:
                raise errors.Unreachable(f"{reader.topic}/{shard} was not read to its end within {ANSWER:.0f} s")
            for _, offset, _, key, value in reader.poll(0.1):
                yield offset, key, value
    except ports.Unavailable as error:
        raise errors.Unreachable(str(error)) from error
    finally:
        reader.close()


def partitions(settings: Settings) -> int:
    """How many the shard topic has; 0 if there is none."""
    name = settings.shard_topic
    return topics.partition_counts(kafka.admin_client(settings), [name]).get(name, 0)


def _text(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
