"""What the topics should be."""

from almanac import topics
from almanac.settings import Settings


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
