"""Messages for Almanac and its peers: pure functions that build them, for any Kafka client, and a small `Scheduler`.

    from almanac import client

    online = client.Message("online-videos", key=b"vid1", value=b"video 1")
    client.etf1.schedule(online, id="vid1-online", at=datetime(2030, 1, 1, 20, tzinfo=UTC), topic="schedules")

Each wire format is a module with `schedule` and `cancel`; all return a `Message` to be produced as it is.

    ClientError             a message that cannot be meant so; each refusal is a class of its own
    ├── NoId                an id is missing
    ├── NoTopic             no schedules topic to write to
    ├── NoTarget            no topic to deliver to
    ├── NoValue             nothing to deliver
    ├── NoTime              neither at= nor after=, or both
    ├── NotAware            a datetime without a time zone
    ├── InThePast           due before now
    ├── TooFarAhead         due later than the format allows
    ├── TooManyAttempts     a message that was retried as often as allowed
    └── Inexpressible       the format has no way to say this
    NotAcknowledged         Kafka did not take it, or did not say so
    └── NotSent             it cannot: too large, or no such partition
"""

from almanac.client import etf1, karafka, sky, timers
from almanac.client.backoff import Backoff, retried
from almanac.client.delivery import identity, is_retried, is_scheduled
from almanac.client.message import (
    ClientError,
    Given,
    Inexpressible,
    InThePast,
    Message,
    NoId,
    NoTarget,
    NotAware,
    NoTime,
    NoTopic,
    NoValue,
    TooFarAhead,
    TooManyAttempts,
)
from almanac.client.scheduler import NotAcknowledged, NotSent, Scheduler, Written

__all__ = [
    "Backoff", "ClientError", "Given", "InThePast", "Inexpressible", "Message", "NoId", "NoTarget", "NoTime", "NoTopic",
    "NoValue", "NotAcknowledged", "NotAware", "NotSent", "Scheduler", "TooFarAhead", "TooManyAttempts", "Written",
    "etf1", "identity", "is_retried", "is_scheduled", "karafka", "retried", "sky", "timers",
]  # fmt: skip
