"""Is it certain? Asks the wheel that owns a partition whether it has passed an offset, and hears its answer.

A user's cancel (or update) stands at offset O of a schedules partition. It may come too late: the wheel may fire at
that very moment. So somebody who wants to know for sure appends an *ask* to the owner's partition of the shard topic:

    ask      {"ask": id, "topic": ..., "partition": ..., "offset": O}      by anybody
    answer   {"ask": id, "position": P, "at": ms}, P > O                   by the wheel (`answers`), in a transaction

Why an answer is never wrong. Let W be the wheel whose answer is committed, at the time t of that commit.

1. W has read the record at O (P > O) before it wrote the answer: its ledger knows what O ends, and what is fired is
   judged by the ledger. So from then on W fires no version up to O of that key.
2. Whatever W fired before is committed, or aborted, and its markers are written: a wheel has one transaction at a time,
   the answer is one too, and Kafka begins no transaction of a producer before the last one is complete. After any doubt
   about a commit W takes over anew (rule 6), which settles it, before it comes to answer.
3. W was the owner at t: the answer is written by the wheel's transactional producer. Whoever replaced W fenced it first
   (rule 1; the driver fences every id before another number of shards begins), and a fenced producer cannot commit.
   W's successor initialises after t, therefore, and fires only when it has read to the high watermark seen then, which
   is above O: it knows what O ends too. Of predecessors nothing is left: W fenced them, and caught up.
4. A reader of committed records sees no answer that was aborted.

So after t nothing changes any more for versions up to O of that key: who then reads the schedules partition (committed
records, to the high watermark as it is after the answer) finds the tombstone that acknowledges the version, or there
never will be one. `outcome` reads it off. Times are nowhere part of this. A question that nobody answers (no owner, a
takeover, Kafka is away, a foreign transaction hangs below O) stays unknown, never wrong.

The answer goes to the shard topic, not to the schedules: nothing of this can be mistaken for a word.
"""

import json
import logging
import threading
import time
import uuid
from collections.abc import Iterable
from typing import Any, Literal

from confluent_kafka import Consumer, IsolationLevel, KafkaException, Message, Producer, TopicPartition

from almanac import errors, kafka, ports, shard, tail, words
from almanac.settings import Settings

log = logging.getLogger("almanac.asks")

Outcome = Literal["cancelled", "already-fired", "not-found"]

AGAIN = 1.0  # seconds after which a question is put once more: a new owner hears only what was asked since its claim
POLL = 0.1  # seconds


class _Question:
    """One that waits."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.answered = threading.Event()


class Asker:
    """Asks for certainty. One producer and one consumer, made at the first question; any number of threads may ask."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._topic = settings, settings.shard_topic
        self._opening = threading.Lock()
        self._closed = threading.Event()
        self._questions: dict[str, _Question] = {}
        self._owner: tuple[int, int] = (-1, 0)  # offset of the last claim on partition 0, and its number of shards
        self._producer: Producer | None = None
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Connects; without it the first question does, and takes longer. Raises errors.Unreachable."""
        with self._opening:
            if self._thread is not None or self._closed.is_set():
                return
            partitions = shard.partitions(self._settings)
            if not partitions:
                return  # nobody has ever owned anything here
            positions = self._ends(partitions)
            for offset, key, value in shard.read(self._settings, 0):
                self._hear(0, offset, key, value)
            producer = Producer(kafka.producer(self._settings, linger_ms=0, message_timeout_ms=5_000))
            try:
                producer.list_topics(self._topic, timeout=kafka.ANSWER_SECONDS)  # else its first record waits
            except KafkaException as error:
                raise kafka.explained(error, "looking for the shard topic") from error
            self._producer = producer
            self._thread = threading.Thread(target=self._listen, args=(positions,), name="almanac asks", daemon=True)
            self._thread.start()

    def passed(self, topic: str, partition: int, offset: int, timeout_s: float = 0.5) -> bool:
        """Has the wheel that owns this partition passed this offset, for good? False: not known within the time."""
        until = time.monotonic() + timeout_s
        try:
            self.open()
        except errors.AlmanacError as error:
            log.info("nobody can be asked: %s", error)
        if (producer := self._producer) is None:
            return False
        name, question = uuid.uuid4().hex, _Question(offset)
        text = json.dumps({"ask": name, "topic": topic, "partition": partition, "offset": offset}).encode()
        self._questions[name] = question
        try:
            while (left := until - time.monotonic()) > 0:
                self._ask(producer, partition, text)
                if question.answered.wait(min(left, AGAIN)):
                    return True
            return False
        finally:
            del self._questions[name]

    def close(self) -> None:
        """Disconnects; questions that wait stay unanswered."""
        self._closed.set()
        with self._opening:
            if self._thread is not None:
                self._thread.join(5)
            self._thread = self._producer = None

    def _ask(self, producer: Producer, partition: int, text: bytes) -> None:
        shards = self._owner[1]
        if shards < 1:
            return
        try:
            producer.produce(self._topic, text, b"ask", partition % shards)
            producer.poll(0)
        except (BufferError, KafkaException) as error:
            log.info("an ask could not be written: %s", error)

    def _ends(self, partitions: int) -> dict[int, int]:
        sources = [(self._topic, number) for number in range(partitions)]
        try:
            found = tail.ends(kafka.admin_client(self._settings), sources, IsolationLevel.READ_UNCOMMITTED)
        except ports.Unavailable as error:
            raise errors.Unreachable(str(error)) from error
        return {number: end for (_, number), end in found.items()}

    def _listen(self, positions: dict[int, int]) -> None:
        # Committed answers only: one that was aborted proves nothing.
        more = {"auto_offset_reset": "earliest", "fetch_wait_max_ms": 100}
        consumer = Consumer(kafka.consumer(self._settings, group_id=f"{self._settings.group_id}-asks", **more))
        assigned = 0
        try:
            while not self._closed.is_set():
                for number in range(self._owner[1]):
                    positions.setdefault(number, 0)  # there are more shards than before
                if len(positions) > assigned:
                    assigned = len(positions)
                    consumer.assign([TopicPartition(self._topic, number, at) for number, at in positions.items()])
                message = consumer.poll(POLL)
                if message is not None and message.error() is None:
                    positions[message.partition() or 0] = (message.offset() or 0) + 1
                    self._read(message)
        finally:
            consumer.close()

    def _read(self, message: Message) -> None:
        key = message.key()
        if key in (b"answer", b"owner"):
            try:
                value = json.loads(message.value() or b"{}")
            except ValueError:
                return
            self._hear(message.partition() or 0, message.offset() or 0, key.decode(), value)

    def _hear(self, number: int, offset: int, key: str, value: Any) -> None:
        if not isinstance(value, dict):
            return
        if key == "owner" and number == 0 and offset > self._owner[0] and isinstance(value.get("shards"), int):
            self._owner = (offset, value["shards"])
        elif key == "answer":
            question = self._questions.get(str(value.get("ask")))
            if question is not None and isinstance(at := value.get("position"), int) and at > question.offset:
                question.answered.set()


def outcome(said: Iterable[tuple[int, words.Said]], offset: int, known: int = -1) -> Outcome:
    """What became of the word that the cancel at `offset` met.

    `said` are the records of that key with their offsets, as the log has them up to its end after `passed` was true; if
    they do not begin with the log, `known` is the version that was pending before them (of the book's row).
    A burial (dead letter) counts as fired: it was over before the cancel.
    """
    version, over = known, -1
    acknowledged = set()
    for at, each in said:
        if isinstance(each, words.Word) and each.version < offset:
            version = max(version, each.version)
        elif isinstance(each, words.Kill) and each.ours:
            acknowledged.add(each.version)  # of a word, if it fired; our repeat of a cancel names the cancel's offset
        elif isinstance(each, words.Kill) and at < offset:
            over = max(over, each.version)
    if version in acknowledged:
        return "already-fired"
    return "cancelled" if version > over else "not-found"
