"""A message as any Kafka client takes it, and why one is refused."""

import binascii
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from almanac import errors, formats
from almanac.record import Headers


class ClientError(errors.UsageError, ValueError):
    """The message cannot be meant so."""


class NoId(ClientError):
    """A schedule needs an id: the record's key, by which it is updated and cancelled."""


class NoTarget(ClientError):
    """A schedule needs a topic to deliver to."""


class NoValue(ClientError):
    """A schedule needs a value to deliver; a null one would cancel it."""


class NoTime(ClientError):
    """A schedule needs one time: at=datetime(...), with a time zone, or after=timedelta(...)."""


class NotAware(ClientError):
    """A time without a zone means something else on each machine: give one, such as datetime(..., tzinfo=UTC)."""


class InThePast(ClientError):
    """The due time has passed."""


class TooFarAhead(ClientError):
    """The due time is more than 100 years ahead."""


class TooManyAttempts(ClientError):
    """The message was tried as often as is allowed."""


class Inexpressible(ClientError):
    """The wire format has no way to say this."""


@dataclass(frozen=True)
class Message:
    """What to produce. As a schedule's content: what is to reach `topic`."""

    topic: str
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = field(default_factory=list)
    partition: int | None = None
    partition_key: bytes | None = None  # chooses the partition in place of the key (karafka); see `placed`

    def placed(self, partitions: int) -> "Message":
        """With the partition that its partition key means in a topic of so many, as librdkafka's `consistent` has it.

        >>> Message("rails", b"id", partition_key=b"user-1").placed(5).partition
        4
        """
        if self.partition is not None or self.partition_key is None:
            return self
        return replace(self, partition=binascii.crc32(self.partition_key) % partitions)

    def arguments(self) -> dict[str, Any]:
        """For confluent-kafka: `producer.produce(**message.arguments())`.

        >>> Message("mails", b"42", b"hello", [("lang", b"en")]).arguments()
        {'topic': 'mails', 'key': b'42', 'value': b'hello', 'headers': [('lang', b'en')]}
        """
        if self.partition is None and self.partition_key is not None:
            raise Inexpressible("confluent-kafka takes no partition key: call placed(partitions) first")
        found = {"topic": self.topic, "key": self.key, "value": self.value, "headers": list(self.headers)}
        return found if self.partition is None else {**found, "partition": self.partition}


# What the formats check alike.


def checked_id(text: str | bytes) -> bytes:
    """The id as the record's key. Raises NoId."""
    if not text:
        raise NoId
    return text.encode() if isinstance(text, str) else text


def checked_target(content: Message) -> str:
    """The topic to deliver to. Raises NoTarget."""
    if not content.topic:
        raise NoTarget
    if formats.legal_topic(content.topic.encode()) is None:
        raise NoTarget(f"{content.topic!r} is no topic's name: 1 to 249 of a-z A-Z 0-9 . _ -")
    return content.topic


def checked_due(at: datetime) -> int:
    """Epoch ms, never before `at`. Raises NotAware, InThePast."""
    if at.tzinfo is None or at.utcoffset() is None:
        raise NotAware(f"{at!r} has no time zone: give one, such as datetime(..., tzinfo=UTC)")
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    due = (since.days * 86_400 + since.seconds) * 1000 - (-since.microseconds // 1000)
    if due < 0:
        raise InThePast(f"{at.isoformat()} is before 1970")
    return due


def seconds(due: int) -> int:
    """Whole seconds for formats that know no others: the next one, as nothing may be early."""
    return -(-due // 1000)


def without_partition(content: Message, name: str) -> None:
    """Raises Inexpressible if the content asks for a partition."""
    if content.partition is not None or content.partition_key is not None:
        raise Inexpressible(f"{name} leaves the partition to the key; the karafka format can name one")


def mapped(headers: Headers) -> dict[str, bytes]:
    """Headers as a map. Raises Inexpressible where they are none."""
    found = {name: value for name, value in headers if value is not None}
    if len(found) < len(headers):
        raise Inexpressible(f"headers here are a map of bytes: none twice, none null; given {_names(headers)}")
    try:
        return {formats.header_name(name): value for name, value in found.items()}
    except formats.Invalid as error:
        raise Inexpressible(str(error)) from None


def _names(headers: Headers) -> Sequence[str]:
    return [name if value is not None else f"{name} (null)" for name, value in headers]


def now() -> datetime:
    """The machine's time."""
    return datetime.now(UTC)
