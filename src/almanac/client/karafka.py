"""`karafka`: the value is the payload; time, target and the record's own kind stand in the headers.

>>> from datetime import UTC, datetime
>>> event = Message("events", key=b"u1", value=b"{}", partition_key=b"u1")
>>> record = schedule(event, datetime(2099, 1, 1, tzinfo=UTC), "rails", id="e1", now=datetime(2098, 1, 1, tzinfo=UTC))
>>> for name, value in record.headers:
...     print(name, value)
schedule_schema_version b'1.0.0'
schedule_source_type b'schedule'
schedule_target_epoch b'4070908800'
schedule_target_topic b'events'
schedule_target_key b'u1'
schedule_target_partition_key b'u1'
>>> record.partition_key  # the schedule goes where others of that key go, so they are delivered in order
b'u1'
"""

import uuid
from dataclasses import replace
from datetime import datetime

from almanac import formats
from almanac.client import message
from almanac.client.message import Message
from almanac.formats import karafka
from almanac.record import Headers

LATE = 10_000  # ms
FAR = 36_525 * 86_400_000  # ms: 100 years


def schedule(
    content: Message, at: datetime, topic: str, id: str | bytes | None = None, partition_key: bytes | None = None,
    now: datetime | None = None,
) -> Message:  # fmt: skip
    """The record that has `content` delivered to its topic at that second; without an id it gets a new one.

    `partition_key` is the record's own; unless told, the content's partition or partition key. A value of None is
    delivered as one. What a scheduler put into a message that it delivered is taken out first, and so are the format's
    own headers.
    Raises NoId, NoTarget, NoTopic, NotAware, InThePast (by more than 10 s), TooFarAhead (100 years), Inexpressible.
    """
    return record(replace(content, headers=message.fresh(content.headers)), at, topic, id, partition_key, now)


def record(
    content: Message, at: datetime, topic: str, id: str | bytes | None = None, partition_key: bytes | None = None,
    now: datetime | None = None,
) -> Message:  # fmt: skip
    """The same for content that nobody has delivered yet: all its headers stay but the format's own."""
    due, target = message.checked_due(at), message.checked_target(content)
    moment = message.checked_due(now or message.now())
    if due < moment - LATE:
        raise message.InThePast(f"{at.isoformat()} has passed")
    if due > moment + FAR:
        raise message.TooFarAhead(f"{at.isoformat()} is more than 100 years ahead")
    if content.partition is not None and not 0 <= content.partition <= formats.LAST_PARTITION:
        raise message.Inexpressible(f"there is no partition {content.partition}; None leaves it to the key")
    others = [header for header in content.headers if not header[0].startswith(message.KARAFKA)]
    headers: Headers = [
        *message.checked_headers(others),
        (karafka.VERSION, b"1.0.0"),
        (karafka.TYPE, b"schedule"),
        (karafka.EPOCH, b"%d" % message.seconds(due)),
        (karafka.TOPIC, target.encode()),
    ]
    if content.key is not None:
        headers.append((karafka.KEY, content.key))
    if content.partition is not None:
        headers.append((karafka.PARTITION, b"%d" % content.partition))
    if content.partition_key is not None:
        headers.append((karafka.PARTITION_KEY, content.partition_key))
    key = message.checked_id(id) if id is not None else f"{target}-{uuid.uuid4()}".encode()
    chosen = b"%d" % content.partition if content.partition is not None else content.partition_key
    own = chosen if partition_key is None else partition_key
    return Message(message.checked_topic(topic), key, content.value, headers, partition_key=own)


def cancel(id: str | bytes, topic: str, partition_key: bytes | None = None) -> Message:
    """The record that cancels; with the partition key that the schedule had. Raises NoId, NoTopic."""
    headers: Headers = [(karafka.VERSION, b"1.0.0"), (karafka.TYPE, b"cancel")]
    return Message(message.checked_topic(topic), message.checked_id(id), None, headers, partition_key=partition_key)
