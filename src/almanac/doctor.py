"""Looks at Kafka and at this machine for what would keep the scheduler from doing its work.

Each check says what it found, what that means, and what to do. `examine()` runs them all; one that cannot be made is
itself a finding. Nothing is changed, but for a topic that lives a second, to read the broker's clock.
"""

from __future__ import annotations

import json
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec, ResourceType, TopicDescription

from almanac import errors, jars, java, kafka, topics
from almanac.settings import SIZE_MARGIN, Settings

CLOCK_MS: Final = 250
"""Firing pauses when clocks differ by more (rule 7)."""

HANGING_SECONDS: Final = 3.0
"""A transaction that is open for that long is shown; the scheduler's own last milliseconds."""

_ROOM_TO_FAIL: Final = 200 << 20
_ROOM_TO_WARN: Final = 2 << 30
_READ_SECONDS: Final = 10.0

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Check:
    """One finding."""

    name: str
    status: Status
    found: str
    advice: str = ""


class Examination:
    """What several checks look at, asked of Kafka once."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @cached_property
    def admin(self) -> AdminClient:
        return kafka.admin_client(self.settings)

    @cached_property
    def brokers(self) -> int:
        future = self.admin.describe_cluster(request_timeout=kafka.ANSWER_SECONDS)
        return len(kafka.answer(future, "looking for brokers").nodes)

    @cached_property
    def broker(self) -> dict[str, str]:
        return topics.broker_configs(self.admin)

    @cached_property
    def changes(self) -> list[topics.Change]:
        return topics.plan(self.admin, self.settings)

    @cached_property
    def existing(self) -> dict[str, TopicDescription]:
        return topics.descriptions(self.admin, [change.spec.name for change in self.changes])

    @cached_property
    def configs(self) -> dict[str, dict[str, str]]:
        return topics.configs(self.admin, ResourceType.TOPIC, self.existing)


def examine(settings: Settings) -> list[Check]:
    """Every check, in the order in which people would look."""
    patient = Examination(settings)
    found = [*_made("Java", _java, patient), *_made("jars", _jars, patient), *_made("disk", _disk, patient)]
    found += _made("settings", _settings, patient)
    reached = _made("Kafka", _reachable, patient)
    found += reached
    if all(check.status != "fail" for check in reached):
        for name, check in _OF_KAFKA.items():
            found += _made(name, check, patient)
    return found


def _made(name: str, check: Callable[[Examination], Iterator[Check]], patient: Examination) -> list[Check]:
    try:
        return list(check(patient))
    except errors.AlmanacError as error:
        return [Check(name, "fail", str(error))]
    except KafkaException as error:
        return [Check(name, "fail", str(kafka.explained(error, name)))]


# This machine


def _java(patient: Examination) -> Iterator[Check]:
    found = java.find()
    yield Check("Java", "ok", f"Java {found.version} in {found.home}")


def _jars(patient: Examination) -> Iterator[Check]:
    if jars.complete():
        yield Check("jars", "ok", f"all in {jars.folder()}")
    else:
        yield Check("jars", "fail", f"not all in {jars.folder()}", "fetch them: python -m almanac.jars")


def _disk(patient: Examination) -> Iterator[Check]:
    folder = patient.settings.book_folder
    if "://" in folder:
        yield Check("disk", "ok", f"the book is at {folder}, not on a disk of this machine")
        return
    place = next(each for each in (Path(folder), *Path(folder).parents) if each.exists())
    free = shutil.disk_usage(place).free
    status: Status = "fail" if free < _ROOM_TO_FAIL else "warn" if free < _ROOM_TO_WARN else "ok"
    advice = "" if status == "ok" else "make room, or set BOOK_LOCATION to a larger disk"
    yield Check("disk", status, f"{free / (1 << 30):.1f} GiB free for the book in {folder}", advice)


def _settings(patient: Examination) -> Iterator[Check]:
    settings = patient.settings
    for key in kafka.untranslated(settings):
        yield Check("settings", "warn", f"{key} has no counterpart in Java: Spark's Kafka source does without it")
    if settings.partitioner == "random":
        yield Check(
            "partitioner",
            "fail",
            "random spreads the versions of one id over partitions: updates and cancels would not meet their schedule",
            "set PARTITIONER to murmur2_random",
        )
    else:
        yield Check(
            "partitioner",
            "ok",
            f"{settings.partitioner}: whoever schedules and cancels an id must use the same one (Java's producers use "
            "murmur2; librdkafka's default is consistent_random, so set it there)",
        )


# Kafka


def _reachable(patient: Examination) -> Iterator[Check]:
    brokers = "1 broker" if patient.brokers == 1 else f"{patient.brokers} brokers"
    yield Check("Kafka", "ok", f"{patient.settings.bootstrap_servers} answers, {brokers}")


_VITAL: Final = {
    "cleanup.policy": "schedules that wait longer than the retention would be lost",
    "retention.ms": "schedules that wait longer would be lost",
    "min.compaction.lag.ms": "an update at the moment of firing could be lost while the scheduler is down (rule 4)",
    "delete.retention.ms": "cancels vanish sooner: after a longer stop the book is built anew (rule 10)",
}


def _topics(patient: Examination) -> Iterator[Check]:
    for change in patient.changes:
        name = f"topic {change.spec.name}"
        if change.kind == "create":
            yield Check(
                name, "fail", "does not exist", "almanac topics apply (a start of the scheduler creates it too)"
            )
            continue
        vital = {
            key: why for key, why in _VITAL.items() if key in change.configs and change.spec.purpose == "schedules"
        }
        for text in change.warnings:
            yield Check(name, "warn", text)
        if change.kind == "alter":
            differing = "; ".join(topics.lines(change)[1:])
            meaning = f": {'; '.join(vital.values())}" if vital else ""
            yield Check(name, "fail" if vital else "warn", f"{differing}{meaning}", "almanac topics apply")
        elif not change.warnings:
            yield Check(name, "ok", f"{len(patient.existing[change.spec.name].partitions)} partitions, as it should be")


def _replicas(patient: Examination) -> Iterator[Check]:
    for name, topic in patient.existing.items():
        replicas = min(len(partition.replicas) for partition in topic.partitions)
        in_sync = int(patient.configs[name].get("min.insync.replicas") or 1)
        if patient.brokers == 1:
            continue
        if replicas == 1:
            advice = "raise it with kafka-reassign-partitions; set REPLICATION_FACTOR for topics made here"
            yield Check(f"replicas of {name}", "fail", "1: the loss of a broker loses what is in it", advice)
        elif in_sync == 1:
            advice = f"kafka-configs --alter --topic {name} --add-config min.insync.replicas=2"
            found = "min.insync.replicas is 1: an acknowledged record can be lost with one broker"
            yield Check(f"replicas of {name}", "fail", found, advice)
    if patient.brokers == 1:
        found = "one broker, so one replica: its disk is all there is"
        yield Check("replicas", "warn", found, "fine for trying; use three brokers for what must not be lost")


def _transactions(patient: Examination) -> Iterator[Check]:
    limit = int(patient.broker.get("transaction.max.timeout.ms") or 900_000)
    wanted = patient.settings.transaction_timeout_ms
    if limit < wanted:
        advice = "raise it on the brokers, or lower TRANSACTION_TIMEOUT"
        yield Check("transactions", "fail", f"transaction.max.timeout.ms is {limit}, less than {wanted}", advice)
    else:
        yield Check("transactions", "ok", f"a time-out of {wanted} ms is allowed")


def _sizes(patient: Examination) -> Iterator[Check]:
    settings = patient.settings
    sizes = {name: int(values["max.message.bytes"]) for name, values in patient.configs.items()}
    largest = max((sizes[topic] for topic in settings.topics if topic in sizes), default=0)
    small = [
        name
        for name in (settings.history_topic, settings.dead_letters_topic)
        if name in sizes and sizes[name] < largest + SIZE_MARGIN
    ]
    for name in small:
        found = f"{name} takes {sizes[name]} bytes; a schedule of {largest} bytes needs {largest + SIZE_MARGIN} there"
        yield Check("sizes", "fail", found, "almanac topics apply")
    if not small:
        yield Check("sizes", "ok", f"what fits a schedules topic ({largest} bytes) fits history and dead letters")


def _other_groups(patient: Examination) -> Iterator[Check]:
    settings = patient.settings
    listed = patient.admin.list_topics(timeout=kafka.ANSWER_SECONDS).topics
    others = [name for name in listed if name.endswith("-shards") and name != settings.shard_topic]
    owned = _owned(settings, {name: len(listed[name].partitions) for name in others})
    shared = {name: sorted(owned[name] & set(settings.topics)) for name in others}
    for name, common in shared.items():
        if common:
            group = name.removesuffix("-shards")
            found = f"the group {group} reads {', '.join(common)} too: each schedule would fire twice"
            yield Check("groups", "fail", found, f"use one GROUP_ID; if {group} is gone, delete the topic {name}")
    if not any(shared.values()):
        yield Check("groups", "ok", f"no other group than {settings.group_id} reads the schedules topics")


def _halted(patient: Examination) -> Iterator[Check]:
    topic = patient.settings.shard_topic
    shards = {topic: len(patient.existing[topic].partitions)} if topic in patient.existing else {}
    heard = _journals(patient.settings, shards).values()
    # A report of an earlier owner is about how it was then.
    current = [status for owner, status in heard if status.get("owner") == owner.get("offset")]
    halted = [each for status in current for each in status.get("halted", ())]
    for name, partition, why in halted:
        found = f"{name}/{partition} is incompatible and halts at {why}"
        yield Check(
            "partitions", "fail", found, "nothing of it is lost: start a newer Almanac, and it goes on from there"
        )
    if not halted:
        yield Check("partitions", "ok", "none halts at a record that only a newer Almanac understands")


def _owned(settings: Settings, counts: Mapping[str, int]) -> dict[str, set[str]]:
    """The schedules topics that the last owner of each shard names, by shard topic (with their partition counts)."""
    named: dict[str, set[str]] = {name: set() for name in counts}
    for (name, _), (owner, _) in _journals(settings, counts).items():
        named[name] |= {str(topic) for topic in owner.get("topics", ())}
    return named


Said = Mapping[str, Any]


def _journals(settings: Settings, counts: Mapping[str, int]) -> dict[tuple[str, int], tuple[Said, Said]]:
    """The last owner (with its record's offset) and the last status of each shard."""
    unread = {(topic, partition) for topic, count in counts.items() for partition in range(count)}
    found: dict[tuple[str, int], dict[bytes, Said]] = {place: {} for place in unread}
    consumer = Consumer(kafka.consumer(settings, auto_offset_reset="earliest"))
    try:
        consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in unread])
        deadline = time.monotonic() + _READ_SECONDS
        while unread and time.monotonic() < deadline:
            message = consumer.poll(0.1)
            if message is None:
                continue
            place = (str(message.topic()), message.partition() or 0)
            if kafka.is_end(message):
                unread.discard(place)
            elif message.error() is None and (key := message.key()) in (b"owner", b"status"):
                found[place][key] = {**_object(message.value()), "offset": message.offset()}
    finally:
        consumer.close()
    return {place: (said.get(b"owner", {}), said.get(b"status", {})) for place, said in found.items()}


def _object(value: bytes | str | None) -> Said:
    try:
        said = json.loads(value or b"{}")
    except ValueError:
        return {}
    return said if isinstance(said, Mapping) else {}  # no record of ours: a topic that merely has such a name


def _clock(patient: Examination) -> Iterator[Check]:
    name = f"{patient.settings.group_id}-clock-{uuid.uuid4().hex[:8]}"
    config = {"message.timestamp.type": "LogAppendTime"}
    new = patient.admin.create_topics([NewTopic(name, 1, config=config)], operation_timeout=kafka.ANSWER_SECONDS)
    kafka.answer(new[name], "making a topic to read the broker's clock")
    try:
        difference = _difference(patient.settings, name)
    finally:
        kafka.answer(patient.admin.delete_topics([name])[name], "removing the topic that read the broker's clock")
    if difference is None:
        yield Check("clock", "warn", "the broker's clock could not be read")
    elif difference > CLOCK_MS:
        found = f"this machine and the broker differ by {difference} ms; above {CLOCK_MS} ms firing pauses (rule 7)"
        yield Check("clock", "fail", found, "run NTP on both")
    else:
        yield Check("clock", "ok", f"this machine and the broker differ by no more than {max(difference, 1)} ms")


def _difference(settings: Settings, topic: str) -> int | None:
    """By how many ms the broker's time of a record lies outside of the time in which it was written."""
    stamps: list[int] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            stamps.append(message.timestamp()[1])

    producer = Producer(kafka.producer(settings, linger_ms=0, delivery_timeout_ms=int(kafka.ANSWER_SECONDS * 1000)))
    difference = None
    for _ in range(2):  # the first one also pays for the connection
        stamps.clear()
        before = time.time_ns() // 1_000_000
        producer.produce(topic, b"", on_delivery=delivered)
        producer.flush(kafka.ANSWER_SECONDS)
        after = time.time_ns() // 1_000_000
        if stamps:
            difference = max(before - stamps[0], stamps[0] - after, 0)
    return difference


def _hanging(patient: Examination) -> Iterator[Check]:
    partitions = [
        TopicPartition(topic, partition.id)
        for topic in patient.settings.topics
        if topic in patient.existing
        for partition in patient.existing[topic].partitions
    ]
    open_since = _open(patient.admin, partitions)
    deadline = time.monotonic() + HANGING_SECONDS
    while open_since and time.monotonic() < deadline:
        time.sleep(0.25)
        now = _open(patient.admin, partitions)
        open_since = {place: lso for place, lso in open_since.items() if now.get(place) == lso}
    for (topic, number), lso in open_since.items():
        found = f"a transaction on {topic}, partition {number}, open since offset {lso}, hides what follows it"
        advice = f"kafka-transactions describe-producers --topic {topic} --partition {number} names it; end or abort it"
        yield Check("open transactions", "fail", found, advice)
    if not open_since:
        yield Check("open transactions", "ok", "none hangs on a schedules topic")


def _open(admin: AdminClient, partitions: list[TopicPartition]) -> dict[tuple[str, int], int]:
    """Partitions whose last stable offset is below the high watermark."""

    def ends(level: IsolationLevel) -> dict[tuple[str, int], int]:
        asked = {place: OffsetSpec.latest() for place in partitions}  # type: ignore[no-untyped-call]
        futures = admin.list_offsets(asked, isolation_level=level, request_timeout=kafka.ANSWER_SECONDS)
        return {
            (place.topic, place.partition): kafka.answer(future, "asking for offsets").offset
            for place, future in futures.items()
        }

    if not partitions:
        return {}
    stable = ends(IsolationLevel.READ_COMMITTED)  # first: what is written in between is no open transaction
    high = ends(IsolationLevel.READ_UNCOMMITTED)
    return {place: lso for place, lso in stable.items() if lso < high[place]}


_OF_KAFKA: Final[dict[str, Callable[[Examination], Iterator[Check]]]] = {
    "topics": _topics,
    "replicas": _replicas,
    "transactions": _transactions,
    "sizes": _sizes,
    "groups": _other_groups,
    "partitions": _halted,
    "clock": _clock,
    "open transactions": _hanging,
}
