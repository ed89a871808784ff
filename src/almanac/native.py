"""A schedule of any format in the native one's words: the same id, the same time, the same message.

words.Word   ->  Wish     what was asked for, in no format's words
Wish         ->  Native   a record for a native topic; Unfit if the native format cannot say it
"""

from typing import NamedTuple

from almanac import words
from almanac.formats import auto, etf1, karafka
from almanac.record import Headers, Record, first

# Headers that say when and where to, not what: in records of their own format only, elsewhere they are a user's.
_ETF1 = frozenset((etf1.EPOCH, etf1.EPOCH_MS, etf1.TOPIC, etf1.KEY))
_KARAFKA = frozenset(
    (karafka.VERSION, karafka.TYPE, karafka.EPOCH, karafka.TOPIC, karafka.KEY, karafka.PARTITION, karafka.PARTITION_KEY)
)
_RESERVED = _ETF1 | words.CONTROL

_NATIVE = auto.Auto()  # how native topics are read unless told
_ADDED = frozenset(("scheduler-timestamp", "scheduler-key", "scheduler-topic"))
_FRAME, _HEADER_FRAME = 100, 8  # bytes that Kafka takes for a record and for a header, at most


class Unfit(ValueError):
    """The native format cannot say this; the message says why."""


class Wish(NamedTuple):
    """What somebody asked for."""

    id: bytes
    due: int  # epoch ms
    target: str
    key: bytes | None
    value: bytes | None
    headers: Headers  # what reaches the target, without the scheduler's own
    timestamp: int  # epoch ms: when it was asked for, by the record's time
    partition: int | None = None  # of the target
    partition_key: bytes | None = None  # by which the target's partition is chosen in place of the key


class Native(NamedTuple):
    """A record for a native topic; a null value cancels."""

    id: bytes
    value: bytes | None
    headers: Headers
    timestamp: int  # epoch ms
    partition: int = -1  # of the native topic; -1: left to the partitioner

    def size(self) -> int:
        """Bytes that it takes in the log, or a few less."""
        headers = sum(len(name.encode()) + len(value or b"") + _HEADER_FRAME for name, value in self.headers)
        return _FRAME + len(self.id) + len(self.value or b"") + headers


def wish(word: words.Word) -> Wish:
    """What the word asks for."""
    record, schedule = word.record, word.schedule
    native = schedule.grace is not None
    own = _ETF1 if native else _KARAFKA if isinstance(schedule.form, karafka.Karafka) else frozenset[str]()
    headers = [header for header in schedule.headers if header[0] not in own]
    # Formats that know no outdated schedules fire at once what was over when it was written: so must the native one.
    timestamp = record.timestamp if native else max(1, min(record.timestamp, schedule.due))
    if native:
        headers = headers[: -len(_ADDED)]
    by = None if schedule.hashed is None else first(schedule.headers).get(karafka.PARTITION_KEY)
    return Wish(
        record.key or b"", schedule.due, schedule.target, schedule.key, schedule.value, headers, timestamp,
        schedule.partition if schedule.partition >= 0 else None, by,
    )  # fmt: skip


def record(asked: Wish) -> Native:
    """The native record of a wish. Raises Unfit."""
    if asked.value is None:
        raise Unfit("it delivers a null value, which the native format takes for a cancel")
    if asked.partition is not None:
        raise Unfit(f"it asks for partition {asked.partition} of its target, which the native format cannot")
    if asked.partition_key is not None:
        raise Unfit("it asks for its target's partition by a key of its own, which the native format cannot")
    for name, _ in asked.headers:
        if name in _RESERVED:
            raise Unfit(
                f"its header {name} is one of the scheduler's own there, which the native format cannot deliver"
            )
    when: Headers = [(etf1.EPOCH, b"%d" % -(-asked.due // 1000))]  # the next whole second, as nothing may be early
    if asked.due % 1000:
        when.append((etf1.EPOCH_MS, b"%d" % asked.due))
    where: Headers = [(etf1.TOPIC, asked.target.encode())]
    if asked.key is not None:
        where.append((etf1.KEY, asked.key))
    made = Native(asked.id, asked.value, [*when, *where, *asked.headers], asked.timestamp)
    _check(made, asked)
    return made


def copy(word: words.Word) -> Native:
    """The native record of a word; one that is native already stays as it is. Raises Unfit."""
    if word.schedule.grace is None:  # the native format alone knows outdated schedules
        return record(wish(word))
    late = word.record.timestamp - word.schedule.due
    if late > word.schedule.grace:
        raise Unfit(f"outdated: due {late / 1000:.1f} s before it was written")
    made = Native(word.record.key or b"", word.record.value, word.record.headers, word.record.timestamp)
    _check(made, wish(word))
    return made


def _check(made: Native, asked: Wish) -> None:
    """What is written must be read as it was meant."""
    said = words.read(Record("", 0, 0, made.timestamp, *made[:3]), _NATIVE, "")
    if not isinstance(said, words.Word):
        raise Unfit(f"the native format would not read it: {getattr(said, 'reason', 'it is no schedule')}")
    if wish(said)[:6] != asked[:6]:  # all of the message, and when it is due
        raise Unfit("its own headers would be taken for the scheduler's")
