"""What the wheel does for karafka: partitions that halt, and targets chosen by a partition key."""

import zlib

from memory import START, TOPIC, Rig

from almanac.record import Headers


def schedule(rig: Rig, key: bytes, due_s: int, version: bytes = b"1.0.0", source: int = 0, **more: bytes) -> None:
    headers: Headers = [
        ("schedule_schema_version", version), ("schedule_source_type", b"schedule"),
        ("schedule_target_epoch", b"%d" % (START // 1000 + due_s)), ("schedule_target_topic", b"target"),
        *((f"schedule_target_{name}", value) for name, value in more.items()),
    ]  # fmt: skip
    rig.kafka.write(TOPIC, key, key, headers, source)


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
