"""Messages for Almanac and its peers: pure functions that build them, for any Kafka client, and a small `Scheduler`.

    from almanac import client

    online = client.Message("online-videos", key=b"vid1", value=b"video 1")
    client.etf1.schedule(online, id="vid1-online", at=datetime(2030, 1, 1, 20, tzinfo=UTC), topic="schedules")

Each wire format is a module with `schedule` and `cancel`; all return a `Message` to be produced as it is.

    ClientError             a message that cannot be meant so; each refusal is a class of its own
    ├── NoId                an id is missing
    ├── NoTarget            no topic to deliver to
    ├── NoValue             nothing to deliver
    ├── NotAware            a datetime without a time zone
    ├── InThePast           due before now
    ├── TooFarAhead         due later than the format allows
    └── TooManyAttempts     a message that was retried as often as allowed
"""

from almanac.client import etf1, karafka, sky, timers
from almanac.client.delivery import identity, is_retried, is_scheduled
from almanac.client.message import (
    ClientError,
    InThePast,
    Message,
    NoId,
    NoTarget,
    NotAware,
    NoValue,
    TooFarAhead,
    TooManyAttempts,
)
from almanac.client.retry import Backoff
from almanac.client.scheduler import Scheduler

__all__ = [
    "Backoff", "ClientError", "InThePast", "Message", "NoId", "NoTarget", "NoValue", "NotAware", "Scheduler",
    "TooFarAhead", "TooManyAttempts", "etf1", "identity", "is_retried", "is_scheduled", "karafka", "sky", "timers",
]  # fmt: skip
