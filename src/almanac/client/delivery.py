"""What a consumer can tell of a message that the scheduler delivered.

>>> headers = [("scheduler-timestamp", b"1700000000"), ("scheduler-key", b"vid1"), ("scheduler-topic", b"schedules")]
>>> is_scheduled(headers), is_retried(headers)
(True, False)
>>> identity(headers)
(b'schedules', b'vid1', b'1700000000')
"""

from almanac.client.backoff import ATTEMPT
from almanac.record import Headers, first

_ETF1 = ("scheduler-topic", "scheduler-key", "scheduler-timestamp")
_KARAFKA = ("schedule_source_topic", "schedule_source_key", "schedule_source_offset")


def is_scheduled(headers: Headers | None) -> bool:
    """Did the scheduler deliver it (formats `etf1` and `karafka`; `sky` adds nothing to tell it by)?"""
    named = first(headers or [])
    return _ETF1[1] in named or _KARAFKA[1] in named


def is_retried(headers: Headers | None) -> bool:
    """Was it scheduled as a retry?"""
    return ATTEMPT in first(headers or [])


def identity(headers: Headers | None) -> tuple[bytes, ...] | None:
    """The delivery's identity: equal for the same delivery, different for any other. None if it bears none.

    For consumers that must do something once though they may read a message twice: remember it with the effect.
    """
    named = first(headers or [])
    for names in (_ETF1, _KARAFKA):
        if named.get(names[1]) is not None and named.get(names[2]) is not None:
            return tuple(named.get(name) or b"" for name in names)
    return None
