"""`etf1`, the native format: the value is the payload, time and target stand in the headers.

>>> from datetime import UTC, datetime
>>> online = Message("online-videos", key=b"vid1", value=b"video 1")
>>> record = schedule(online, id="vid1-online", at=datetime(2099, 1, 1, 20, tzinfo=UTC))
>>> record.topic, record.key, record.value
('schedules', b'vid1-online', b'video 1')
>>> for name, value in record.headers:
...     print(name, value)
scheduler-epoch b'4070980800'
scheduler-target-topic b'online-videos'
scheduler-target-key b'vid1'
>>> cancel("vid1-online")
Message(topic='schedules', key=b'vid1-online', value=None, headers=[], partition=None, partition_key=None)
"""

from datetime import datetime

from almanac.client import backoff, message
from almanac.client.message import Message
from almanac.formats import etf1
from almanac.record import Headers


def schedule(
    content: Message, id: str | bytes, at: datetime, topic: str = "schedules", now: datetime | None = None
) -> Message:
    """The record that has `content` delivered to its topic at that time. The same id again: an update.

    Headers of the scheduler's own are taken out, karafka's too: a message that was delivered by either can be scheduled
    again as it is. Raises NoId, NoTarget, NoTopic, NoValue, NotAware, InThePast, TooFarAhead, Inexpressible.
    """
    key, target, due = message.checked_id(id), message.checked_target(content), message.checked_due(at)
    if not content.value:
        raise message.NoValue
    if due < message.checked_due(now or message.now()):
        raise message.InThePast(f"{at.isoformat()} has passed")
    message.without_partition(content, "etf1")
    # With karafka's a topic of the format `auto` would read it as karafka's record: due when that one was.
    others = [header for header in content.headers if not header[0].startswith(message.OWN)]
    kept = message.checked_headers(others)
    when: Headers = [(etf1.EPOCH, b"%d" % message.seconds(due))]
    if due % 1000:
        when.append((etf1.EPOCH_MS, b"%d" % due))
    where: Headers = [(etf1.TOPIC, target.encode())]
    if content.key is not None:
        where.append((etf1.KEY, content.key))
    return Message(message.checked_topic(topic), key, content.value, [*kept, *when, *where])


def cancel(id: str | bytes, topic: str = "schedules") -> Message:
    """The record that cancels: a null value for the id. Raises NoId, NoTopic."""
    return Message(message.checked_topic(topic), message.checked_id(id), None)


def retry(
    failed: Message, id: str | bytes, topic: str = "schedules", wait: backoff.Backoff | None = None,
    now: datetime | None = None,
) -> Message:  # fmt: skip
    """The record that has a failed message delivered once more, later each time; see `retried`.

    Raises TooManyAttempts, and what `schedule` does.
    """
    moment = now or message.now()
    content, due = backoff.retried(failed, wait, moment)
    return schedule(content, id, due, topic, moment)
