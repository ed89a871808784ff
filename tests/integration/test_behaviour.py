"""What a scheduler does, whatever it runs on: each test here runs against `almanac mini` and against the real thing."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from engine import Group
from subjects import FUTURE, MiniSubject, RealSubject, Subject, told
from waiting import until

from almanac import client
from almanac.broker import Broker
from almanac.record import Headers, Record, first

YEAR_MS = 365 * 86_400_000
# Kafka takes a batch of 1,048,588 bytes: a schedule with this payload has 30 less, its delivery 40 more.
LARGEST = 1_048_588 - 190


@pytest.fixture(scope="module", params=["mini", "real"])
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    made: Subject
    if request.param == "mini":
        made = MiniSubject()
    else:
        broker: Broker = request.getfixturevalue("broker")
        group = Group(broker.bootstrap_servers, tmp_path_factory.mktemp("behaviour"))
        group.tell(**told(group.name))
        try:
            made = RealSubject(group, group.start().up())
        except BaseException:
            group.close()
            raise
    yield made
    made.close()


def send(subject: Subject, message: client.Message) -> None:
    subject.write(message.topic, message.key, message.value, message.headers)


def schedule(subject: Subject, key: bytes, due: int, value: bytes, target: str, headers: Headers | None = None) -> None:
    """In the native format, whatever the due time."""
    when: Headers = [("scheduler-epoch-ms", b"%d" % due), ("scheduler-target-topic", target.encode())]
    subject.write(subject.topic("etf1"), key, value, [*when, *(headers or [])])


def cancel(subject: Subject, key: bytes) -> None:
    subject.write(subject.topic("etf1"), key, None)


def letter(subject: Subject, key: bytes) -> Record:
    """The one dead letter of that id."""
    found = until(lambda: subject.letters(key), 60, f"a dead letter of {key!r}")
    assert len(found) == 1
    return found[0]


def at(due: int) -> datetime:
    return datetime.fromtimestamp(due / 1000, UTC)


def values(subject: Subject, topic: str) -> list[bytes | None]:
    return [record.value for record in subject.records(topic)]


def test_a_message_arrives_once_never_early_and_as_it_was(subject: Subject) -> None:
    target, due, every = subject.new_target(), subject.soon(), bytes(range(256))
    mine: Headers = [("scheduler-target-key", b"\x00key\xff"), ("x", b""), ("x", None), ("x", every), ("naïve", b"1")]
    schedule(subject, b"\x00 id \xff", due, every, target, mine)
    schedule(subject, b"empty", due, b"", target)
    subject.reach(due)
    found = {first(record.headers)["scheduler-key"]: record for record in subject.records(target)}
    assert len(subject.records(target)) == len(found) == 2
    got = found[b"\x00 id \xff"]
    assert (got.key, got.value) == (b"\x00key\xff", every)
    assert got.headers[2:7] == mine
    assert [name for name, _ in got.headers[7:]] == ["scheduler-timestamp", "scheduler-key", "scheduler-topic"]
    assert (found[b"empty"].key, found[b"empty"].value) == (None, b"")
    assert all(record.timestamp >= due for record in found.values()), "never early"


def test_history_and_tombstone(subject: Subject) -> None:
    target, due = subject.new_target(), subject.soon()
    schedule(subject, b"kept", due, b"v", target)
    subject.reach(due)
    (got,) = subject.records(target)
    history = subject.records(subject.settings.history_topic)
    (copy,) = [each for each in history if ("almanac-id", b"kept") in each.headers]
    assert copy.headers[: len(got.headers)] == got.headers
    notes = first(copy.headers)
    assert (notes["almanac-target"], notes["almanac-due-ms"]) == (target.encode(), b"%d" % due)
    word, acknowledged = [each for each in subject.records(subject.topic("etf1")) if each.key == b"kept"]
    assert (acknowledged.value, acknowledged.partition) == (None, word.partition)
    assert first(acknowledged.headers)["almanac-acks"] == b"%d" % word.offset


def test_the_last_word_wins(subject: Subject) -> None:
    target, soon, far = subject.new_target(), subject.soon(), subject.now() + YEAR_MS
    for key, due in ((b"sooner", far), (b"later", soon), (b"cancelled", soon), (b"again", soon), (b"stays", soon)):
        schedule(subject, key, due, b"old", target)
    cancel(subject, b"cancelled")
    cancel(subject, b"again")
    schedule(subject, b"again", soon, b"new", target)
    schedule(subject, b"sooner", soon, b"new", target)
    schedule(subject, b"later", far, b"new", target)
    subject.reach(soon)
    found = Counter((first(got.headers)["scheduler-key"], got.value) for got in subject.records(target))
    assert found == {(b"sooner", b"new"): 1, (b"again", b"new"): 1, (b"stays", b"old"): 1}


def test_an_id_that_was_delivered_can_be_used_again(subject: Subject) -> None:
    target = subject.new_target()
    for value in (b"first", b"second"):
        due = subject.soon()
        schedule(subject, b"used twice", due, value, target)
        subject.reach(due)
    assert values(subject, target) == [b"first", b"second"]


def test_a_cancel_after_the_delivery_changes_nothing(subject: Subject) -> None:
    target, due = subject.new_target(), subject.soon()
    schedule(subject, b"too late to cancel", due, b"v", target)
    subject.reach(due)
    cancel(subject, b"too late to cancel")
    subject.reach(subject.soon())
    assert values(subject, target) == [b"v"]


def test_garbage_is_no_word(subject: Subject) -> None:
    target, due = subject.new_target(), subject.soon()
    bad: dict[str, tuple[bytes, Headers]] = {
        "etf1": (b"v", [("scheduler-target-topic", b"t"), ("scheduler-epoch", b"soon")]),
        "karafka": (b"v", [("schedule_source_type", b"schedule")]),
        "sky-avro": (b"\x01", []),
        "sky-json": (b"{", []),
    }
    content = client.Message(target, b"k", b"earlier")
    send(subject, client.etf1.schedule(content, "bad etf1", at(due), subject.topic("etf1")))
    send(subject, client.karafka.schedule(content, at(due), subject.topic("karafka"), "bad karafka"))
    send(subject, client.sky.schedule(content, "bad sky-avro", at(due), subject.topic("sky-avro")))
    send(subject, client.sky.schedule(content, "bad sky-json", at(due), subject.topic("sky-json"), "json"))
    for form, (value, headers) in bad.items():
        subject.write(subject.topic(form), b"bad " + form.encode(), value, headers)
    for form, (value, _) in bad.items():
        got = letter(subject, b"bad " + form.encode())
        notes = first(got.headers)
        assert (got.value, notes["almanac-reason"]) == (value, b"invalid"), form
        assert (notes["almanac-source"] or b"").startswith(subject.topic(form).encode())
    subject.reach(due)
    assert values(subject, target) == [b"earlier"] * 4


def test_an_outdated_schedule_is_a_word_but_is_not_delivered(subject: Subject) -> None:
    target, due = subject.new_target(), subject.soon()
    schedule(subject, b"outdated", due, b"earlier", target)
    schedule(subject, b"outdated", 1_000_000_000_000, b"too late", target)
    schedule(subject, b"in time", due, b"in time", target)
    got = letter(subject, b"outdated")
    assert (got.value, first(got.headers)["almanac-reason"]) == (b"too late", b"outdated")
    subject.reach(due)
    assert values(subject, target) == [b"in time"]


@pytest.mark.parametrize("form", ["sky-avro", "sky-json"])
def test_sky(subject: Subject, form: str) -> None:
    target, due, topic = subject.new_target(), subject.soon(), subject.topic(form)
    kind = "avro" if form == "sky-avro" else "json"
    content = client.Message(target, b"k", b"v", [("a", b"1")])
    send(subject, client.sky.schedule(content, "plain", at(due), topic, kind))  # type: ignore[arg-type]
    send(subject, client.sky.schedule(replace(content, value=None), "null", at(due), topic, kind))  # type: ignore[arg-type]
    send(subject, client.sky.schedule(content, "past", at(1_000_000_000_000), topic, kind))  # type: ignore[arg-type]
    send(subject, client.sky.schedule(content, "cancelled", at(due), topic, kind))  # type: ignore[arg-type]
    send(subject, client.sky.cancel("cancelled", topic))
    subject.reach(due)
    found = subject.records(target)
    assert Counter(record.value for record in found) == {b"v": 2, None: 1}
    assert {(record.key, *record.headers) for record in found} == {(b"k", ("a", b"1"))}, "nothing is added"
    ends = [each for each in subject.records(topic) if each.key == b"plain" and each.value is None]
    assert [first(each.headers)["schedule:expired"] for each in ends] == [b"true"]


def test_karafka(subject: Subject) -> None:
    target, due, topic = subject.new_target(), subject.soon(), subject.topic("karafka")
    content = client.Message(target, b"k", b"v", [("a", b"1")])
    send(subject, client.karafka.schedule(content, at(due), topic, "plain"))
    send(subject, client.karafka.schedule(replace(content, partition=3, value=b"third"), at(due), topic, "partition"))
    send(subject, client.karafka.schedule(replace(content, value=None), at(due), topic, "null"))
    send(subject, client.karafka.schedule(content, at(due), topic, "cancelled"))
    send(subject, client.karafka.cancel("cancelled", topic))
    for value in (b"x", b"y"):  # a partition key leads to one partition, whatever the message's key
        send(subject, client.karafka.schedule(
            client.Message(target, value, value, partition_key=b"p"), at(due), topic, b"by key " + value
        ))  # fmt: skip
    subject.reach(due)
    found = {first(record.headers)["schedule_source_key"]: record for record in subject.records(target)}
    assert set(found) == {b"plain", b"partition", b"null", b"by key x", b"by key y"}
    assert (found[b"partition"].partition, found[b"null"].value) == (3, None)
    assert found[b"by key x"].partition == found[b"by key y"].partition
    words = {record.key: record for record in subject.records(topic) if record.headers and record.key in found}
    acknowledged = first(words[b"plain"].headers)
    assert acknowledged["schedule_source_type"] == b"tombstone"
    assert acknowledged["schedule_source_offset"] == first(found[b"plain"].headers)["schedule_source_offset"]


def test_a_record_of_the_future_halts_its_partition_and_no_other(subject: Subject) -> None:
    target, due, topic = subject.new_target(), subject.soon(), subject.topic(FUTURE)
    content = client.Message(target, b"k", b"halted")
    known = client.karafka.schedule(content, at(due), topic, "before")
    newer = [(name, b"2.0.0" if name == "schedule_schema_version" else value) for name, value in known.headers]
    subject.write(topic, b"newer", b"v", newer, partition=0)
    subject.write(topic, b"after", b"halted", known.headers, partition=0)
    subject.write(topic, b"elsewhere", b"goes on", known.headers, partition=1)
    subject.reach(due)
    assert values(subject, target) == [b"goes on"]
    assert not subject.letters(b"newer")


def test_delivered_in_order_of_due_time(subject: Subject) -> None:
    target, due = subject.new_target(), subject.soon()
    place: Headers = [("scheduler-target-key", b"same")]
    for late in (300, 0, 200, 100, 400):
        when: Headers = [("scheduler-epoch-ms", b"%d" % (due + late)), ("scheduler-target-topic", target.encode())]
        subject.write(subject.topic("etf1"), b"order %d" % late, b"%d" % late, [*when, *place], partition=0)
    subject.reach(due + 400)
    assert values(subject, target) == [b"0", b"100", b"200", b"300", b"400"]


def test_a_message_that_does_not_fit_stops_nobody(subject: Subject) -> None:
    """It fits as a schedule, and no more with the three headers that a delivery has on top."""
    target, due = subject.new_target(), subject.soon()
    for number in range(20):
        schedule(subject, b"good %d" % number, due, b"good", target)
    schedule(subject, b"too large", due, b"x" * LARGEST, target)
    subject.reach(due)
    got = letter(subject, b"too large")
    until(lambda: len(values(subject, target)) >= 20, 60, "the good ones are delivered")
    assert Counter(values(subject, target)) == {b"good": 20}
    notes = first(got.headers)
    assert (notes["almanac-reason"], len(got.value or b"")) == (b"undeliverable", LARGEST)
    assert target.encode() in (notes["almanac-detail"] or b"")


def test_a_partition_that_is_not_there_is_the_messages_own_fault(subject: Subject) -> None:
    target, due, topic = subject.new_target(), subject.soon(), subject.topic("karafka")
    content = client.Message(target, b"k", b"v")
    send(subject, client.karafka.schedule(replace(content, partition=77), at(due), topic, "partition 77"))
    send(subject, client.karafka.schedule(content, at(due), topic, "beside it"))
    assert first(letter_after(subject, due, b"partition 77").headers)["almanac-reason"] == b"undeliverable"
    assert values(subject, target) == [b"v"]


def letter_after(subject: Subject, due: int, key: bytes) -> Record:
    subject.reach(due)
    return letter(subject, key)


def test_a_target_may_be_a_schedules_topic(subject: Subject) -> None:
    """What is delivered there is a schedule itself, in another format."""
    target, due = subject.new_target(), subject.soon()
    inner = {"time": due, "topic": target, "key": "aw==", "value": "dg=="}  # base64 of k and v
    schedule(subject, b"outer", due, json.dumps(inner).encode(), subject.topic("sky-json"),
             [("scheduler-target-key", b"inner")])  # fmt: skip
    subject.reach(due)
    got = until(lambda: subject.records(target), 15, "the inner one is delivered")
    assert [(each.key, each.value) for each in got] == [(b"k", b"v")]


def test_timer_requests_are_delivered_and_one_with_an_id_can_be_cancelled(subject: Subject) -> None:
    target, due, requests = subject.new_target(), subject.soon() + 1_000, subject.topic("timers")
    for value, id_ in ((b"one", None), (b"two", "call-2"), (b"three", "call-3")):
        send(subject, client.timers.schedule(client.Message(target, b"k", value), at(due), requests, id_))
    subject.write(requests, b"soon", b"not a second", [])
    bridged = until(
        lambda: [each for each in subject.records(subject.topic("etf1")) if each.key == b"call-3"], 15, "it is bridged"
    )
    assert bridged[0].value == b"three"
    cancel(subject, b"call-3")
    subject.reach(due)
    until(lambda: len(values(subject, target)) >= 2, 15, "the others are delivered")
    assert Counter(values(subject, target)) == {b"one": 1, b"two": 1}
    assert first(letter(subject, b"soon").headers)["almanac-reason"] == b"invalid"


def test_a_target_that_is_not_there_yet_is_made(subject: Subject) -> None:
    target, due = f"{subject.name}-fresh", subject.soon()
    schedule(subject, b"fresh", due, b"first", target)
    subject.reach(due)
    assert values(subject, target) == [b"first"]
