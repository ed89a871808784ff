"""What the topics should be, how they are, and the way from one to the other.

    schedules      compacted for ever: the truth
    <group>-shards compacted: owners, starts and pages of the shards
    <topic>_states compacted: what karafka's users see of their schedules topic
    history, dead letters   kept for a while
    timer requests, oscillator   kept for a while; a request's topic must not be compacted: many share a key

`ensure()` only creates (a start of the scheduler); `plan()` and `apply()` also alter (`almanac topics apply`).
Partitions are added to the shard topic and to the states only: elsewhere that would move ids to other partitions.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
    TopicDescription,
)

from almanac import errors, kafka
from almanac.settings import SIZE_MARGIN, Settings

log = logging.getLogger(__name__)

DAY_MS: Final = 86_400_000
MESSAGE_BYTES: Final = 1_048_588
"""Kafka's default of message.max.bytes, for a broker that does not tell."""

_LOOK_AGAIN_SECONDS: Final = 0.05

Purpose = Literal["schedules", "shards", "states", "history", "dead letters", "timer requests", "oscillator", "moves"]

# Lag and tombstones last a day: a restart does not depend on the topic's size here, and a shorter lag would let the
# cleaner take a word that rule 4 has yet to repeat.
_SCHEDULES: Final = {
    "cleanup.policy": "compact",
    "retention.ms": "-1",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.ms": "3600000",
    "segment.bytes": "52428800",
    "delete.retention.ms": str(DAY_MS),
    "min.compaction.lag.ms": str(DAY_MS),
}
_SHARDS: Final = {
    "cleanup.policy": "compact",
    "message.timestamp.type": "LogAppendTime",
    "segment.ms": "600000",
    "min.cleanable.dirty.ratio": "0.1",
}
_STATES: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", "segment.ms": "3600000"}
_AT_LEAST: Final = ("max.message.bytes", "delete.retention.ms", "min.compaction.lag.ms")
"""More than is wanted does no harm, and somebody may rely on it."""


@dataclass(frozen=True, kw_only=True)
class TopicSpec:
    """How a topic should be."""

    name: str
    purpose: Purpose
    partitions: int  # at creation; the shard topic and the states also grow to it
    replication_factor: int | None  # None: the broker's default
    configs: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Change:
    """What brings one topic to its spec."""

    spec: TopicSpec
    kind: Literal["create", "alter", "none"]
    partitions: tuple[int, int] | None = None  # from, to
    configs: Mapping[str, tuple[str | None, str]] = field(default_factory=dict)  # from, to
    warnings: tuple[str, ...] = ()


def shards(settings: Settings, cores: int, partitions: int) -> int:
    """How many wheels: as set, or one per core and at most as many as the largest schedules topic has partitions."""
    return settings.shards or max(1, min(cores, partitions))


def wanted(
    settings: Settings, partitions: Mapping[str, int] | None = None, message_bytes: int = MESSAGE_BYTES
) -> list[TopicSpec]:
    """Every topic of these settings; a shadow has its shard topic alone, the others are a peer's.

    `partitions` are those that the schedules topics have, `message_bytes` the most that one of them takes; unless told:
    what they get here.
    """
    counts = partitions or dict.fromkeys(settings.topics, settings.topic_partitions)
    source = max(counts.values())
    retention = str(settings.retention_days * DAY_MS if settings.retention_days > 0 else -1)
    size = str(message_bytes + SIZE_MARGIN)
    kept = {"cleanup.policy": "delete", "retention.ms": retention, "max.message.bytes": size}
    passing = {"cleanup.policy": "delete"}
    wheels = shards(settings, os.cpu_count() or 1, source)
    rows: list[tuple[str, Purpose, int, Mapping[str, str]]] = [
        *((topic, "schedules", settings.topic_partitions, _SCHEDULES) for topic in settings.topics),
        (settings.shard_topic, "shards", wheels, _SHARDS),
        *((states, "states", counts[topic], _STATES) for topic, states in settings.states_topics.items()),
        (settings.history_topic, "history", settings.topic_partitions, kept),
        (settings.dead_letters_topic, "dead letters", settings.topic_partitions, kept),
        *((topic, "timer requests", settings.topic_partitions, passing) for topic in settings.request_topics),
        (settings.oscillator_topic, "oscillator", 1, passing),  # one partition: its seconds in order
    ]
    return [
        TopicSpec(name=name, purpose=purpose, partitions=count, configs=configs,
                  replication_factor=settings.replication_factor)
        for name, purpose, count, configs in rows
        if name and (purpose == "shards" or not settings.shadow)
    ]  # fmt: skip


# How the topics are


def descriptions(admin: AdminClient, names: Iterable[str]) -> dict[str, TopicDescription]:
    """Of those that exist. Asking this way creates no topic, also where the broker creates them by itself."""
    names = list(names)
    if not names:
        return {}
    found = {}
    futures = admin.describe_topics(TopicCollection(names), request_timeout=kafka.ANSWER_SECONDS)
    for name, future in futures.items():
        try:
            found[name] = future.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise kafka.explained(error, f"looking at topic {name}") from error
    return found


def topic_ids(admin: AdminClient, names: Iterable[str]) -> dict[str, str]:
    """Kafka's id of each topic that exists: a topic made anew under the same name has another."""
    return {name: str(found.topic_id) for name, found in descriptions(admin, names).items()}


def partition_counts(admin: AdminClient, names: Iterable[str]) -> dict[str, int]:
    """Of the topics that exist."""
    return {name: len(found.partitions) for name, found in descriptions(admin, names).items()}


def configs(admin: AdminClient, kind: ResourceType, names: Iterable[str]) -> dict[str, dict[str, str]]:
    """The configuration in force of each topic or broker."""
    resources = [ConfigResource(kind, name) for name in names]
    if not resources:
        return {}
    futures = admin.describe_configs(resources, request_timeout=kafka.ANSWER_SECONDS)
    return {
        resource.name: {
            key: entry.value
            for key, entry in kafka.answer(future, f"reading the configuration of {resource.name}").items()
        }
        for resource, future in futures.items()
    }


def delete_retention_ms(admin: AdminClient, names: Iterable[str]) -> dict[str, int]:
    """For how long each of these topics keeps its tombstones."""
    found = configs(admin, ResourceType.TOPIC, names)
    return {topic: int(values.get("delete.retention.ms") or DAY_MS) for topic, values in found.items()}


def broker_configs(admin: AdminClient) -> dict[str, str]:
    """The configuration of one broker of the cluster."""
    cluster = kafka.answer(admin.describe_cluster(request_timeout=kafka.ANSWER_SECONDS), "looking for brokers")
    broker = str(cluster.nodes[0].id)
    return configs(admin, ResourceType.BROKER, [broker])[broker]


# From one to the other


def plan(admin: AdminClient, settings: Settings) -> list[Change]:
    """What is missing or differs; one change a topic, of kind "none" where all is well."""
    told = (*settings.topics, *settings.request_topics)
    have = descriptions(admin, {*(spec.name for spec in wanted(settings)), *told})
    values = configs(admin, ResourceType.TOPIC, have)
    sources = [topic for topic in told if topic in have]
    sizes = [int(values[topic].get("max.message.bytes") or MESSAGE_BYTES) for topic in sources]
    if len(sources) < len(told):
        sizes.append(broker_max_bytes(admin))
    made = settings.topic_partitions
    counts = {topic: len(have[topic].partitions) if topic in have else made for topic in settings.topics}
    return [
        _difference(spec, have[spec.name], values[spec.name]) if spec.name in have else Change(spec=spec, kind="create")
        for spec in wanted(settings, counts, max(sizes))
    ]


def broker_max_bytes(admin: AdminClient) -> int:
    """The largest record of a topic that does not say."""
    try:
        return int(broker_configs(admin).get("message.max.bytes") or MESSAGE_BYTES)
    except errors.Unreachable:
        raise
    except errors.AlmanacError as error:  # a Kafka as a service may not show its brokers
        log.info("the brokers do not tell message.max.bytes (%s): taking %d", error, MESSAGE_BYTES)
        return MESSAGE_BYTES


def _difference(spec: TopicSpec, have: TopicDescription, values: Mapping[str, str]) -> Change:
    differing = {
        key: (values.get(key), value) for key, value in spec.configs.items() if not _suffices(key, value, spec, values)
    }
    count = len(have.partitions)
    grow = (count, spec.partitions) if spec.purpose in ("shards", "states") and spec.partitions > count else None
    return Change(
        spec=spec,
        kind="alter" if differing or grow else "none",
        partitions=grow,
        configs=differing,
        warnings=tuple(_warnings(spec, have, values)),
    )


def _suffices(key: str, value: str, spec: TopicSpec, values: Mapping[str, str]) -> bool:
    """Whether what the topic has is as good as what is wanted."""
    have = values.get(key)
    if key == "retention.ms" and spec.configs["cleanup.policy"] == values.get("cleanup.policy") == "compact":
        return True  # nothing is deleted by age there
    if key in _AT_LEAST and have:
        return int(have) >= int(value)
    return have == value


def _warnings(spec: TopicSpec, have: TopicDescription, values: Mapping[str, str]) -> Iterable[str]:
    policy = values.get("cleanup.policy", "")
    if spec.purpose == "schedules" and "delete" in policy:
        yield f"cleanup.policy={policy}: schedules that wait longer than the topic's retention are lost"
    if spec.purpose in ("history", "dead letters") and "compact" in policy:
        yield f"cleanup.policy={policy}: of several records with one key only the last is kept"
    if spec.purpose == "timer requests" and "compact" in policy:
        yield f"cleanup.policy={policy}: of all requests for one second only the last is kept"
    if spec.purpose == "shards" and len(have.partitions) > spec.partitions:
        yield (
            f"{len(have.partitions)} partitions, {spec.partitions} are asked for: shards can be added, not removed; to "
            "have fewer, stop the scheduler and delete this topic"
        )
    replicas = min(len(partition.replicas) for partition in have.partitions)
    if spec.replication_factor and replicas != spec.replication_factor:
        yield (
            f"replication factor {replicas}, {spec.replication_factor} is asked for: change it with "
            "kafka-reassign-partitions"
        )


def apply(admin: AdminClient, changes: Sequence[Change]) -> None:
    """Makes the changes, and returns when Kafka shows them: its brokers hear of a change a moment after it is made."""
    for change in changes:
        spec = change.spec
        if change.kind == "create":
            _create(admin, spec)
        if change.partitions:
            futures = admin.create_partitions([NewPartitions(spec.name, change.partitions[1])])
            kafka.answer(futures[spec.name], f"adding partitions to {spec.name}")
        if change.configs and change.kind == "alter":
            entries = [
                ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
                for key, (_, value) in change.configs.items()
            ]
            resource = ConfigResource(ResourceType.TOPIC, spec.name, incremental_configs=entries)
            for future in admin.incremental_alter_configs([resource]).values():
                kafka.answer(future, f"altering {spec.name}")
    specs = [change.spec for change in changes if change.kind != "none"]
    deadline = time.monotonic() + kafka.ANSWER_SECONDS
    while specs and (unseen := _unseen(admin, specs)):
        if time.monotonic() > deadline:
            raise errors.AlmanacError(f"topics were changed, but Kafka does not show it yet: {', '.join(unseen)}")
        time.sleep(_LOOK_AGAIN_SECONDS)


def _unseen(admin: AdminClient, specs: Sequence[TopicSpec]) -> list[str]:
    """The topics that are not yet as they were made."""
    names = [spec.name for spec in specs]
    have = descriptions(admin, names)
    if len(have) < len(names):
        return [name for name in names if name not in have]
    try:
        values = configs(admin, ResourceType.TOPIC, names)
    except errors.Unreachable:
        raise
    except errors.AlmanacError:
        return names  # another broker was asked, and does not know one of them yet
    return [spec.name for spec in specs if _difference(spec, have[spec.name], values[spec.name]).kind != "none"]


def _create(admin: AdminClient, spec: TopicSpec) -> None:
    topic = NewTopic(spec.name, spec.partitions, spec.replication_factor or -1, config=dict(spec.configs))
    future = admin.create_topics([topic], operation_timeout=kafka.ANSWER_SECONDS)[spec.name]
    try:
        kafka.answer(future, f"creating topic {spec.name}")
    except errors.AlmanacError as error:
        cause = error.__cause__
        # Another scheduler or a broker that creates topics by itself was faster.
        if not (isinstance(cause, KafkaException) and cause.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS):
            raise


def ensure(admin: AdminClient, settings: Settings) -> list[Change]:
    """Creates what is missing and alters nothing; says what differs. Returns what it found."""
    changes = plan(admin, settings)
    missing = [change for change in changes if change.kind == "create"]
    apply(admin, missing)
    for change in missing:
        log.info("created topic %s with %d partitions", change.spec.name, change.spec.partitions)
    for change in changes:
        for text in change.warnings:
            log.warning("topic %s: %s", change.spec.name, text)
        if change.kind == "alter":
            log.warning("topic %s differs (%s); `almanac topics apply` shows and changes it",
                        change.spec.name, "; ".join(lines(change)[1:]))  # fmt: skip
    return changes


def lines(change: Change) -> list[str]:
    """The change for people: a heading, then a line for each thing that differs."""
    spec = change.spec
    if change.kind == "create":
        replicas = f", {spec.replication_factor} replicas" if spec.replication_factor else ""
        head = f"create {spec.name} ({spec.purpose}, {spec.partitions} partitions{replicas})"
        return [head, *(f"{key}={value}" for key, value in spec.configs.items())]
    grow = [f"partitions {change.partitions[0]} -> {change.partitions[1]}"] if change.partitions else []
    differing = [f"{key} {was} -> {value}" for key, (was, value) in change.configs.items()]
    word = "alter" if change.kind == "alter" else "keep"
    return [f"{word} {spec.name} ({spec.purpose})", *grow, *differing]
