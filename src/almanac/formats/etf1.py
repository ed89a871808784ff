"""`etf1`, the native format: the payload is the value, time and target stand in the headers."""

from functools import lru_cache

from almanac import formats
from almanac.record import Headers, Named, Record

EPOCH, EPOCH_MS = "scheduler-epoch", "scheduler-epoch-ms"
TOPIC, KEY = "scheduler-target-topic", "scheduler-target-key"
SINCE = "scheduler-timestamp"
REQUEST = "scheduler-request"  # set by the bridge: the timer request that this was; such a one is never outdated
TOLERANCE = 2_000  # ms that a producer's clock may be ahead of the due time it meant
FOREVER = 1 << 63  # ms
_WHERE = f"header {TOPIC}"


class Etf1:
    """Headers `scheduler-epoch` (or `-epoch-ms`), `scheduler-target-topic`, optional `scheduler-target-key`."""

    name = "etf1"

    def __init__(self, grace: int = 0) -> None:
        self._grace = grace + TOLERANCE

    def plan(self, record: Record, named: Named) -> tuple[int, str]:
        """See formats.Format."""
        if not record.key:
            raise formats.no_id()
        due = _due(named)
        name = named.get(TOPIC)
        if name is None:
            raise formats.Invalid(f"header {TOPIC} is missing; it names the topic to deliver to")
        return due, formats.legal_topic(name) or formats.target(name, _WHERE)

    def decode(self, record: Record, named: Named) -> formats.Schedule:
        """See formats.Format."""
        due, target = self.plan(record, named)
        out = [*record.headers, _since(record.timestamp // 1000), ("scheduler-key", record.key), _origin(record.topic)]
        grace = FOREVER if REQUEST in named else self._grace
        return formats.Schedule(due, target, named.get(KEY), -1, record.value, out, grace)

    def speaks(self, named: Named) -> bool:
        """See formats.Format."""
        return False

    def acknowledged(self, named: Named) -> int | None:
        """See formats.Format."""
        return None

    def tombstone(self, record: Record) -> Headers:
        """Ours alone: the peer copies all headers into it and nobody reads them."""
        return []

    def null(self) -> Headers:
        """See formats.Format."""
        return []


# Equal ones are one object: thousands of schedules in memory were written in the same second. The last few seconds are
# enough, and what is kept of each stands in the way when the memory around it is given back.


@lru_cache(maxsize=4)
def _since(seconds: int) -> tuple[str, bytes | None]:
    return SINCE, b"%d" % seconds


@lru_cache(maxsize=256)
def _origin(topic: str) -> tuple[str, bytes | None]:
    return "scheduler-topic", topic.encode()


def _due(named: Named) -> int:
    name, factor = (EPOCH_MS, 1) if EPOCH_MS in named else (EPOCH, 1000)
    if name not in named:
        raise formats.Invalid(f"header {EPOCH} is missing; it says when, in seconds since 1970")
    text = named[name]
    # 15 digits hold every allowed value; the bound keeps int() of a megabyte of digits away
    if not text or not text.isdigit() or len(text) > 15:
        raise formats.Invalid(f"header {name} is not a whole, positive number: {formats.shown(text)}")
    due = int(text) * factor
    if due > formats.LAST_DUE:
        raise formats.Invalid(f"header {name} lies after the year 9999: {formats.shown(text)}")
    return due
