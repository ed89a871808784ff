"""What a consumer can tell of a message that the scheduler delivered."""

from collections.abc import Sequence

from almanac.record import Headers, first

_ETF1 = ("scheduler-topic", "scheduler-key", "scheduler-timestamp")
_KARAFKA = ("schedule_source_topic", "schedule_source_key", "schedule_source_offset")


def is_scheduled(headers: Headers) -> bool:
    """Did the scheduler deliver it (formats `etf1` and `karafka`)?"""
    return identity(headers) is not None


def is_retried(headers: Headers) -> bool:
    """Was it scheduled as a retry (`etf1.again`)?"""
    return "retry-attempt" in first(headers)


def identity(headers: Headers) -> tuple[bytes, ...] | None:
    """The delivery's identity: equal for the same delivery, different for any other. None if it bears none.

    For consumers that must do something once though they may read a message twice: remember it with the effect.
    """
    named = first(headers)
    for names in (_ETF1, _KARAFKA):
        values: Sequence[bytes | None] = [named.get(name) for name in names]
        if values[1] is not None and values[2] is not None:
            return tuple(value or b"" for value in values)
    return None
