"""`timers`: a request for a call-back at a whole second."""

from datetime import datetime

from almanac.client import etf1, message
from almanac.client.message import Message
from almanac.formats import timers
from almanac.record import Headers


def request(content: Message, at: datetime, topic: str = "timer-request", id: str | bytes | None = None) -> Message:
    """The record that has `content` delivered at that second; with an id it can be cancelled.

    Raises NoTarget, NotAware.
    """
    if not content.topic:
        raise message.NoTarget
    future = timers.Future(
        callBackTopic=content.topic, callBackKey=(content.key or b"").decode(), callBack=content.value or b""
    )
    headers: Headers = [(timers.ID, message.checked_id(id))] if id is not None else []
    return Message(topic, b"%d" % (message.epoch_ms(at) // 1000), future.SerializeToString(), headers)


def cancel(id: str | bytes, topic: str = "schedules") -> Message:
    """Cancels a request that was given an id; `topic` is the native one to which requests are bridged."""
    return etf1.cancel(id, topic)
