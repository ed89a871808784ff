"""The live tail for people's questions: what the log has said since the book was written, kept between questions.

    heard = Live(settings)
    reading = heard.follow(starts, topic_ids, stops)  # starts: where the book ends; all up to `stops` is read then
    with heard.held(reading) as said:        # key -> Heard; laid over the book it is what is pending now
        ...
    with heard.watch([key]) as watch:        # every record of these keys, from now on
        watch.until(lambda: ..., 5.0)

It reads the log only while somebody has asked within the last minutes: nobody pays for what nobody looks at. What is
known to every book that somebody asks of is dropped. To lay more over a book than it needs does no harm: versions and
kills only ever grow (rule 3), so saying them twice changes nothing.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition

from almanac import errors, formats, kafka, ports, tail, words
from almanac.ports import Source
from almanac.record import Record, first
from almanac.settings import Settings

log = logging.getLogger("almanac.live")

Key = tuple[str, int, bytes]

FETCH = 20  # ms that Kafka waits for more; the end of a partition is told only after that
IDLE = 180.0  # seconds without a question after which it reads no more
BROKEN = "it broke off and began again: ask once more"
REMEMBERED = 60_000  # ms that it is known of a schedule that it fired, at least
MOST = 2_000_000  # records behind the book that are read for a question; more is the book's to read first


class Behind(errors.AlmanacError):
    """The book is too far behind the log: it is being built. Ask again later."""


class Over(NamedTuple):
    """A version that is over by a tombstone of ours."""

    version: int
    at: int  # epoch ms, the tombstone's
    reason: str | None  # of its dead letter; None: it fired
    due: int | None  # if the log told it within sight
    target: str | None


class Heard:
    """What the log has said of one key behind the book."""

    __slots__ = ("cancel", "kill", "last", "over", "word")

    def __init__(self) -> None:
        self.kill = -1
        self.word: words.Word | None = None  # the newest, while it is pending
        self.over: tuple[Over, ...] = ()  # newest last
        self.cancel = -1  # offset of a user's last cancel
        self.last = -1  # offset of the last record

    def hides(self, version: int) -> bool:
        """Whether this ends or replaces the book's version."""
        return self.kill >= version or (self.word is not None and self.word.version > version)


class Reading:
    """What a question hears: of one reading of the log, all behind its book's end. Kept for as long as this is held."""

    __slots__ = ("__weakref__", "number", "starts")

    def __init__(self, number: int, starts: Mapping[Source, int]) -> None:
        self.number, self.starts = number, dict(starts)


class Event(NamedTuple):
    """One record of a key that is watched."""

    record: Record
    said: words.Said
    reason: str | None  # of the dead letter, if it is the tombstone of one


class Watch:
    """Every record of some keys since the watch began."""

    def __init__(self, live: Live) -> None:
        self.events: list[Event] = []
        self.broken = False  # something may have been missed
        self._live = live

    def until(self, enough: Callable[[], bool], seconds: float) -> bool:
        """Waits until it is enough; False if the time is over, or the watch broken, before."""
        with self._live.changed:
            return self._live.changed.wait_for(lambda: self.broken or enough(), seconds) and not self.broken

    def acknowledged(self, source: Source, version: int, before: int = 1 << 62) -> Event | None:
        """The tombstone of ours for that version (or a later one before that offset), if it has come."""
        for event in self.events:
            said = event.said
            if not isinstance(said, words.Kill) or event.record[:2] != source:
                continue
            if _acks(event.record, said) and version <= said.version < before:
                return event
        return None

    def newest(self, source: Source, before: int) -> int:
        """The highest version said there before that offset; -1: none."""
        said = [event.said for event in self.events if event.record[:2] == source]
        return max(
            (each.version for each in said if isinstance(each, words.Word) and each.version < before), default=-1
        )


class Live:
    """Thread-safe. One thread of its own reads while there is somebody who asks."""

    def __init__(self, settings: Settings) -> None:
        grace = settings.schedule_grace_interval * 1000
        self._settings = settings
        self._forms = {topic: formats.named(name, grace) for topic, name in settings.sources}
        self.changed = threading.Condition(threading.RLock())
        self._heard: dict[Key, Heard] = {}
        self._past: dict[Key, Heard] = {}  # what was dropped, of keys that fired a short while ago
        self.alive: dict[Key, words.Word] = {}  # of these, what is pending; read it while held
        self.changes: list[Key] = []  # the keys in the order in which they were heard of; read it while held
        self.epoch = 0  # another number: the changes begin anew
        self.ended: deque[tuple[Key, Over]] = deque()  # what is over, in the order of the log; read it while held
        self._watches: dict[Key, list[Watch]] = {}
        self._base: dict[Source, int] = {}  # where reading began
        self._positions: dict[Source, int] = {}
        self._halted: set[Source] = set()
        self._topic_ids: dict[str, str] = {}
        self._held: weakref.WeakSet[Reading] = weakref.WeakSet()  # of questions that are being answered
        self._asked = 0.0
        self._readings = 0
        self._reading: threading.Thread | None = None
        self._stop = threading.Event()
        self._error: str | None = None

    # Questions

    def follow(
        self, starts: Mapping[Source, int], topic_ids: Mapping[str, str], stops: Mapping[Source, int],
        seconds: float = kafka.ANSWER_SECONDS,
    ) -> Reading:  # fmt: skip
        """Returns when all between the book's end and `stops` is laid over it: a reading, for `held`.

        Raises Behind, errors.Unreachable.
        """
        behind = sum(max(0, stop - starts.get(source, 0)) for source, stop in stops.items())
        if behind > MOST:
            raise Behind(
                f"the book is {behind:,} records behind the log, {MOST:,} can be read for a question: it is being "
                "built. Ask again when the scheduler has read them"
            )
        with self.changed:
            self._asked = time.monotonic()
            if not self._goes_on(starts, topic_ids, stops):
                self._begin(starts, topic_ids, stops)
            reading = Reading(self._readings, starts)
            self._held.add(reading)
            self._forget()

            def done() -> bool:
                return self._readings != reading.number or self._at(stops)

            if not self.changed.wait_for(done, seconds):
                raise errors.Unreachable(f"the schedules topics were not read to their end within {seconds:g} s")
            if self._readings != reading.number:
                raise errors.Unreachable(f"reading the schedules topics: {self._error or BROKEN}")
            return reading

    def has_dropped(self, starts: Mapping[Source, int]) -> bool:
        """Whether what a book needs that ends there is kept no longer: to follow it would begin anew."""
        with self.changed:
            return any(starts.get(source, 0) < base for source, base in self._base.items())

    def at(self, stops: Mapping[Source, int], seconds: float) -> bool:
        """Waits until it has read that far; False if it has not within the time."""
        with self.changed:
            number = self._readings

            def done() -> bool:
                return self._error is not None or self._readings != number or self._at(stops)

            return self.changed.wait_for(done, seconds) and self._error is None and self._readings == number

    @contextmanager
    def held(self, reading: Reading | None = None) -> Iterator[dict[Key, Heard]]:
        """What was heard; nothing is added meanwhile. Be brief.

        Raises errors.Unreachable if that reading has broken off since: nothing of what it heard is here any more.
        """
        with self.changed:
            if reading is not None and reading.number != self._readings:
                raise errors.Unreachable(f"reading the schedules topics: {BROKEN}")
            yield self._heard

    def heard_of(self, keys: Sequence[Key]) -> list[tuple[Key, Heard]]:
        """What was heard of these, also if the book has it since a short while."""
        with self.changed:
            found = [(key, self._heard.get(key) or self._past.get(key)) for key in keys]
        return [(key, heard) for key, heard in found if heard is not None]

    @contextmanager
    def watch(self, keys: Sequence[Key]) -> Iterator[Watch]:
        """Hears every record of these keys while the block lasts; `follow` must have been called before."""
        watch = Watch(self)
        with self.changed:
            watch.broken = self._reading is None
            self._asked = time.monotonic()
            for key in keys:
                self._watches.setdefault(key, []).append(watch)
        try:
            yield watch
        finally:
            with self.changed:
                for key in keys:
                    self._watches[key].remove(watch)
                    if not self._watches[key]:
                        del self._watches[key]

    def close(self) -> None:
        """Reads no more."""
        with self.changed:
            thread = self._reading
            self._end()
        if thread is not None:
            thread.join(5)

    # All below: with the lock

    def _at(self, stops: Mapping[Source, int]) -> bool:
        return all(self._positions.get(s, 0) >= stop for s, stop in stops.items() if s not in self._halted)

    def _goes_on(self, starts: Mapping[Source, int], topic_ids: Mapping[str, str], stops: Mapping[Source, int]) -> bool:
        return (
            self._reading is not None
            and self._topic_ids == dict(topic_ids)
            and self._base.keys() == stops.keys()
            and all(starts.get(source, 0) >= base for source, base in self._base.items())
        )

    def _begin(self, starts: Mapping[Source, int], topic_ids: Mapping[str, str], stops: Mapping[Source, int]) -> None:
        self._end()
        self._stop, self._error = threading.Event(), None
        self._topic_ids = dict(topic_ids)
        self._base = {source: starts.get(source, 0) for source in stops}
        self._positions = dict(self._base)
        self._reading = threading.Thread(target=self._read, args=(self._stop,), name="almanac live", daemon=True)
        self._reading.start()

    def _end(self) -> None:
        self._stop.set()
        self._reading = None
        self._readings += 1
        self._heard, self._past, self.alive, self._halted = {}, {}, {}, set()
        self.changes, self.epoch = [], self.epoch + 1
        self.ended.clear()
        for watches in self._watches.values():
            for watch in watches:
                watch.broken = True
        self.changed.notify_all()

    def _forget(self) -> None:
        """What every book knows that somebody still asks of."""
        asked = [reading.starts for reading in self._held if reading.number == self._readings]
        known = {source: min(starts.get(source, 0) for starts in asked) for source in self._base}
        if any(known[source] > base for source, base in self._base.items()):
            gone = [key for key, said in self._heard.items() if said.last < known.get(key[:2], 0)]
            dropped = {key: self._heard.pop(key) for key in gone}
            long_ago = time.time() * 1000 - REMEMBERED
            past = {**self._past, **dropped}
            self._past = {key: said for key, said in past.items() if said.over and said.over[-1].at > long_ago}
            for key in gone:
                self.alive.pop(key, None)
            if gone:
                self.changes, self.epoch = list(self._heard), self.epoch + 1
                self.ended = deque(each for each in self.ended if each[0] in self._heard)
            self._base = {source: max(base, known[source]) for source, base in self._base.items()}

    # The thread

    def _read(self, stop: threading.Event) -> None:
        try:
            config = kafka.consumer(
                self._settings, group_id=f"{self._settings.group_id}-live", fetch_wait_max_ms=FETCH,
                queued_max_messages_kbytes=16_384,
            )  # fmt: skip
            consumer = Consumer(config)
            try:
                with self.changed:
                    base = dict(self._base)
                consumer.assign([TopicPartition(topic, p, offset) for (topic, p), offset in base.items()])
                while not stop.is_set():
                    head = consumer.poll(0.2)
                    found = [] if head is None else [head, *consumer.consume(1_000, 0)]
                    told = [tail.said(message) for message in found]
                    with self.changed:
                        if stop.is_set():
                            return
                        if time.monotonic() - self._asked > IDLE and not self._watches:
                            self._end()
                            return
                        self._take(told)
            finally:
                consumer.close()
        except Exception as error:  # whatever it is: the next question begins anew
            with self.changed:
                if not stop.is_set():
                    log.info("the live tail ended: %s; it begins again with the next question", errors.brief(error))
                    self._end()
                    self._error = errors.brief(error)

    def _take(self, told: list[Record | ports.End | None]) -> None:
        for each in told:
            if each is None:
                continue
            source = (each.topic, each.partition)
            if isinstance(each, ports.End):
                self._positions[source] = max(self._positions[source], each.offset)
            elif source not in self._halted:
                self._hear(source, each)
                self._positions[source] = each.offset + 1
        self.changed.notify_all()

    def _hear(self, source: Source, record: Record) -> None:
        said = words.read(record, self._forms[record.topic], self._topic_ids[record.topic])
        key = (*source, record.key or b"")
        if isinstance(said, words.Halt):
            self._halted.add(source)
            return
        # A repeat of what the book has read: the book knows better whether it still counts.
        known = isinstance(said, words.Word) and said.ours and said.version < self._base[source]
        if isinstance(said, words.Word | words.Kill) and not known:
            self._fold(key, record, said)
        if key in self._watches:
            event = Event(record, said, _reason(record))
            for watch in self._watches[key]:
                watch.events.append(event)

    def _fold(self, key: Key, record: Record, said: words.Word | words.Kill) -> None:
        heard = self._heard.get(key)
        if heard is None:
            heard = self._heard[key] = Heard()
        heard.last = record.offset
        self.changes.append(key)
        if isinstance(said, words.Kill):
            word = heard.word
            if _acks(record, said):
                told = word is not None and word.version == said.version
                due, target = (word.schedule.due, word.schedule.target) if word and told else (None, None)
                ended = Over(said.version, record.timestamp, _reason(record), due, target)
                heard.over = (*heard.over, ended)
                self.ended.append((key, ended))
            elif not said.ours:
                heard.cancel = record.offset
            heard.kill = max(heard.kill, said.version)
        elif said.version > heard.kill and (heard.word is None or said.version > heard.word.version):
            heard.word = self.alive[key] = said
        if heard.word is not None and heard.word.version <= heard.kill:
            heard.word = None  # its payload is of no use any more
            self.alive.pop(key, None)


def _acks(record: Record, said: words.Kill) -> bool:
    """Whether it is our tombstone: fired or buried, and not a repeat of somebody's cancel."""
    return said.ours and any(name == words.ACKS for name, _ in record.headers)


def _reason(record: Record) -> str | None:
    if record.value is not None or len(record.headers) == 2:  # two headers: the tombstone of a fire
        return None
    reason = first(record.headers).get(words.REASON)
    return reason.decode(errors="backslashreplace") if reason is not None else None
