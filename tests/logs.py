"""Logs of schedules topics as plain records, and what they say by the letter of rules 3 to 5."""

import random
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pyspark import cloudpickle

from almanac import formats, words
from almanac.book.stretch import Stretch
from almanac.record import Headers, Record

TOPIC, TOPIC_ID = "schedules", "lQ2mvyJqQ5aVv7mPZmfYNg"
DUE = 1_893_456_000  # epoch s
SINCE = 1_700_000_000_000  # epoch ms
FORM = formats.named("etf1")


def schedule(due: int = DUE, target: bytes = b"target") -> Headers:
    return [("scheduler-epoch", b"%d" % due), ("scheduler-target-topic", target), ("x", b"\xff\x00"), ("x", None)]


def record(offset: int, key: bytes | None, value: bytes | None, headers: Headers, partition: int = 0) -> Record:
    return Record(TOPIC, partition, offset, SINCE + offset, key, value, headers)


class Listed:
    """A log in memory, for the tasks that read a batch (`stretch.Log`)."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._records = list(records)

    def read(self, stretch: Stretch) -> Iterator[list[Record]]:
        place, since = (stretch.topic, stretch.partition), max(0, stretch.start)
        here = [r for r in self._records if (r.topic, r.partition) == place and since <= r.offset < stretch.end]
        yield from ([each] for each in here)

    def close(self) -> None:
        pass


# Spark's tasks do not have this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # not typed there


def log(chance: random.Random, partition: int, length: int) -> list[Record]:
    """A log that users and wheels could have written: repeats are of words and cancels that are in it."""
    records: list[Record] = []
    offset = 0
    for _ in range(length):
        offset += chance.choice((1, 1, 1, 2))  # markers, aborted and cleaned records leave holes
        key = chance.choice((b"a", b"b", b"\x00\xff", b"a", b"b", b""))  # the last: records of before that have none
        before = [r for r in records if (r.key or b"") == key]
        records.append(_next(chance, record(offset, key, None, [], partition), before))
    return records


def _next(chance: random.Random, new: Record, before: list[Record]) -> Record:
    said = [(r, words.read(r, FORM, TOPIC_ID)) for r in before]
    schedules = [each for _, each in said if isinstance(each, words.Word)]
    kills = [each for _, each in said if isinstance(each, words.Kill)]
    garbage = [r for r, each in said if isinstance(each, words.Garbage)]
    kind = chance.choice("SSSCTTRRXDG")
    if kind == "T" and schedules:
        return new._replace(headers=words.acknowledgement(chance.choice(schedules).version, TOPIC_ID))
    if kind == "R" and schedules:
        word = chance.choice(schedules)
        ours = words.repeat(word.version, word.record.timestamp, TOPIC_ID)
        return new._replace(value=word.record.value, headers=[*word.record.headers, *ours])
    if kind == "X" and kills:
        return new._replace(headers=words.repeat(chance.choice(kills).version, None, TOPIC_ID))
    if kind == "D" and garbage:
        return new._replace(headers=words.disposal(chance.choice(garbage).offset, TOPIC_ID))
    if not new.key:
        return new._replace(key=None, value=b"?", headers=schedule())
    if kind == "G":
        return new._replace(value=b"?", headers=[("scheduler-epoch", b"soon")])
    if kind == "C":
        return new
    return new._replace(value=b"%d" % new.offset, headers=schedule(DUE + chance.randrange(100)))


@dataclass
class Truth:
    """What a log says: the pending record of each key, which keys are adrift, what garbage lies about."""

    pending: dict[tuple[int, bytes], tuple[Record, int]] = field(default_factory=dict)  # original, due
    adrift: set[tuple[int, bytes]] = field(default_factory=set)
    garbage: set[tuple[int, int]] = field(default_factory=set)


def truth(records: Iterable[Record]) -> Truth:
    """By the letter: the highest kill, the highest version, the last record; garbage that nobody has disposed of."""
    found = Truth()
    for (partition, key), history in _by_key(records):
        kill, word = -1, None
        for each, said in history:
            match said:
                case words.Kill(version):
                    kill = max(kill, version)
                case words.Word() if word is None or said.version > word.version:
                    word = said
                case words.Garbage():
                    found.garbage.add((partition, each.offset))
                case words.Disposal(of):
                    found.garbage.discard((partition, of))
        last = history[-1][1]
        ours = isinstance(last, words.Disposal) or (isinstance(last, words.Word | words.Kill) and last.ours)
        repeated = last.version if isinstance(last, words.Word) and last.ours else None
        if word is not None and word.version > kill:
            found.pending[partition, key] = (word.record, word.schedule.due)
            if ours and repeated != word.version:
                found.adrift.add((partition, key))
        elif repeated is not None:
            found.adrift.add((partition, key))
    return found


def _by_key(records: Iterable[Record]) -> Iterator[tuple[tuple[int, bytes], list[tuple[Record, words.Said]]]]:
    keys: dict[tuple[int, bytes], list[tuple[Record, words.Said]]] = {}
    for each in records:
        said = words.read(each, FORM, TOPIC_ID)
        keys.setdefault((each.partition, each.key or b""), []).append((each, said))
    yield from keys.items()
