"""The story of one id: everything the topics still say of it, and what became of it ("why did it not fire?").

Compaction removes older versions and tombstones a day after they are replaced, so a story may lack its beginning;
history and dead letters reach back as far as their retention.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import tzinfo

from confluent_kafka import Message

from almanac import formats, kafka, scan, topics, when, words
from almanac.ports import Source
from almanac.record import Record, first
from almanac.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Event:
    """One record that has to do with the id."""

    at: int  # its timestamp, epoch ms
    what: str
    detail: str
    topic: str
    partition: int
    offset: int


@dataclass
class _Thread:
    """What one partition says of the id."""

    words: dict[int, words.Word] = field(default_factory=dict)  # by version
    cancels: dict[int, Record] = field(default_factory=dict)  # by what they kill; our repeat if that is all there is
    acks: dict[int, Record] = field(default_factory=dict)  # by version
    garbage: int = 0
    halted: str | None = None  # a record of the future, and why it is one
    dead: dict[int, str] = field(default_factory=dict)  # by version or offset: the reason
    fired: set[int] = field(default_factory=set)  # versions in the history


@dataclass(frozen=True)
class Story:
    events: list[Event]
    verdicts: list[str]


class Teller:
    """Gathers events; then says what became of the id."""

    def __init__(self, settings: Settings, id: bytes, zone: tzinfo, topic_ids: dict[str, str]) -> None:  # noqa: A002
        grace = settings.schedule_grace_interval * 1000
        self._forms = {topic: formats.named(name, grace) for topic, name in settings.sources}
        self._settings, self._id, self._zone, self._topic_ids = settings, id, zone, topic_ids
        self._threads: dict[Source, _Thread] = {}
        self._events: list[Event] = []

    def concerns(self, message: Message) -> bool:
        """Whether the record has to do with the id, told as cheaply as can be."""
        if message.topic() != self._settings.history_topic:
            return message.key() == self._id
        return first(scan.record(message).headers).get("almanac-id") == self._id

    def hear(self, record: Record) -> None:
        at = record.timestamp
        if record.topic in self._forms:
            what, detail = self._said(record)
        else:
            what, detail, at = self._copied(record)
        place = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
        self._events.append(Event(at=at, what=what, detail=detail, **place))  # type: ignore[arg-type]

    def _thread(self, topic: str, partition: int) -> _Thread:
        return self._threads.setdefault((topic, partition), _Thread())

    def _said(self, record: Record) -> tuple[str, str]:
        thread = self._thread(record.topic, record.partition)
        said = words.read(record, self._forms[record.topic], self._topic_ids[record.topic])
        if isinstance(said, words.Word):
            due = f"due {when.render(said.schedule.due, self._zone)} for {said.schedule.target}"
            again = "updated" if thread.words else "scheduled"
            thread.words.setdefault(said.version, said)
            return ("repeated", f"version {said.version}, {due}") if said.ours else (again, due)
        if isinstance(said, words.Disposal):
            return "disposed of", f"the unreadable record at offset {said.of}"
        if isinstance(said, words.Garbage):
            thread.garbage += 1
            return "unreadable", said.reason
        if isinstance(said, words.Halt):
            thread.halted = said.reason
            return "halts", f"{said.reason}; until then the partition waits"
        if not said.ours:
            thread.cancels[said.version] = record
            return "cancelled", "every version before"
        if words.ACKS not in first(record.headers):
            thread.cancels.setdefault(said.version, record)
            return "cancel repeated", f"versions up to {said.version}"
        thread.acks[said.version] = record
        word = thread.words.get(said.version)
        late = f", {record.timestamp - word.schedule.due} ms after it was due" if word else ""
        return "acknowledged", f"version {said.version}{late}"

    def _copied(self, record: Record) -> tuple[str, str, int]:
        """A record of the history or the dead letters, and when that was."""
        named = {
            name: (value or b"").decode(errors="backslashreplace") for name, value in first(record.headers).items()
        }
        topic, partition, offset = [*named.get("almanac-source", "").rsplit("/", 2), "", "", ""][:3]
        known = topic in self._forms and partition.isdecimal() and offset.isdecimal()
        thread = self._thread(topic, int(partition)) if known else _Thread()
        version = int(offset) if known else -1
        source = f"{topic}/{partition}/{offset}"
        if record.topic == self._settings.history_topic:
            thread.fired.add(version)
            ack = thread.acks.get(version)
            # The copy is written a little ahead of time; it counts when the transaction does, with the tombstone.
            at = record.timestamp if ack is None else max(record.timestamp, ack.timestamp)
            return "delivered", f"version {source} to {named.get('almanac-target', '?')}", at
        reason = f"{named.get('almanac-reason', '?')}: {named.get('almanac-detail', '')}"
        thread.dead[version] = reason
        return "dead letter", f"{source}, {reason}", record.timestamp

    def story(self, now: int) -> Story:
        self._events.sort(key=lambda event: (event.at, event.topic, event.partition, event.offset))
        shown = self._id.decode(errors="backslashreplace")
        if not self._events:
            places = ", ".join((*self._settings.topics, "history", "dead letters"))
            hint = "Is it the id (the record's key), and was it written to one of these topics?"
            return Story([], [f"nothing is known of {shown}: no record in {places}. {hint}"])
        verdicts = [text for source in sorted(self._threads) for text in self._verdict(source, now)]
        speaking = [source for source, thread in self._threads.items() if thread.words or thread.cancels]
        if len(speaking) > 1:
            places = ", ".join(f"{topic}/{partition}" for topic, partition in sorted(speaking))
            verdicts.append(
                f"{shown} was written to several partitions ({places}): these are different schedules, and a cancel in "
                "one does not reach another. Use one topic and one partitioner for an id"
            )
        return Story(self._events, verdicts)

    def _verdict(self, source: Source, now: int) -> Iterator[str]:
        thread, place = self._threads[source], f"{source[0]}/{source[1]}"
        kills = [*thread.cancels, *thread.acks]
        cancelled = max(thread.cancels, default=-1)
        version = max(thread.words, default=-1)
        word = thread.words.get(version)
        if thread.halted is not None:
            yield f"{place}: halts at a record of this id: {thread.halted}, and it goes on from there"
        elif word is not None and version > max(kills, default=-1):
            due = when.render(word.schedule.due, self._zone)
            if word.schedule.due > now:
                yield f"{place}: waits, due {due} for {word.schedule.target}"
            else:
                yield f"{place}: was due {due}, {now - word.schedule.due} ms ago, and waits. Does the scheduler run?"
        elif version in thread.dead or (word is None and thread.dead):
            yield f"{place}: not delivered, a dead letter: {thread.dead.get(version) or list(thread.dead.values())[-1]}"
        elif version in thread.acks and word is not None:
            ack = thread.acks[version]
            late = ack.timestamp - word.schedule.due
            yield f"{place}: fired {when.render(ack.timestamp, self._zone)}, {late} ms after it was due"
        # What rule 4 repeats as a cancel may be the end of a version that fired.
        elif cancelled > max(thread.acks, default=-1) and cancelled not in thread.fired:
            cancel = thread.cancels[cancelled]
            at = when.render(cancel.timestamp, self._zone)
            if cancel.offset == cancelled:
                yield f"{place}: cancelled {at} at offset {cancel.offset}"
            else:
                yield f"{place}: cancelled before {at}; our repeat of that, at offset {cancel.offset}, is what is left"
        elif thread.fired or thread.acks:
            yield f"{place}: fired; the schedule itself is no longer in the log"
        elif thread.garbage:
            yield f"{place}: unreadable, so never a schedule; it goes to {self._settings.dead_letters_topic}"


def tell(settings: Settings, id: bytes, zone: tzinfo, now: int) -> Story:  # noqa: A002
    """Reads the topics from their beginning: every partition, as the id may have been written to a wrong one."""
    admin = kafka.admin_client(settings)
    teller = Teller(settings, id, zone, topics.topic_ids(admin, settings.topics))
    # History and dead letters last, when the versions that they speak of are known.
    for names in (list(settings.topics), [settings.history_topic, settings.dead_letters_topic]):
        sources = scan.partitions(admin, names)
        for record in scan.read(settings, {}, scan.ends(admin, sources), teller.concerns):
            teller.hear(record)
    return teller.story(now)
