"""A message as any Kafka client takes it, and why one is refused."""

import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Protocol, Self

from almanac import errors, formats
from almanac.formats import karafka
from almanac.record import Headers

Given = Mapping[str, str | bytes | None] | Sequence[tuple[str, str | bytes | None]]  # as Kafka's clients have headers
# By which header a delivered message is known.
BY_ETF1, BY_KARAFKA = "scheduler-key", "schedule_source_key"
# How the formats' own headers begin.
KARAFKA = ("schedule_target_", "schedule_source_", karafka.VERSION)
OWN = ("scheduler-", *KARAFKA)


class ClientError(errors.UsageError, ValueError):
    """The message cannot be meant so."""


class NoId(ClientError):
    """A schedule needs an id: the record's key, by which it is updated and cancelled."""


class NoTopic(ClientError):
    """A schedule needs a schedules topic to be written to."""


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
    """The due time is later than can be said."""


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
    headers: Sequence[tuple[str, bytes | None]] = field(default_factory=list)
    partition: int | None = None
    partition_key: bytes | None = None  # chooses the partition in place of the key (karafka); see `placed`

    def __post_init__(self) -> None:
        """Headers may be a map, as Kafka's clients take them, too."""
        object.__setattr__(self, "headers", listed(self.headers))
        for name in ("key", "value", "partition_key"):
            if not isinstance(getattr(self, name), bytes | bytearray | None):
                raise TypeError(f"{name} must be bytes, not {getattr(self, name)!r}: such as text.encode()")

    @classmethod
    def received(cls, message: "Received") -> Self:
        """What a consumer of confluent-kafka has read, as content to be scheduled again."""
        return cls(message.topic() or "", message.key(), message.value(), listed(message.headers()))

    def placed(self, partitions: int) -> "Message":
        """With the partition that its partition key means in a topic of so many, as librdkafka's `consistent` has it.

        >>> Message("rails", b"id", partition_key=b"user-1").placed(5).partition
        4
        """
        if partitions < 1:
            raise Inexpressible(f"{self.topic} cannot have {partitions} partitions")
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


class Received(Protocol):
    """A message as confluent-kafka's consumers return it."""

    def topic(self) -> str | None: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> Given | None: ...


def listed(headers: Given | None) -> Headers:
    """Headers in one shape, whatever client they are from."""
    found = headers.items() if isinstance(headers, Mapping) else headers or ()
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in found]


def fresh(headers: Sequence[tuple[str, bytes | None]]) -> Headers:
    """Headers as their writer meant them: without what a scheduler that delivered the message has put beside them."""
    names = {name for name, _ in headers}
    own = [prefix for sign, prefix in ((BY_ETF1, ("scheduler-",)), (BY_KARAFKA, KARAFKA)) if sign in names]
    return [header for header in headers if not any(header[0].startswith(prefix) for prefix in own)]


# What the formats check alike.


def checked_id(text: str | bytes) -> bytes:
    """The id as the record's key. Raises NoId, Inexpressible."""
    if not text:
        raise NoId
    try:
        return text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError:
        raise Inexpressible(f"the id {text!a} is no Unicode text; bytes can be any") from None


def checked_topic(name: str) -> str:
    """The schedules topic. Raises NoTopic."""
    if formats.legal_topic(name.encode(errors="surrogatepass")) is None:
        raise NoTopic(f"{name!a} is no topic's name: 1 to 249 of a-z A-Z 0-9 . _ -") if name else NoTopic
    return name


def checked_target(content: Message) -> str:
    """The topic to deliver to. Raises NoTarget."""
    if not content.topic:
        raise NoTarget
    if formats.legal_topic(content.topic.encode(errors="surrogatepass")) is None:
        raise NoTarget(f"{content.topic!a} is no topic's name: 1 to 249 of a-z A-Z 0-9 . _ -")
    return content.topic


def checked_headers(headers: Sequence[tuple[str, bytes | None]]) -> Headers:
    """Headers that Kafka's clients can write: some end the process over the name of one. Raises Inexpressible."""
    try:
        return [(formats.header_name(name), value) for name, value in headers]
    except formats.Invalid as error:
        raise Inexpressible(str(error)) from None


def checked_due(at: datetime) -> int:
    """Epoch ms, never before `at`. Raises NotAware, InThePast, TooFarAhead."""
    if at.tzinfo is None or at.utcoffset() is None:
        raise NotAware(f"{at!r} has no time zone: give one, such as datetime(..., tzinfo=UTC)")
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    due = (since.days * 86_400 + since.seconds) * 1000 - (-since.microseconds // 1000)
    if due < 0:
        raise InThePast(f"{at.isoformat()} is before 1970")
    if due > formats.LAST_DUE:
        raise TooFarAhead(f"{at.isoformat()} lies after the year 9999")
    return due


def seconds(due: int) -> int:
    """Whole seconds for formats that know no others: the next one, as nothing may be early."""
    return -(-due // 1000)


def without_partition(content: Message, name: str) -> None:
    """Raises Inexpressible if the content asks for a partition."""
    if content.partition is not None or content.partition_key is not None:
        raise Inexpressible(f"{name} leaves the partition to the key; the karafka format can name one")


def mapped(headers: Sequence[tuple[str, bytes | None]]) -> dict[str, bytes]:
    """Headers as a map. Raises Inexpressible where they are none."""
    found = {name: value for name, value in checked_headers(headers) if value is not None}
    if len(found) < len(headers):
        raise Inexpressible(f"headers here are a map of bytes: none twice, none null; given {_names(headers)}")
    return found


def _names(headers: Sequence[tuple[str, bytes | None]]) -> Sequence[str]:
    return [name if value is not None else f"{name} (null)" for name, value in headers]


def now() -> datetime:
    """The machine's time."""
    return datetime.now(UTC)
