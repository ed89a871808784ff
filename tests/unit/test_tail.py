"""What tail and book make of a message that their client cannot wholly read."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from almanac import formats, inbox, ports, tail, words
from almanac.book import stretch
from almanac.record import UNREADABLE, Record


class Unreadable:
    """As librdkafka's Python gives a message one of whose headers has a name that is not UTF-8."""

    def error(self) -> None: ...
    def topic(self) -> str:
        return "schedules"

    def partition(self) -> int:
        return 1

    def offset(self) -> int:
        return 42

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_607_918_336_123

    def key(self) -> bytes:
        return b"id"

    def value(self) -> bytes:
        return b"payload"

    def headers(self) -> Any:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")


class Plain(Unreadable):
    def headers(self) -> Any:
        return None


def test_one_such_message_leaves_the_others_of_a_look_what_they_are() -> None:
    messages: Any = [Plain(), Unreadable(), Unreadable(), Plain(), Unreadable()]
    odd = [(UNREADABLE, None)]
    assert list(stretch.readable(messages)) == [[], odd, odd, [], odd]
    assert list(stretch.readable([])) == []


def test_a_header_name_that_is_not_utf8_makes_garbage_and_no_crash() -> None:
    said = tail.said(Unreadable())
    assert isinstance(said, Record)
    assert (said.offset, said.key, said.value) == (42, b"id", b"payload")
    read = words.read(said, formats.named("etf1"), "topic-id")
    assert isinstance(read, words.Garbage)
    assert "UTF-8" in read.reason


def test_an_error_that_does_not_pass_stops_the_bridge_and_others_do_not() -> None:
    """A wheel sees that its tail stands (rule 12); the bridge would wait for requests for ever."""
    codes = (KafkaError._PARTITION_EOF, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
    inbox.tell([Message(topic="requests", partition=0, error=KafkaError(code)) for code in codes])
    refused = Message(topic="requests", partition=0, error=KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(ports.Unavailable, match="requests: Broker: Topic authorization failed"):
        inbox.tell([refused])
