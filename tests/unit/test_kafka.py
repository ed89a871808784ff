"""What the clients are told, and what of theirs is logged."""

import logging

from almanac import kafka
from almanac.settings import Settings


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("almanac.kafka", logging.ERROR, "", 0, text, None, None)


def test_what_a_client_repeats_is_logged_once_in_a_while() -> None:
    now = [0.0]
    seldom = kafka.Seldom(lambda: now[0])
    assert seldom.filter(record("FAIL [producer-1] refused (after 0ms in state CONNECT)"))
    assert not seldom.filter(record("FAIL [producer-2] refused (after 12ms in state CONNECT)"))
    assert seldom.filter(record("another thing"))
    now[0] += kafka.QUIET_SECONDS
    assert seldom.filter(record("FAIL [producer-3] refused (after 7ms in state CONNECT)"))


def test_what_the_caller_needs_comes_last_under_whatever_name_people_set_it() -> None:
    settings = Settings(kafka_producer={"linger.ms": "5", "queue.buffering.max.ms": "5"})  # the same, twice
    told = list(kafka.producer(settings, linger_ms=3_000).items())
    assert told[-1] == ("linger.ms", 3_000)
