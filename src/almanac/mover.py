"""Brings records into a native topic exactly once, also if it is killed in the middle and run again.

    fence     one transactional id for each native topic: an earlier mover that still runs is shut out, and what it left
              open is aborted
    markers   read to their end: how far each source was brought over
    write     a batch and the marker behind it, in one transaction: both are there, or neither

Markers live in a compacted topic beside the native one, `<topic>-moves`, and not in a consumer group: a group's offsets
expire after a week without members, and whoever ran the same command again then would bring everything twice.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import ResourceType

from almanac import errors, formats, kafka, scan, topics, words
from almanac.native import Native
from almanac.record import Record
from almanac.settings import Settings

BATCH = 1_000  # records of a transaction
BATCH_BYTES = 4 << 20
SHARE = 0.9  # of the largest record: the rest is for what Kafka adds
ANSWER = 30.0  # seconds

Marker = dict[str, Any]

_FENCED = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)


class Spoken(NamedTuple):
    """What users last said of an id in the native topic."""

    timestamp: int  # epoch ms
    waits: bool  # it was a schedule, and it has not fired


def destination(settings: Settings, topic: str | None) -> str:
    """The native schedules topic of that name, or the first one. Raises UsageError."""
    known = [name for name, form in settings.sources if form in formats.NATIVE]
    if topic is None and known:
        return known[0]
    if topic not in known:
        which = f"--to-topic {topic!r} is none" if topic is not None else "there is none"
        raise errors.UsageError(
            "a native schedules topic is needed, one of SCHEDULES_TOPICS with the format "
            f"{' or '.join(formats.NATIVE)}: {which} ({', '.join(known) or 'no such topic'})"
        )
    return topic


class Mover:
    """Writes into one native topic."""

    def __init__(self, settings: Settings, topic: str) -> None:
        self.topic, self.log = topic, f"{topic}-moves"
        self._settings = settings
        self._admin = kafka.admin_client(settings)
        self._producer: Producer | None = None
        found = topics.topic_ids(self._admin, [topic])
        if topic not in found:
            raise errors.UsageError(f"the topic {topic} does not exist; `almanac topics apply` creates it")
        self.topic_id = found[topic]
        values = topics.configs(self._admin, ResourceType.TOPIC, [topic])[topic]
        if values.get("message.timestamp.type") == "LogAppendTime":
            raise errors.UsageError(
                f"the topic {topic} has message.timestamp.type=LogAppendTime: schedules could not keep the time at "
                "which they were written, and overdue ones would be refused. Set it to CreateTime"
            )
        self._largest = int(values.get("max.message.bytes") or topics.MESSAGE_BYTES)

    def fits(self, record: Native) -> bool:
        """Does the native topic take a record of that size?"""
        return record.size() <= SHARE * self._largest

    def markers(self) -> dict[str, Marker]:
        """How far each source was brought into this topic; of one made anew under the same name, nothing."""
        sources = scan.partitions(self._admin, [self.log])
        found: dict[str, Marker] = {}
        for record in scan.read(self._settings, {}, scan.ends(self._admin, sources), lambda _: True):
            whose, _, name = (record.key or b"").decode(errors="replace").partition(" ")
            if whose == self.topic_id and record.value:
                found[name] = json.loads(record.value)
        return found

    def spoken(self, ids: set[bytes]) -> dict[bytes, Spoken]:
        """What users have said of these ids in the native topic itself, our own acknowledgements apart."""
        form = formats.named("auto", self._settings.schedule_grace_interval * 1000)
        sources = scan.partitions(self._admin, [self.topic])
        stops = scan.ends(self._admin, sources)
        found: dict[bytes, Spoken] = {}
        versions: dict[bytes, int] = {}
        for record in scan.read(self._settings, {}, stops, lambda message: message.key() in ids):
            said, name = words.read(record, form, self.topic_id), record.key or b""
            if isinstance(said, words.Word) and said.version >= versions.get(name, -1):
                versions[name], found[name] = said.version, Spoken(said.record.timestamp, True)
            elif isinstance(said, words.Kill) and said.version >= versions.get(name, -1):
                if not (said.ours and _acknowledges(record)):
                    found[name] = Spoken(record.timestamp, False)
                elif name in found:  # it fired; nobody has said anything since
                    found[name] = found[name]._replace(waits=False)
        return found

    # Writing

    def fence(self) -> None:
        """Shuts earlier movers out, and returns when everything that was committed can be read.

        A commit is answered before its records can be read: only initialising anew waits for that. So `markers` and
        `spoken` may be relied on after this, and not after `write`.
        """
        marker = topics.TopicSpec(
            name=self.log, purpose="moves", partitions=1, replication_factor=self._settings.replication_factor,
            configs={"cleanup.policy": "compact"},
        )  # fmt: skip
        if self.log not in topics.descriptions(self._admin, [self.log]):
            topics.apply(self._admin, [topics.Change(spec=marker, kind="create")])
        config = kafka.producer(
            self._settings, transactional_id=self.log, transaction_timeout_ms=self._settings.transaction_timeout_ms,
            message_max_bytes=self._largest,
        )  # fmt: skip
        self.close()
        try:
            self._producer = Producer(config)
            self._producer.init_transactions(ANSWER)
        except KafkaException as error:
            raise kafka.explained(error, f"taking over {self.log}") from error

    def write(self, records: Sequence[Native], name: str, marker: Marker) -> None:
        """The records and the marker, in one transaction. An error leaves both out, or (unclear) both in."""
        if self._producer is None:
            raise errors.AlmanacError("the mover is not fenced yet")
        refused: list[str] = []

        def told(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                refused.append(error.str())

        producer = self._producer
        try:
            producer.begin_transaction()
            for key, value, headers, timestamp in records:
                producer.produce(self.topic, value, key, headers=list(headers), timestamp=timestamp, on_delivery=told)
            text = json.dumps(marker, separators=(",", ":")).encode()
            producer.produce(self.log, text, f"{self.topic_id} {name}".encode(), 0, on_delivery=told)
            producer.commit_transaction(ANSWER)
        except KafkaException as error:
            if error.args[0].code() in _FENCED:
                raise errors.AlmanacError(
                    f"another command that brings schedules into {self.topic} has taken over: this one ends"
                ) from error
            known = kafka.explained(error, f"writing into {self.topic}")
            why = f" ({refused[0]})" if refused else ""
            raise type(known)(f"{known}{why} Run the command again: it goes on where it stood") from error

    def close(self) -> None:
        """Lets the producer go."""
        if self._producer is not None:
            self._producer.purge()
            self._producer = None


def _acknowledges(record: Record) -> bool:
    return any(name == words.ACKS for name, _ in record.headers)


class Batch:
    """Records that go in one transaction."""

    def __init__(self) -> None:
        self.records: list[Native] = []
        self._bytes = 0

    def add(self, record: Native) -> bool:
        """Takes the record; true if it is full now."""
        self.records.append(record)
        self._bytes += record.size()
        return len(self.records) >= BATCH or self._bytes >= BATCH_BYTES

    def clear(self) -> None:
        self.records, self._bytes = [], 0
