"""`etf1`, the native format: the value is the payload, time and target stand in the headers."""

from datetime import datetime, timedelta

from almanac.client import message, retry
from almanac.client.message import Message
from almanac.formats import etf1
from almanac.record import Headers, first

OURS = "scheduler-"
ATTEMPT, SINCE = "retry-attempt", "retry-original-timestamp"


def schedule(
    content: Message, id: str | bytes, at: datetime, topic: str = "schedules", now: datetime | None = None
) -> Message:
    """The record that has `content` delivered to its topic at that time. The same id again: an update.

    Headers that begin with `scheduler-` are taken out: a message that was delivered by the scheduler can be scheduled
    again as it is. Raises NoId, NoTarget, NoValue, NotAware, InThePast.
    """
    due = message.epoch_ms(at)
    if not content.topic:
        raise message.NoTarget
    if not content.value:
        raise message.NoValue
    if due < message.epoch_ms(now or message.now()):
        raise message.InThePast(f"{at.isoformat()} has passed")
    kept = [header for header in content.headers if not header[0].startswith(OURS)]
    when: Headers = [(etf1.EPOCH, b"%d" % (due // 1000))]
    if due % 1000:
        when.append((etf1.EPOCH_MS, b"%d" % due))
    where: Headers = [(etf1.TOPIC, content.topic.encode())]
    if content.key is not None:
        where.append((etf1.KEY, content.key))
    return Message(topic, message.checked_id(id), content.value, [*kept, *when, *where])


def cancel(id: str | bytes, topic: str = "schedules") -> Message:
    """The record that cancels: a null value for the id."""
    return Message(topic, message.checked_id(id), None)


def again(
    content: Message, id: str | bytes, topic: str = "schedules", backoff: retry.Backoff | None = None,
    now: datetime | None = None,
) -> Message:  # fmt: skip
    """The record that has a failed message delivered once more, later each time.

    Counts in the header `retry-attempt`, remembers in `retry-original-timestamp` when that began (for idempotence).
    Raises TooManyAttempts, and what `schedule` does.
    """
    moment, backoff = now or message.now(), backoff or retry.Backoff()
    named = first(content.headers)
    attempt = _number(named.get(ATTEMPT)) + 1
    since = named.get(SINCE) or b"%d" % (message.epoch_ms(moment) // 1000)
    kept = [header for header in content.headers if header[0] not in (ATTEMPT, SINCE)]
    counted = content._replace(headers=[*kept, (ATTEMPT, b"%d" % attempt), (SINCE, since)])
    due = moment + timedelta(seconds=backoff.delay(attempt))
    return schedule(counted, id, due, topic, moment)


def _number(text: bytes | None) -> int:
    return int(text) if text and text.isdigit() else 0
