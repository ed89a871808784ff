"""What a consumer can tell of a message that the scheduler delivered.

>>> headers = [("scheduler-epoch", b"1700000005"), ("scheduler-target-topic", b"online-videos"),
...            ("scheduler-timestamp", b"1700000000"), ("scheduler-key", b"vid1"), ("scheduler-topic", b"schedules")]
>>> is_scheduled(headers), is_retried(headers)
(True, False)
>>> identity(headers)
(b'schedules', b'vid1', b'1700000000', b'1700000005')
"""

from almanac.client import message
from almanac.client.backoff import ATTEMPT
from almanac.formats import etf1

# Topic and key of the schedule, and which of its versions. etf1's time stamp is a whole second: what was delivered and
# scheduled again within it was due at another time.
_ETF1 = ("scheduler-topic", message.BY_ETF1, "scheduler-timestamp", etf1.EPOCH, etf1.EPOCH_MS)
_KARAFKA = ("schedule_source_topic", message.BY_KARAFKA, "schedule_source_offset", "schedule_source_partition")


def is_scheduled(headers: message.Given | None) -> bool:
    """Did the scheduler deliver it (formats `etf1` and `karafka`; `sky` adds nothing to tell it by)?"""
    named = dict(message.listed(headers))
    return message.BY_ETF1 in named or message.BY_KARAFKA in named


def is_retried(headers: message.Given | None) -> bool:
    """Was it scheduled as a retry?"""
    return ATTEMPT in dict(message.listed(headers))


def identity(headers: message.Given | None) -> tuple[bytes, ...] | None:
    """The delivery's identity: equal for the same delivery, different for others. None if it bears none.

    For consumers that must do something once though they may read a message twice: remember it with the effect.
    """
    found = message.listed(headers)
    named = dict(found)  # of several with one name the last: those of an earlier delivery stand before ours
    for name, _ in reversed(found):
        names = _ETF1 if name == message.BY_ETF1 else _KARAFKA if name == message.BY_KARAFKA else None
        if names is not None and all(named.get(each) is not None for each in names[1:3]):
            return tuple(value for each in names if (value := named.get(each)) is not None)
    return None
