"""The librdkafka configuration that people pass through the YAML file: what may not be in it, and what to hide.

Everything librdkafka knows is allowed, except what the protocol decides (rules 1 to 12) and what another setting says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

SECTIONS: Final = {
    "kafka_common": "kafka.common.configuration",
    "kafka_producer": "kafka.producer.configuration",
    "kafka_consumer": "kafka.consumer.configuration",
}
"""Field of the settings -> top-level key of the YAML file, as the peer names it."""

IGNORED: Final = ("bootstrap.servers", "metadata.broker.list")
"""Ignored, as the peer does: BOOTSTRAP_SERVERS decides, its default too."""

MASK: Final = "********"
_SECRET: Final = re.compile(r"password|secret|token|oauth|jaas|\.pem$|credential", re.IGNORECASE)
_USER_IN_URL: Final = re.compile(r"(?<=://)[^/@]+(?=@)")


def _only(*allowed: str) -> Callable[[str], bool]:
    return lambda value: value.lower() in allowed


def _never(value: str) -> bool:
    return False


def _at_most_five(value: str) -> bool:
    return value.isdigit() and 1 <= int(value) <= 5


_ACKS: Final = (_only("all", "-1"), "only all: an acknowledged schedule must survive the loss of a broker")
_IN_FLIGHT: Final = (_at_most_five, "1 to 5: idempotent producers allow no more")
_RULES: Final[dict[str, tuple[Callable[[str], bool], str]]] = {
    "transactional.id": (_never, "it derives from GROUP_ID: one id per shard is what fences an older wheel (rule 1)"),
    "transaction.timeout.ms": (_never, "set TRANSACTION_TIMEOUT instead"),
    "message.timeout.ms": (_never, "it follows from TRANSACTION_TIMEOUT"),
    "delivery.timeout.ms": (_never, "it follows from TRANSACTION_TIMEOUT"),
    "group.id": (_never, "set GROUP_ID instead"),
    "group.instance.id": (_never, "the scheduler assigns its partitions itself, by shard"),
    "enable.idempotence": (_only("true"), "only true: transactions need it"),
    "acks": _ACKS,
    "request.required.acks": _ACKS,
    "max.in.flight": _IN_FLIGHT,
    "max.in.flight.requests.per.connection": _IN_FLIGHT,
    "queuing.strategy": (_only("fifo"), "only fifo: records must stay in order"),
    "isolation.level": (_only("read_committed"), "only read_committed: else an aborted tombstone would count (rule 1)"),
    "enable.auto.commit": (_only("false"), "only false: the book and the shard topic hold the offsets (rule 10)"),
    "enable.auto.offset.store": (_only("false"), "only false: the book and the shard topic hold the offsets (rule 10)"),
    "auto.offset.reset": (_only("error"), "only error: a jump over records would lose schedules (rule 10)"),
    "enable.partition.eof": (_only("true"), "only true: a wheel must see the end of its partitions (rule 12)"),
    "message.max.bytes": (_never, "it derives from the broker's (rule 9)"),
    "topic.metadata.propagation.max.ms": (_never, "it is kept well below TRANSACTION_TIMEOUT (rule 8)"),
    "sasl.jaas.config": (_never, "that is a Java name: give sasl.mechanisms, sasl.username and sasl.password"),
    "ssl.truststore.location": (_never, "that is a Java name: give ssl.ca.location, a PEM file"),
}


def text(value: object) -> str:
    """A YAML value as librdkafka wants it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def refused(configuration: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """(key, value as it may be shown, reason) of everything that must not be passed through."""
    return [
        (key, text(masked(key, value)), _RULES[key][1])
        for key, value in configuration.items()
        if key in _RULES and not _RULES[key][0](value)
    ]


def is_secret(name: str) -> bool:
    return _SECRET.search(name) is not None


def masked(name: str, value: object) -> object:
    """The value as it may be shown: secrets hidden, in nested mappings and in URLs too.

    A section that is no mapping is hidden as a whole: who writes it in another form writes passwords in another form.
    """
    if isinstance(value, Mapping):
        return {key: masked(str(key), inner) for key, inner in value.items()}
    if value is not None and (is_secret(name) or name in SECTIONS):
        return MASK
    return _USER_IN_URL.sub(MASK, value) if isinstance(value, str) else value
