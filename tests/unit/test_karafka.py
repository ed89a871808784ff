"""What the wheel does for karafka: order, partition keys, null payloads, and partitions that halt."""

import zlib

import pytest
from memory import START, TOPIC, Rig

from almanac import formats, words
from almanac.formats import karafka
from almanac.record import Headers, Record, first


def schedule(
    rig: Rig, key: bytes, due_s: int, version: bytes = b"1.0.0", source: int = 0, null: bool = False,
    timestamp: int | None = None, **more: bytes
) -> None:  # fmt: skip
    headers: Headers = [
        ("schedule_schema_version", version), ("schedule_source_type", b"schedule"),
        ("schedule_target_epoch", b"%d" % (START // 1000 + due_s)), ("schedule_target_topic", b"target"),
        *((f"schedule_target_{name}", value) for name, value in more.items()),
    ]  # fmt: skip
    rig.kafka.write(TOPIC, key, None if null else key, headers, source, timestamp)


def test_a_record_of_the_future_halts_its_partition_and_no_other() -> None:
    rig = Rig(partitions=2, form="auto")
    schedule(rig, b"before", 5)
    schedule(rig, b"future", 3, b"2.0.0")
    schedule(rig, b"after", 4)
    schedule(rig, b"other", 5, source=1)
    wheel = rig.wheel().begin()
    wheel.run_for(60_000)
    assert rig.kafka.fired() == [b"other"]
    assert wheel.wheel.status()["state"] == "firing"
    ((topic, partition, why),) = wheel.wheel.status()["halted"]
    assert (topic, partition) == (TOPIC, 0)
    assert "offset 1" in why
    assert "2.0.0" in why
    assert rig.kafka.read("dead-letters") == [], "nothing is lost: an upgrade reads it"


@pytest.mark.parametrize("kind", ["cancel", "tombstone", "schedule", "pause"])
@pytest.mark.parametrize("version", ["2", "1.1", "1.0.0-beta", "1.1.0.beta1", "2.0.0+b1", "1.0.0.1", "99999999999.0.0"])
def test_a_null_record_of_the_future_halts_too_whatever_its_version_looks_like(kind: str, version: str) -> None:
    rig = Rig(form="auto")
    schedule(rig, b"a", 5)
    rig.kafka.write(TOPIC, b"a", None, [(karafka.VERSION, version.encode()), (karafka.TYPE, kind.encode())])
    wheel = rig.wheel().begin().run_for(60_000)
    assert (rig.kafka.fired(), rig.kafka.read("dead-letters")) == ([], [])
    assert len(wheel.wheel.status()["halted"]) == 1


@pytest.mark.parametrize(
    ("version", "fires"),
    [
        *[(good, True) for good in ("1", "1.0", "0.9.9", "1.0.0.0", "0.9-beta")],
        *[(none, False) for none in ("x", "", "1.0.0 ", "1,0", "1x", "1.0.", "2.0..rc1", "2" * 50)],
    ],
)
def test_versions_that_are_known_and_what_is_none(version: str, fires: bool) -> None:
    rig = Rig(form="karafka")
    schedule(rig, b"a", 5, version.encode())
    rig.wheel().begin().run_for(60_000)
    assert rig.kafka.fired() == ([b"a"] if fires else [])
    assert len(rig.kafka.read("dead-letters")) == (0 if fires else 1)


def test_a_mirrored_tombstone_of_ours_is_a_plain_delete() -> None:
    ours = [(karafka.VERSION, b"1.0.0"), (karafka.TYPE, b"tombstone"), (karafka.SOURCE_OFFSET, b"17")]
    for topic_id, killed in (("other", 101), ("this", 17)):
        headers: Headers = [*ours, *words.acknowledgement(17, topic_id)]
        read = words.read(Record(TOPIC, 0, 101, 0, b"a", None, headers), formats.named("auto"), "this")
        assert isinstance(read, words.Kill)
        assert read.version == killed


def test_a_partition_of_minus_one_is_any() -> None:
    rig = Rig(form="karafka")
    schedule(rig, b"a", 1, partition=b"-1")
    schedule(rig, b"b", 1, partition=b"-2")
    rig.wheel().begin().run_for(2_000)
    assert rig.kafka.fired() == [b"a"]
    assert [letter.key for letter in rig.kafka.read("dead-letters")] == [b"b"]


def test_one_that_halts_while_its_neighbours_are_staged_stops_them() -> None:
    rig = Rig(form="karafka", ahead=150)
    wheel = rig.wheel().begin()
    schedule(rig, b"staged", 5)
    wheel.tail.at(START + 4_950, lambda: schedule(rig, b"future", 9, b"1.0.1"))
    wheel.run_for(10_000)
    assert rig.kafka.fired() == []


def test_a_partition_key_is_hashed_as_librdkafkas_consistent_does() -> None:
    rig = Rig(form="karafka")
    rig.kafka.partitions["target"] = 7
    wheel = rig.wheel().begin()
    schedule(rig, b"a", 1, partition_key=b"user-1")
    schedule(rig, b"b", 1, partition_key=b"user-1", partition=b"3")
    wheel.run_for(2_000)
    assert [record.value for record in rig.kafka.read("target", zlib.crc32(b"user-1") % 7)] == [b"a"]
    assert [record.value for record in rig.kafka.read("target", 3)] == [b"b"], "an explicit partition comes first"


def test_order_is_by_due_time_then_by_offset() -> None:
    rig = Rig(form="karafka")
    for key, due in ((b"a", 3), (b"b", 2), (b"c", 3), (b"d", 2), (b"e", 1)):
        schedule(rig, key, due)
    rig.wheel().begin().run_for(5_000)
    assert rig.kafka.fired() == [b"e", b"b", b"d", b"a", b"c"]


def test_time_in_the_past_is_fired_at_once() -> None:
    rig = Rig(form="karafka")
    schedule(rig, b"past", -3_600)
    rig.wheel().begin().run_for(100)
    assert rig.kafka.fired() == [b"past"]


def test_the_tombstone_is_one_that_the_peer_understands() -> None:
    rig = Rig(form="karafka")
    schedule(rig, b"a", 1)
    rig.wheel().begin().run_for(2_000)
    tombstone = rig.kafka.read(TOPIC)[-1]
    named = first(tombstone.headers)
    assert (tombstone.key, tombstone.value, tombstone.partition) == (b"a", None, 0)
    assert (named["schedule_source_type"], named["schedule_source_offset"]) == (b"tombstone", b"0")
    assert named["almanac-acks"] == b"0"
    assert named["schedule_target_topic"] == b"target"


@pytest.mark.parametrize("due_s", [5, 2_500], ids=["soon", "long after the page"])
def test_a_null_payload_survives_the_cleaner_and_is_delivered_as_one(due_s: int) -> None:
    rig = Rig(form="karafka")
    wheel = rig.wheel().begin()
    schedule(rig, b"a", due_s, null=True)
    wheel.run_for(1_000)
    (repeated,) = [record for record in rig.kafka.read(TOPIC) if record.value == b""]
    assert first(repeated.headers)["almanac-version"] == b"0"
    rig.kafka.log(TOPIC).forget_tombstones()
    later = rig.wheel(rig.page(horizon=2 * due_s * 1000)).begin()
    later.run_for(due_s * 1000)
    (delivered,) = rig.kafka.read("target")
    assert delivered.value is None
    assert first(delivered.headers)["schedule_source_offset"] == b"0"
    assert not any(name.startswith("almanac-") for name, _ in delivered.headers)
    assert len([record for record in rig.kafka.read(TOPIC) if record.value == b""]) == 1, "repeated once"


def test_a_null_payload_that_only_the_book_knows_is_repeated_too() -> None:
    rig = Rig(form="karafka")
    schedule(rig, b"a", 86_400, null=True)
    rig.wheel().begin().run_for(1_000)
    assert [first(r.headers)["almanac-null"] for r in rig.kafka.read(TOPIC) if r.value == b""] == [b"true"]


def test_a_null_payload_can_be_cancelled() -> None:
    rig = Rig(form="karafka")
    wheel = rig.wheel().begin()
    schedule(rig, b"a", 5, null=True)
    wheel.run_for(1_000)
    headers: Headers = [("schedule_schema_version", b"1.0.0"), ("schedule_source_type", b"cancel")]
    rig.kafka.write(TOPIC, b"a", None, headers)
    wheel.run_for(10_000)
    assert rig.kafka.read("target") == []


def test_a_halted_partition_goes_on_after_an_upgrade(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(form="karafka")
    schedule(rig, b"before", 5)
    schedule(rig, b"future", 6, b"1.1.0")
    schedule(rig, b"after", 7)
    schedule(rig, b"cancelled", 8)
    rig.kafka.write(TOPIC, b"cancelled", None, [("schedule_source_type", b"cancel")])
    rig.wheel().begin().run_for(20_000)
    assert rig.kafka.fired() == []
    monkeypatch.setattr(karafka, "KNOWN", (1, 1, 0))
    upgraded = rig.wheel().begin()
    upgraded.run_for(1_000)
    assert rig.kafka.fired() == [b"before", b"future", b"after"]
    assert upgraded.wheel.status()["halted"] == []


def test_what_waits_for_its_target_waits_on_when_its_partition_halts() -> None:
    rig = Rig(form="karafka")
    wheel = rig.wheel().begin()
    rig.kafka.offline.add("target")
    schedule(rig, b"a", 1)
    wheel.run_for(2_000)
    assert wheel.wheel.status()["quarantine"] == {"target": 1}
    schedule(rig, b"future", 9, b"2.0.0")
    wheel.run_for(500)
    rig.kafka.offline.clear()
    wheel.run_for(60_000)
    assert rig.kafka.fired() == []


@pytest.mark.parametrize("live", [True, False], ids=["seen by the wheel", "known by the book only"])
def test_an_update_behind_the_tombstone_of_the_peer_outlives_the_cleaner(live: bool) -> None:
    """The peer fires version 0 and writes its tombstone after an update that it did not see: the update is pending."""
    rig = Rig(form="karafka")
    first_wheel = rig.wheel().begin() if live else None
    schedule(rig, b"a", -1, source=0)
    rig.kafka.log(TOPIC).slots[0].record = None  # fired by the peer, which then was stopped for good
    schedule(rig, b"a", 50)
    tombstone: Headers = [("schedule_source_type", b"tombstone"), ("schedule_source_offset", b"0")]
    rig.kafka.write(TOPIC, b"a", None, tombstone)
    (first_wheel or rig.wheel().begin()).run_for(1_000)
    rig.kafka.log(TOPIC).forget_tombstones()
    rig.wheel().begin().run_for(60_000)
    assert rig.kafka.fired() == [b"a"]


def test_a_record_without_a_time_stamp_is_repeated_once() -> None:
    """Kafka takes records whose time stamp is -1: a repeat of one must be read as what it is."""
    rig = Rig(form="karafka")
    wheel = rig.wheel().begin()
    schedule(rig, b"a", 5, null=True, timestamp=-1)
    wheel.run_for(10_000)
    assert [each.value for each in rig.kafka.read("target")] == [None]
    assert rig.kafka.read("dead-letters") == []
    assert len(rig.kafka.read(TOPIC)) == 3, "the schedule, its repeat, the tombstone"
