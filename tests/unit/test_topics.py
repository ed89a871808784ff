"""What the topics should be."""

from types import SimpleNamespace
from typing import Any

import pytest

from almanac import doctor, topics
from almanac.settings import Settings

NO_ADMIN: Any = None  # these look at nothing but what `kafka_has` says


def by_name(specs: list[topics.TopicSpec]) -> dict[str, topics.TopicSpec]:
    return {spec.name: spec for spec in specs}


def test_schedules_are_kept_for_ever_and_compacted_after_a_day() -> None:
    schedules = by_name(topics.wanted(Settings()))["schedules"]
    assert schedules.partitions == 3
    assert schedules.replication_factor is None
    assert dict(schedules.configs) == {
        "cleanup.policy": "compact",
        "retention.ms": "-1",
        "min.cleanable.dirty.ratio": "0.1",
        "segment.ms": "3600000",
        "segment.bytes": "52428800",
        "delete.retention.ms": "86400000",
        "min.compaction.lag.ms": "86400000",
    }


def test_history_and_dead_letters_take_more_than_schedules() -> None:
    specs = by_name(topics.wanted(Settings(retention_days=2), message_bytes=1000))
    for name in ("history", "dead-letters"):
        assert specs[name].configs["max.message.bytes"] == str(1000 + 65536)
        assert specs[name].configs["retention.ms"] == str(2 * topics.DAY_MS)


def test_kept_for_ever() -> None:
    assert by_name(topics.wanted(Settings(retention_days=-1)))["history"].configs["retention.ms"] == "-1"


def test_no_history_topic_if_it_is_off() -> None:
    assert [spec.purpose for spec in topics.wanted(Settings(history_topic=""))] == [
        "schedules",
        "shards",
        "dead letters",
    ]


def test_every_schedules_topic_and_the_groups_shards() -> None:
    settings = Settings.model_validate({"schedules_topics": "a,b", "group_id": "g", "shards": 5})
    specs = by_name(topics.wanted(settings))
    assert {"a", "b", "g-shards"} <= set(specs)
    assert specs["g-shards"].partitions == 5
    assert specs["g-shards"].configs["message.timestamp.type"] == "LogAppendTime"


def test_shards() -> None:
    assert topics.shards(Settings(), cores=8, partitions=3) == 3
    assert topics.shards(Settings(), cores=2, partitions=3) == 2
    assert topics.shards(Settings(), cores=0, partitions=3) == 1
    assert topics.shards(Settings(shards=6), cores=2, partitions=3) == 6


def test_lines_for_people() -> None:
    spec = by_name(topics.wanted(Settings(replication_factor=3)))["history"]
    assert (
        topics.lines(topics.Change(spec=spec, kind="create"))[0] == "create history (history, 3 partitions, 3 replicas)"
    )
    change = topics.Change(spec=spec, kind="alter", partitions=(1, 3), configs={"retention.ms": ("1", "2")})
    assert topics.lines(change) == ["alter history (history)", "partitions 1 -> 3", "retention.ms 1 -> 2"]


# What the topics have is as good as what they should have, or not


def kafka_has(monkeypatch: pytest.MonkeyPatch, topic: str, **configs: str) -> Settings:
    """Every topic is as it should be, but for these configs of one (with _ for dots)."""
    settings = Settings(shards=1)
    specs = topics.wanted(settings)
    have = {spec.name: {"max.message.bytes": str(topics.MESSAGE_BYTES), **spec.configs} for spec in specs}
    have[topic] |= {key.replace("_", "."): value for key, value in configs.items()}
    partitions = {spec.name: [SimpleNamespace(replicas=[1])] * spec.partitions for spec in specs}
    described = {name: SimpleNamespace(partitions=each) for name, each in partitions.items()}
    monkeypatch.setattr(topics, "descriptions", lambda *_: described)
    monkeypatch.setattr(topics, "configs", lambda *_: have)
    return settings


def differing(settings: Settings) -> dict[str, dict[str, tuple[str | None, str]]]:
    changes = topics.plan(NO_ADMIN, settings)
    return {change.spec.name: dict(change.configs) for change in changes if change.kind != "none"}


def statuses(settings: Settings, topic: str) -> list[str]:
    patient = doctor.Examination(settings)
    patient.__dict__["admin"] = NO_ADMIN
    return [check.status for check in doctor._topics(patient) if check.name == f"topic {topic}"]


@pytest.mark.parametrize(
    ("topic", "key", "value"),
    [
        ("history", "max_message_bytes", "10000000"),
        ("dead-letters", "max_message_bytes", "10000000"),
        ("schedules", "delete_retention_ms", "604800000"),
        ("schedules", "min_compaction_lag_ms", "604800000"),
        ("schedules", "retention_ms", "604800000"),  # nothing is deleted by age where the policy is compact
    ],
)
def test_what_is_better_than_asked_for_stays(monkeypatch: pytest.MonkeyPatch, topic: str, key: str, value: str) -> None:
    settings = kafka_has(monkeypatch, topic, **{key: value})
    assert differing(settings) == {}
    assert statuses(settings, topic) == ["ok"]


@pytest.mark.parametrize(
    ("topic", "key", "value", "wanted", "status"),
    [
        ("history", "max_message_bytes", "1000", "1114124", "warn"),
        ("history", "retention_ms", "604800001", "604800000", "warn"),
        ("schedules", "delete_retention_ms", "86399999", "86400000", "fail"),
        ("schedules", "min_compaction_lag_ms", "0", "86400000", "fail"),
        ("schedules", "segment_ms", "3600001", "3600000", "warn"),
    ],
)
def test_what_is_worse_or_another_is_altered(
    monkeypatch: pytest.MonkeyPatch, topic: str, key: str, value: str, wanted: str, status: str
) -> None:
    settings = kafka_has(monkeypatch, topic, **{key: value})
    assert differing(settings) == {topic: {key.replace("_", "."): (value, wanted)}}
    assert statuses(settings, topic) == [status]


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_retention_counts_as_long_as_age_deletes(monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    settings = kafka_has(monkeypatch, "schedules", cleanup_policy=policy, retention_ms="604800000")
    assert set(differing(settings)["schedules"]) == {"cleanup.policy", "retention.ms"}
    assert "fail" in statuses(settings, "schedules")
    history = kafka_has(monkeypatch, "history", cleanup_policy="compact", retention_ms="1")
    assert set(differing(history)["history"]) == {"cleanup.policy", "retention.ms"}
