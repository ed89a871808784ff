"""Transactions on a real Kafka, where what librdkafka answers decides."""

import time
from collections.abc import Callable, Iterator

import pytest

from almanac import ports, writer
from almanac.broker import Broker
from almanac.outgoing import Outgoing
from almanac.settings import Settings

MakeTopic = Callable[..., str]

ROUNDS = 15


@pytest.fixture
def made(broker: Broker, make_topic: MakeTopic) -> Iterator[writer.KafkaWriter]:
    """A writer that is ready."""
    settings = Settings.load({}, {"BOOTSTRAP_SERVERS": broker.bootstrap_servers, "SHARD_TOPIC": make_topic("shards")})
    made = writer.KafkaWriter(settings, make_topic("id"), 1_000_000)
    made.renew()
    yield made
    made.close()


def test_what_is_held_up_in_a_refused_transaction_is_not_waited_for(
    made: writer.KafkaWriter, make_topic: MakeTopic
) -> None:
    """In one round of five a refused batch leaves a gap: records wait for the abort, and time out after 10 s."""
    good, tiny = make_topic("good"), make_topic("tiny", 4, {"max.message.bytes": "1000"})
    others = [Outgoing(good, -1, b"%d" % number, b"x", []) for number in range(10)]
    small = [Outgoing(tiny, -1, b"%d" % number, b"x", []) for number in range(10)]
    took = []
    for number in range(ROUNDS):
        large = Outgoing(tiny, number % 4, b"key", b"x" * 5_000, [])
        begun = time.monotonic()
        made.begin()
        made.send([*others[:5], *small[:5], large, *others[5:], *small[5:]])
        with pytest.raises(ports.Refused):
            made.commit()
        made.abort()
        faults = made.attempt([*others, *small, large])
        assert faults.pop(20).kind == "size", faults
        for records in (others, small):
            assert made.attempt(records) == {}
        took.append(time.monotonic() - begun)
    print(f"rounds took {min(took):.1f} to {max(took):.1f} s")
    assert max(took) < 5


def test_a_compacted_topic_takes_an_empty_key_and_none_without(made: writer.KafkaWriter, make_topic: MakeTopic) -> None:
    """So garbage without a key is disposed of by a record with an empty one."""
    compacted = make_topic("compacted", 1, {"cleanup.policy": "compact"})
    faults = made.attempt([Outgoing(compacted, 0, None, None, [])])
    assert {fault.kind for fault in faults.values()} == {"message"}
    assert made.attempt([Outgoing(compacted, 0, b"", None, [("almanac-disposes", b"0")])]) == {}


def test_what_is_sent_as_it_is_stamped_and_what_is_read_go_together(
    made: writer.KafkaWriter, make_topic: MakeTopic
) -> None:
    """A refusal anywhere in an unwatched transaction is told at its commit, and the next one can be taken."""
    good, tiny = make_topic("good"), make_topic("tiny", 4, {"max.message.bytes": "1000"})
    for number in range(ROUNDS):
        records = [Outgoing(good, -1, b"%d" % each, b"x", [], 1_700_000_000_000) for each in range(2_000)]
        records.insert(number * 100, Outgoing(tiny, -1, b"key", b"x" * 5_000, []))
        with pytest.raises(ports.Refused):  # noqa: PT012 (which of these says so, is Kafka's to choose)
            made.begin()
            made.send(records, stamped=True)
            made.commit({})
        made.abort()
        assert {n: fault.kind for n, fault in made.attempt(records).items()} == {number * 100: "size"}
        made.begin()
        made.send([each for each in records if each.topic == good], stamped=True)
        made.commit({})
