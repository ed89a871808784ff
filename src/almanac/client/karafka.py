"""`karafka`: the value is the payload; time, target and the record's own kind stand in the headers."""

import uuid
from datetime import datetime, timedelta

from almanac.client import message
from almanac.client.message import Message
from almanac.formats import karafka
from almanac.record import Headers

LATE = timedelta(seconds=10)
FAR = timedelta(days=36_525)


def schedule(
    content: Message, at: datetime, topic: str, id: str | bytes | None = None, partition_key: bytes | None = None,
    now: datetime | None = None,
) -> Message:  # fmt: skip
    """The record that has `content` delivered to its topic at that time; without an id it gets a new one.

    Raises NoTarget, NotAware, InThePast (by more than 10 s), TooFarAhead (100 years).
    """
    due, moment = message.epoch_ms(at), now or message.now()
    if not content.topic:
        raise message.NoTarget
    if at < moment - LATE:
        raise message.InThePast(f"{at.isoformat()} has passed")
    if at > moment + FAR:
        raise message.TooFarAhead(f"{at.isoformat()} is more than 100 years ahead")
    headers: Headers = [
        *content.headers,
        (karafka.VERSION, b"1.0.0"),
        (karafka.TYPE, b"schedule"),
        (karafka.EPOCH, b"%d" % (due // 1000)),
        (karafka.TOPIC, content.topic.encode()),
    ]
    if content.key is not None:
        headers.append((karafka.KEY, content.key))
    if content.partition is not None:
        headers.append((karafka.PARTITION, b"%d" % content.partition))
    elif partition_key is not None:
        headers.append((karafka.PARTITION_KEY, partition_key))
    key = message.checked_id(id) if id is not None else f"{content.topic}-{uuid.uuid4()}".encode()
    return Message(topic, key, content.value, headers)


def cancel(id: str | bytes, topic: str) -> Message:
    """The record that cancels."""
    headers: Headers = [(karafka.VERSION, b"1.0.0"), (karafka.TYPE, b"cancel")]
    return Message(topic, message.checked_id(id), None, headers)
