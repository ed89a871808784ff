"""Brings records into a native topic exactly once, also if it is killed in the middle and run again.

    fence     one transactional id for each native topic: an earlier mover that still runs is shut out, and what it left
              open is aborted
    markers   read to their end: how far each source was brought over
    write     a batch, where it lies and the marker behind it, in one transaction: all is there, or nothing

    migrate <topic id>      {"passes": [[0, 1200, 800], ...], ...}          see `migrate`
    import <sha-256>        {"lines": 400, ...}                             see `imports`
    wrote 2/1017            {"last": 1349, "by": "migrate <topic id>/0"}    offsets 1017 to 1349 of partition 2

Markers live in a compacted topic beside the native one, `<topic>-moves`, and not in a consumer group: a group's offsets
expire after a week without members, and whoever ran the same command again then would bring everything twice.
"""

from __future__ import annotations

import json
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import ResourceType

from almanac import errors, formats, kafka, scan, topics, when, words
from almanac.native import Native
from almanac.settings import Settings
from almanac.writer import LOOK, SLOW

BATCH = 1_000  # records of a transaction
BATCH_BYTES = 4 << 20
FRAME = 1_024  # bytes: what Kafka may add to a record
ANSWER = 30.0  # seconds
SETTLE = 15.0  # seconds that somebody's open transaction in the native topic is waited for
GLANCE = 0.05  # seconds between two looks at it

Marker = dict[str, Any]

_WROTE = "wrote "  # begins the names of what tells which records of the native topic are ours

_FENCED = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)


class Spoken(NamedTuple):
    """What was last said of an id in one partition of the native topic, our acknowledgements apart."""

    timestamp: int  # epoch ms
    waits: bool  # it was a schedule, and it has not fired
    partition: int
    version: int  # of the word; of a cancel, its offset
    by: str | None = None  # the marker of the source that it was brought from; None: somebody else said it


def destination(settings: Settings, topic: str | None) -> str:
    """The native schedules topic of that name, or the first one. Raises UsageError."""
    known = [name for name, form in settings.sources if form in formats.NATIVE]
    if topic is None and known:
        return known[0]
    if topic not in known:
        which = f"--to-topic {topic!r} is none" if topic is not None else "there is none"
        raise errors.UsageError(
            "a native schedules topic is needed, one of SCHEDULES_TOPICS with the format "
            f"{' or '.join(formats.NATIVE)}: {which} ({', '.join(known) or 'no such topic'})"
        )
    return topic


def waiting(heard: list[Spoken]) -> int:
    """The partition that a new word of an id goes to: where it waits; -1, the partitioner's choice, if it does not."""
    return next((each.partition for each in reversed(heard) if each.waits), -1)


class Mover:
    """Writes into one native topic."""

    def __init__(self, settings: Settings, topic: str) -> None:
        self.topic, self.log = topic, f"{topic}-moves"
        self._settings = settings
        self._admin = kafka.admin_client(settings)
        self._producer: Producer | None = None
        self._heard: str | None = None  # of the connection, while a transaction ends
        self._doubt: str | None = None  # rule 6: why the last answer may not be the last
        self._known: dict[str, Marker] = {}  # what the log of moves says, as far as we know
        found = topics.topic_ids(self._admin, [topic])
        if topic not in found:
            raise errors.UsageError(f"the topic {topic} does not exist; `almanac topics apply` creates it")
        self.topic_id = found[topic]
        values = topics.configs(self._admin, ResourceType.TOPIC, [topic])[topic]
        if values.get("message.timestamp.type") == "LogAppendTime":
            raise errors.UsageError(
                f"the topic {topic} has message.timestamp.type=LogAppendTime: schedules could not keep the time at "
                "which they were written, and overdue ones would be refused. Set it to CreateTime"
            )
        self._largest = int(values.get("max.message.bytes") or topics.MESSAGE_BYTES)

    def fits(self, record: Native) -> bool:
        """Does the native topic take a record of that size?"""
        return record.size() + FRAME <= self._largest

    def markers(self) -> dict[str, Marker]:
        """How far each source was brought into this topic; of one made anew under the same name, nothing."""
        self._known = self._log()
        return {name: marker for name, marker in self._known.items() if not name.startswith(_WROTE)}

    def _log(self) -> dict[str, Marker]:
        sources = scan.partitions(self._admin, [self.log])
        found: dict[str, Marker] = {}
        for record in scan.read(self._settings, {}, scan.ends(self._admin, sources), lambda _: True):
            whose, _, name = (record.key or b"").decode(errors="replace").partition(" ")
            if whose == self.topic_id and record.value:
                found[name] = json.loads(record.value)
        return found

    def spoken(self, ids: set[bytes]) -> dict[bytes, list[Spoken]]:
        """What was said of these ids in the native topic: for each partition the last word, the newest at the end.

        Who said it, the log of moves tells: `markers` comes first.
        """
        form = formats.named("auto", self._settings.schedule_grace_interval * 1000)
        stops = scan.ends(self._admin, scan.partitions(self._admin, [self.topic]))
        found: dict[bytes, dict[int, Spoken]] = {}
        for record in scan.read(self._settings, {}, stops, lambda message: message.key() in ids):
            said, here = words.read(record, form, self.topic_id), record.partition
            if not isinstance(said, words.Word | words.Kill):
                continue
            heard = found.setdefault(record.key or b"", {})
            last = heard.get(here)
            if last is not None and said.version < last.version:
                continue
            if isinstance(said, words.Word):
                if last is None or said.version > last.version:  # else it is repeated, which says nothing new
                    heard[here] = Spoken(said.record.timestamp, True, here, said.version)
            elif (said.ours and words.acknowledges(record)) or (last is not None and said.version == last.version):
                if last is not None:  # it fired, or it ends once more; nobody has said anything since
                    heard[here] = last._replace(waits=False)
            else:
                heard[here] = Spoken(record.timestamp, False, here, said.version)
        writers = self._writers()
        return {
            name: sorted(each._replace(by=writers(each.partition, each.version)) for each in heard.values())
            for name, heard in found.items() if heard
        }  # fmt: skip

    def settle(self) -> None:
        """Waits for open transactions of others: behind them nothing of the native topic can be read.

        Ours, of an earlier run that was killed, is over: `fence` comes first.
        """
        sources = scan.partitions(self._admin, [self.topic])
        highs, until = scan.highs(self._admin, sources), time.monotonic() + SETTLE
        while hidden := [source for source, end in scan.ends(self._admin, sources).items() if end < highs[source]]:
            if time.monotonic() > until:
                where = ", ".join(f"{topic}/{partition}" for topic, partition in hidden)
                raise errors.AlmanacError(
                    f"a transaction of another program is open on {where}, and what was said behind it cannot be read. "
                    "Run the command again when it has ended (`almanac doctor` shows it): it goes on where it stood"
                )
            time.sleep(GLANCE)

    def _writers(self) -> Callable[[int, int], str | None]:
        """Tells of a place in the native topic from which source we brought what is there."""
        runs: dict[int, list[tuple[int, int, str]]] = {}
        for name, run in self._known.items():
            if name.startswith(_WROTE):
                partition, _, first = name.removeprefix(_WROTE).partition("/")
                runs.setdefault(int(partition), []).append((int(first), run["last"], run["by"]))
        for each in runs.values():
            each.sort()

        def writer(partition: int, offset: int) -> str | None:
            here = runs.get(partition, [])
            number = bisect_right(here, offset, key=lambda run: run[0]) - 1
            return here[number][2] if number >= 0 and offset <= here[number][1] else None

        return writer

    # Writing

    def fence(self) -> None:
        """Shuts earlier movers out, and returns when everything that was committed can be read.

        A commit is answered before its records can be read: only initialising anew waits for that. So `markers` and
        `spoken` may be relied on after this, and not after `write`.
        """
        marker = topics.TopicSpec(
            name=self.log, purpose="moves", partitions=1, replication_factor=self._settings.replication_factor,
            configs={"cleanup.policy": "compact"},
        )  # fmt: skip
        if self.log not in topics.descriptions(self._admin, [self.log]):
            topics.apply(self._admin, [topics.Change(spec=marker, kind="create")])
        elif topics.configs(self._admin, ResourceType.TOPIC, [self.log])[self.log].get("cleanup.policy") != "compact":
            raise errors.UsageError(
                f"the topic {self.log} must have cleanup.policy=compact: its markers must not expire"
            )
        config = kafka.producer(
            self._settings, transactional_id=self.log, transaction_timeout_ms=self._settings.transaction_timeout_ms,
            message_max_bytes=self._largest, error_cb=self._hear,
        )  # fmt: skip
        self.close()
        try:
            self._doubt = None
            self._producer = Producer(config)
            self._producer.init_transactions(ANSWER)
        except KafkaException as error:
            raise kafka.explained(error, f"taking over {self.log}") from error

    def _hear(self, error: KafkaError) -> None:
        self._heard = error.str()
        kafka.log.warning("kafka: %s", error.str())

    def write(self, records: Sequence[Native], name: str, marker: Marker, by: str | None = None) -> None:
        """The records and the marker, in one transaction. An error leaves both out, or (unclear) both in.

        `by`: from which source they are, if the marker is about several.
        """
        if self._producer is None:
            raise errors.AlmanacError("the mover is not fenced yet")
        if self._doubt is not None:
            self._renew()
        refused: list[str] = []
        places: list[tuple[int, int]] = []

        def told(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                refused.append(error.str())
            else:
                offset = message.offset()
                places.append((message.partition() or 0, -1 if offset is None else offset))

        producer = self._producer
        now = when.milliseconds(datetime.now(UTC))
        try:
            producer.begin_transaction()
            for key, value, headers, timestamp, partition in records:
                # A time stamp ahead of the broker's clock would be refused; librdkafka takes 0 for now.
                stamp = max(1, min(timestamp, now))
                producer.produce(
                    self.topic, value, key, partition, headers=list(headers), timestamp=stamp, on_delivery=told
                )
            if records:
                self._flush(producer, refused)
            said = {**_runs(places, by or name), name: marker}
            for each, what in said.items():
                text = json.dumps(what, separators=(",", ":")).encode()
                producer.produce(self.log, text, f"{self.topic_id} {each}".encode(), 0, on_delivery=told)
            self._flush(producer, refused)  # before the commit, so that a slow answer to that itself can be told
            self._commit(producer)
            self._known |= said
        except KafkaException as error:
            if error.args[0].code() in _FENCED:
                raise self._replaced() from error
            known = kafka.explained(error, f"writing into {self.topic}")
            why = f" ({refused[0]})" if refused else ""
            raise type(known)(f"{known}{why} Run the command again: it goes on where it stood") from error

    def _flush(self, producer: Producer, refused: list[str]) -> None:
        """Returns when all is in the log. If something is refused, the commit says why."""
        begun = time.monotonic()
        while producer.flush(LOOK) and not refused and time.monotonic() - begun < ANSWER:
            try:
                producer.begin_transaction()  # never taken, but it names what is wrong with this one: see `writer`
            except KafkaException as error:
                if error.args[0].code() != KafkaError._STATE:
                    raise
        if refused:
            producer.commit_transaction(ANSWER)
        if len(producer):
            raise errors.Unreachable(
                f"writing into {self.topic}: Kafka does not answer. Run the command again: it goes on where it stood"
            )

    def _commit(self, producer: Producer) -> None:
        # Rule 6: librdkafka repeats what ends a transaction by itself, and a late repeat would end the next one.
        self._heard = None
        begun = time.monotonic()
        producer.commit_transaction(ANSWER)
        took = time.monotonic() - begun
        producer.poll(0)  # what was heard meanwhile is told here
        self._doubt = self._heard or (f"the answer took {took:.1f} s" if took > SLOW else None)

    def _renew(self) -> None:
        """Rule 6: goes on with a new producer, unless somebody else has written meanwhile: rule 1, look again."""
        kafka.log.info("%s: going on with a new producer (%s)", self.log, self._doubt)
        self.fence()
        if self._log() != self._known:
            raise self._replaced()

    def _replaced(self) -> errors.AlmanacError:
        return errors.AlmanacError(
            f"another command that brings schedules into {self.topic} has taken over, or this one was too slow for "
            "Kafka (TRANSACTION_TIMEOUT): it ends here. Run again it goes on where it stood"
        )

    def close(self) -> None:
        """Lets the producer go."""
        if self._producer is not None:
            self._producer.purge()
            self._producer = None


def _runs(places: list[tuple[int, int]], name: str) -> dict[str, Marker]:
    """Where the records of a transaction lie: for each run of offsets that follow one another, what the log notes."""
    found: dict[str, Marker] = {}
    run, before = "", (-1, -1)
    for partition, offset in sorted(places):
        if offset < 0:
            continue  # Kafka has it and does not say where: the record passes for somebody else's
        if (partition, offset - 1) != before:
            run = f"{_WROTE}{partition}/{offset}"
        found[run] = {"last": offset, "by": name}
        before = partition, offset
    return found


class Batch:
    """Records that go in one transaction."""

    def __init__(self) -> None:
        self.records: list[Native] = []
        self._bytes = 0

    def add(self, record: Native) -> bool:
        """Takes the record; true if it is full now."""
        self.records.append(record)
        self._bytes += record.size()
        return len(self.records) >= BATCH or self._bytes >= BATCH_BYTES

    def clear(self) -> None:
        self.records, self._bytes = [], 0
