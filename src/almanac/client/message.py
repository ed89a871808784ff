"""A message as any Kafka client takes it, and why one is refused."""

from datetime import UTC, datetime
from typing import Any, NamedTuple

from almanac.record import Headers


class ClientError(ValueError):
    """The message cannot be meant so."""

    def __init__(self, detail: str | None = None) -> None:
        super().__init__(detail or type(self).__doc__)


class NoId(ClientError):
    """A schedule needs an id: the record's key, by which it is updated and cancelled."""


class NoTarget(ClientError):
    """A schedule needs a topic to deliver to."""


class NoValue(ClientError):
    """A schedule needs a value to deliver; a null one would cancel it."""


class NotAware(ClientError):
    """A time without a zone means something else on each machine: give one, such as datetime(..., tzinfo=UTC)."""


class InThePast(ClientError):
    """The due time has passed."""


class TooFarAhead(ClientError):
    """The due time is more than 100 years ahead."""


class TooManyAttempts(ClientError):
    """The message was tried as often as is allowed."""


class Message(NamedTuple):
    """What to produce. As a schedule's content: what is to reach `topic`."""

    topic: str
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = []  # noqa: RUF012 (never changed)
    partition: int | None = None

    def arguments(self) -> dict[str, Any]:
        """For confluent-kafka: `producer.produce(**message.arguments())`."""
        found: dict[str, Any] = {
            "topic": self.topic,
            "key": self.key,
            "value": self.value,
            "headers": list(self.headers),
        }
        return found if self.partition is None else {**found, "partition": self.partition}


def bytes_of(text: str | bytes) -> bytes:
    """An id as the record's key."""
    return text.encode() if isinstance(text, str) else text


def checked_id(text: str | bytes) -> bytes:
    """Raises NoId."""
    if not text:
        raise NoId
    return bytes_of(text)


def epoch_ms(at: datetime) -> int:
    """Raises NotAware."""
    if at.tzinfo is None or at.utcoffset() is None:
        raise NotAware(f"{at!r} has no time zone: give one, such as datetime(..., tzinfo=UTC)")
    return round(at.timestamp() * 1000)


def now() -> datetime:
    """The machine's time."""
    return datetime.now(UTC)
