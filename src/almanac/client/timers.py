"""`timers`: a request for a call-back at a whole second.

>>> from datetime import UTC, datetime
>>> hang_up = Message("calls", key=b"call-7", value=b"time is over")
>>> record = schedule(hang_up, datetime(2099, 1, 1, tzinfo=UTC), id="call-7")
>>> record.topic, record.key, record.headers
('timer-request', b'4070908800', [('scheduler-id', b'call-7')])
"""

from datetime import datetime

from almanac import formats
from almanac.client import etf1, message
from almanac.client.message import Message
from almanac.formats import timers
from almanac.record import Headers


def schedule(content: Message, at: datetime, topic: str = "timer-request", id: str | bytes | None = None) -> Message:
    """The record that has `content` delivered at that second; with an id it can be cancelled.

    A second that has passed is delivered at once. What the scheduler put into a message that it delivered is taken out
    first. The format knows no null key: without a key an empty one is delivered. Raises NoId, NoTarget, NoTopic,
    NotAware, TooFarAhead, and Inexpressible for what the format does not carry: headers, a null value, a key that is no
    text, a partition.
    """
    target, due = message.checked_target(content), message.checked_due(at)
    message.without_partition(content, "timers")
    others = [name for name, _ in content.headers if not name.startswith(message.OWN)]
    if others or content.value is None:
        raise message.Inexpressible("timers carry no headers and no null value: only a topic, a key and a value")
    try:
        key = (content.key or b"").decode()
    except UnicodeDecodeError:
        raise message.Inexpressible(f"the key of a timer is text, which {content.key!r} is not") from None
    future = timers.Future(callBackTopic=target, callBackKey=key, callBack=content.value)
    headers: Headers = [(timers.ID, message.checked_id(id))] if id is not None else []
    second = message.seconds(due)
    if 1000 * second > formats.LAST_DUE:
        raise message.TooFarAhead(f"{at.isoformat()} is due in the year 10000: the format knows whole seconds only")
    return Message(message.checked_topic(topic), b"%d" % second, future.SerializeToString(), headers)


def cancel(id: str | bytes, topic: str = "schedules") -> Message:
    """Cancels a request that was given an id; `topic` is the native one to which requests are bridged. Raises NoId."""
    return etf1.cancel(id, topic)
