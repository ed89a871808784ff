"""The way from the topics that are to those that should be, and what the doctor says, on a real Kafka."""

import json
import logging
import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ResourceType
from waiting import until

from almanac import doctor, errors, kafka, topics
from almanac.broker import Broker
from almanac.settings import Settings

MakeTopic = Callable[..., str]
SHORT_LIVED = {"cleanup.policy": "delete", "max.message.bytes": "2000000"}


@pytest.fixture
def settings(broker: Broker) -> Settings:
    """Names that no other test uses."""
    name = f"t{uuid.uuid4().hex[:8]}"
    return Settings.model_validate(
        {
            "bootstrap_servers": broker.bootstrap_servers,
            "group_id": name,
            "schedules_topics": f"{name}-a,{name}-b",
            "history_topic": f"{name}-history",
            "dead_letters_topic": f"{name}-dead",
            "shards": 2,
        }
    )


def shown(admin: AdminClient, topic: str) -> str:
    """The topic, once the broker shows it."""
    until(lambda: topics.topic_ids(admin, [topic]), 10, f"{topic} exists")
    return topic


def kinds(changes: list[topics.Change]) -> list[str]:
    return [change.kind for change in changes]


def statuses(settings: Settings, name: str) -> list[tuple[str, str]]:
    return [(check.status, check.found) for check in doctor.examine(settings) if check.name.startswith(name)]


def test_what_is_missing_is_created_as_it_should_be(admin: AdminClient, settings: Settings) -> None:
    assert kinds(topics.plan(admin, settings)) == ["create"] * 5
    topics.apply(admin, topics.plan(admin, settings))
    assert kinds(topics.plan(admin, settings)) == ["none"] * 5
    counts = topics.partition_counts(admin, [*settings.topics, settings.shard_topic, "not-there"])
    assert counts == {settings.topics[0]: 3, settings.topics[1]: 3, settings.shard_topic: 2}


def test_a_topic_made_anew_has_another_id(admin: AdminClient, settings: Settings) -> None:
    topic = settings.topics[0]
    topics.ensure(admin, settings)
    before = topics.topic_ids(admin, [topic])
    admin.delete_topics([topic])[topic].result(30)
    until(lambda: not topics.topic_ids(admin, [topic]), 10, "the topic is gone")
    topics.ensure(admin, settings)
    assert topics.topic_ids(admin, [topic]).keys() == before.keys()
    assert topics.topic_ids(admin, [topic]) != before


def test_creating_what_somebody_else_just_created_is_fine(admin: AdminClient, settings: Settings) -> None:
    changes = topics.plan(admin, settings)
    topics.apply(admin, changes)
    topics.apply(admin, changes)
    assert kinds(topics.plan(admin, settings)) == ["none"] * 5


def test_a_start_alters_nothing_but_says_what_differs(
    admin: AdminClient, settings: Settings, make_topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    mine = shown(admin, make_topic("mine", 2, SHORT_LIVED))
    changed = settings.replaced(schedules_topics=mine)
    with caplog.at_level(logging.INFO):
        topics.ensure(admin, changed)
    assert topics.configs(admin, ResourceType.TOPIC, [mine])[mine]["cleanup.policy"] == "delete"
    said = caplog.text
    assert "schedules that wait longer than the topic's retention are lost" in said
    assert "almanac topics apply" in said


def test_apply_alters_what_differs_and_keeps_partitions(
    admin: AdminClient, settings: Settings, make_topic: MakeTopic
) -> None:
    mine = shown(admin, make_topic("mine", 2, SHORT_LIVED))
    changed = settings.replaced(schedules_topics=mine)
    topics.apply(admin, topics.plan(admin, changed))
    found = topics.configs(admin, ResourceType.TOPIC, [mine, changed.history_topic])
    assert found[mine]["cleanup.policy"] == "compact"
    assert found[mine]["max.message.bytes"] == "2000000"
    assert found[changed.history_topic]["max.message.bytes"] == str(2_000_000 + 65_536)
    assert topics.partition_counts(admin, [mine]) == {mine: 2}


def test_shards_grow_but_never_shrink(admin: AdminClient, settings: Settings) -> None:
    topics.ensure(admin, settings)
    topics.apply(admin, topics.plan(admin, settings.replaced(shards=4)))
    assert topics.partition_counts(admin, [settings.shard_topic]) == {settings.shard_topic: 4}
    (shrunk,) = [each for each in topics.plan(admin, settings) if each.spec.purpose == "shards"]
    assert shrunk.kind == "none"
    assert "can be added, not removed" in shrunk.warnings[0]


def test_a_kafka_that_is_away_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "ANSWER_SECONDS", 1.0)
    away = Settings(bootstrap_servers="localhost:1")
    with pytest.raises(errors.Unreachable, match="BOOTSTRAP_SERVERS"):
        topics.plan(kafka.admin_client(away), away)


def test_the_doctor_finds_a_healthy_kafka_healthy(admin: AdminClient, settings: Settings) -> None:
    topics.ensure(admin, settings)
    found = {check.name: check.status for check in doctor.examine(settings)}
    assert "fail" not in found.values()
    assert found["clock"] == found["open transactions"] == found["groups"] == found["sizes"] == "ok"

    def left_behind() -> list[str]:
        return [name for name in admin.list_topics().topics if name.startswith(f"{settings.group_id}-clock")]

    until(lambda: not left_behind(), 10, "the topic that read the clock is gone")


def test_the_doctor_misses_topics_and_names_the_command(settings: Settings) -> None:
    missing = [check for check in doctor.examine(settings) if check.name.startswith("topic ")]
    assert [check.status for check in missing] == ["fail"] * 5
    assert "almanac topics apply" in missing[0].advice


def test_the_doctor_finds_a_topic_that_forgets(admin: AdminClient, settings: Settings, make_topic: MakeTopic) -> None:
    mine = shown(admin, make_topic("mine", 1, SHORT_LIVED))
    changed = settings.replaced(schedules_topics=mine)
    topics.ensure(admin, changed)
    ((_, warning), (status, found)) = statuses(changed, f"topic {mine}")
    assert "are lost" in warning
    assert (status, "cleanup.policy delete -> compact" in found) == ("fail", True)


def test_the_doctor_finds_a_second_group_on_the_same_topic(admin: AdminClient, settings: Settings) -> None:
    topics.ensure(admin, settings)
    other = settings.replaced(group_id=f"{settings.group_id}-other")
    topics.ensure(admin, other)
    producer = Producer(kafka.producer(other))
    owner = json.dumps({"topics": [other.topics[1]]}).encode()
    producer.produce(other.shard_topic, owner, b"owner", partition=1)
    producer.flush(10)
    ((status, found),) = statuses(settings, "groups")
    assert status == "fail"
    assert other.group_id in found
    assert settings.topics[1] in found


def test_the_doctor_finds_a_transaction_that_hangs(admin: AdminClient, settings: Settings) -> None:
    topics.ensure(admin, settings)
    producer = Producer(kafka.producer(settings, transactional_id=f"{settings.group_id}-foreign"))
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(settings.topics[0], b"x", b"k", partition=1)
    producer.flush(10)
    try:
        ((status, found),) = statuses(settings, "open transactions")
    finally:
        producer.abort_transaction(30)
    assert status == "fail"
    assert f"{settings.topics[0]}, partition 1" in found


def test_the_doctor_finds_messages_that_do_not_fit_through(
    admin: AdminClient, settings: Settings, make_topic: MakeTopic
) -> None:
    topics.ensure(admin, settings)
    large = shown(admin, make_topic("large", 1, {"max.message.bytes": "3000000"}))
    found = statuses(settings.replaced(schedules_topics=large), "sizes")
    assert [status for status, _ in found] == ["fail", "fail"]
