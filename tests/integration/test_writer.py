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
