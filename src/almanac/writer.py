"""Transactions on Kafka for one shard or duty: one transactional id, a new producer after any doubt (rules 1, 6, 8)."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import ResourceType

from almanac import errors, kafka, ports, topics
from almanac.outgoing import Outgoing
from almanac.settings import Settings

log = logging.getLogger("almanac.writer")

ANSWER = 10.0  # seconds that a call may take
TRIES = 5  # within them, to reach Kafka at all
SLOW = 1.0  # seconds after which even a good answer to commit or abort is doubted (KAFKA-17754)
COUNTED = 60.0  # seconds for which a target's number of partitions is believed
GAPS = 3  # more tries of a transaction that is refused for what another left behind
BATCH, BATCH_BYTES = 10_000, 1_000_000  # records; a broker takes no larger batch by default
PATIENCE = 3.0  # seconds that records may be on their way before Kafka is asked whether it is there at all
LOOK = 0.25  # seconds after which a transaction that is still on its way is looked at

# Errors that are the message's own: nothing but another message would help.
_MESSAGE = {
    KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION,
    KafkaError.TOPIC_EXCEPTION, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.INVALID_MSG,
    KafkaError.INVALID_RECORD, KafkaError.POLICY_VIOLATION, KafkaError._INVALID_ARG,
}  # fmt: skip
_SIZE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_MSG_SIZE}
_TIMEOUT = {
    KafkaError._MSG_TIMED_OUT, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND, KafkaError.KAFKA_STORAGE_ERROR,
}  # fmt: skip
_FENCED = {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}
# The abort of the others' fault, or the transaction's: says nothing of this message.
_BYSTANDER = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}


class KafkaWriter:
    """See ports.Writer."""

    def __init__(
        self, settings: Settings, transactional_id: str, broker_max_bytes: int, consumer: Consumer | None = None
    ) -> None:
        self._doubt: str | None = None
        self._known_topic = settings.shard_topic
        self._admin = kafka.admin_client(settings)
        self._config = kafka.producer(
            settings,
            transactional_id=transactional_id,
            transaction_timeout_ms=settings.transaction_timeout_ms,
            message_timeout_ms=max(5_000, settings.transaction_timeout_ms - 5_000),
            # rule 8: an unknown target is told apart long before the transaction's time-out
            topic_metadata_propagation_max_ms=700,
            message_max_bytes=broker_max_bytes + (1 << 20),  # rule 9: the broker decides, not the client
            # What is held leaves with a flush, or when a batch is full: none of it is, and the linger is longer. For
            # the others it means few, large requests: each transaction ends with a flush.
            linger_ms=3 * ports.HOLD,
            batch_size=BATCH_BYTES,
            batch_num_messages=BATCH,
            queue_buffering_max_messages=2_000_000,
            queue_buffering_max_kbytes=1 << 20,
            error_cb=self._hear,
        )
        self._consumer = consumer  # whose group the marks belong to
        self._counts: dict[str, tuple[int, float]] = {}  # partitions of targets, and when that was asked
        self._producer: Producer | None = None
        self._produce: Callable[..., None] = self._nobody

    @staticmethod
    def _nobody(*_: object, **__: object) -> None:
        raise ports.Unavailable("no producer: it was given up after an unclear answer")

    def _hear(self, error: KafkaError) -> None:
        # rule 6: a transport error while a transaction ends leaves its answer in doubt
        self._doubt = error.str()
        log.debug("producer: %s", error.str())

    def close(self) -> None:
        """Lets the producer go without waiting."""
        if self._producer is not None:
            self._producer.purge()
            self._producer = None
            self._produce = self._nobody

    def renew(self) -> None:
        """See ports.Writer."""
        self.close()
        try:
            producer = Producer(self._config)
            # A producer that has asked for metadata initialises in 3 ms instead of up to 500.
            self._reach(producer)
            producer.init_transactions(ANSWER)
        except KafkaException as error:
            raise _unsettled(error) from error
        self._doubt = None
        self._producer = producer
        self._produce = producer.produce

    def _reach(self, producer: Producer) -> None:
        # While one question waits librdkafka does not connect again: several short ones see Kafka's return sooner.
        for left in range(TRIES, 0, -1):
            try:
                producer.list_topics(self._known_topic, timeout=ANSWER / TRIES)
                return
            except KafkaException:
                if left == 1:
                    raise

    def begin(self) -> None:
        """See ports.Writer."""
        try:
            self._current.begin_transaction()
        except KafkaException as error:
            raise _unsettled(error) from error

    def send(self, records: Iterable[Outgoing], stamped: bool = False) -> None:
        """See ports.Writer."""
        produce = self._produce
        for out in records:
            topic, partition, key, value, headers, timestamp = out
            try:
                # no delivery callback on the fast path: the commit reports failures
                produce(topic, value, key, partition, headers=headers, timestamp=timestamp if stamped else 0)
            except BufferError:
                self.flush()
                self.send([out], stamped)
            except KafkaException as error:
                raise _refused(error) from error

    def flush(self) -> None:
        """See ports.Writer."""
        # commit_transaction() flushes too; done before it, a slow answer to the commit itself can be told (rule 6).
        # Records that only their own partition holds up time out, and are told apart (rule 8).
        producer = self._current
        asked = time.monotonic()
        try:
            while producer.flush(LOOK):
                self._stands(producer)
                if time.monotonic() - asked > PATIENCE:
                    producer.list_topics(self._known_topic, timeout=PATIENCE)
                    asked = time.monotonic()
        except KafkaException as error:
            raise _unsettled(error, "Kafka does not answer: ") from error

    @staticmethod
    def _stands(producer: Producer) -> None:
        # Of a transaction that must be aborted librdkafka may keep records until they time out: they wait for the abort
        # (a refused batch left a gap in the sequence), and the abort would wait for them. A second begin tells: it is
        # never taken, and names what is wrong with the first.
        try:
            producer.begin_transaction()
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE:  # that one stands: it is still open
                raise _refused_or_unsettled(error) from error

    def hold(self, records: Sequence[Outgoing]) -> Sequence[Outgoing]:
        """See ports.Writer."""
        if len(records) >= BATCH or sum(map(_size, records)) >= BATCH_BYTES:
            return records
        for number, (topic, partition, key, value, headers, timestamp) in enumerate(records):
            try:
                self._produce(topic, value, key, partition, headers=headers, timestamp=timestamp)
            except BufferError:
                return records[number:]
            except KafkaException as error:
                raise _refused(error) from error
        return ()

    def commit(self, marks: Mapping[ports.Source, ports.Mark] | None = None) -> None:
        """See ports.Writer."""
        self.flush()
        self._mark(marks or {})
        self._end(self._current.commit_transaction)

    def abort(self) -> None:
        """See ports.Writer."""
        try:
            self._end(self._current.abort_transaction)
        except ports.Refused as error:
            raise ports.Unavailable(str(error)) from error

    def attempt(
        self, records: Sequence[Outgoing], marks: Mapping[ports.Source, ports.Mark] | None = None
    ) -> dict[int, ports.Fault]:
        """See ports.Writer."""
        faults = self._attempt(records, marks)
        for _ in range(GAPS):
            # A refused batch has used up its sequence numbers, and librdkafka goes on behind them: the next transaction
            # is refused for the gap. Aborting that one mends it.
            if not faults or any(fault.kind != "gap" for fault in faults.values()):
                break
            faults = self._attempt(records, marks)
        return faults

    def _attempt(
        self, records: Sequence[Outgoing], marks: Mapping[ports.Source, ports.Mark] | None
    ) -> dict[int, ports.Fault]:
        faults: dict[int, ports.Fault] = {}

        def watch(number: int) -> Any:
            def told(error: KafkaError | None, _: Message) -> None:
                if error is not None and error.code() not in _BYSTANDER:
                    faults[number] = _fault(error)

            return told

        self.begin()
        for number, (topic, partition, key, value, headers, timestamp) in enumerate(records):
            more: dict[str, Any] = {"headers": headers, "on_delivery": watch(number), "timestamp": timestamp}
            if partition >= 0:
                more["partition"] = partition
            try:
                try:
                    self._current.produce(topic, value, key, **more)
                except BufferError:
                    self.flush()
                    self._current.produce(topic, value, key, **more)
            except ports.Refused:
                break
            except KafkaException as error:
                if error.args[0].code() in _FENCED or error.args[0].fatal():
                    raise _unsettled(error) from error
                if error.args[0].code() != KafkaError._STATE:  # that is an earlier record's fault, and told of it
                    faults[number] = _fault(error.args[0])
        try:
            self.flush()
        except ports.Refused as error:
            log.debug("records held up: %s", error)  # the fault is known by now, or the commit will name it
        if not faults:
            try:
                self._mark(marks or {})
                self._end(self._current.commit_transaction)
            except ports.Refused as error:
                cause = error.__cause__
                faults[-1] = _fault(cause.args[0]) if isinstance(cause, KafkaException) else ports.Fault("other", "")
        if faults:
            self.abort()
        return faults

    def _mark(self, marks: Mapping[ports.Source, ports.Mark]) -> None:
        if not marks or self._consumer is None:
            return
        read = [TopicPartition(*source, mark.offset, mark.topic_id) for source, mark in marks.items()]
        try:
            self._current.send_offsets_to_transaction(read, self._consumer.consumer_group_metadata(), ANSWER)
        except KafkaException as error:
            raise _refused_or_unsettled(error) from error

    def partitions(self, topic: str) -> int:
        """See ports.Writer."""
        count, asked = self._counts.get(topic, (0, -COUNTED))
        if time.monotonic() - asked > COUNTED:
            try:
                known = self._current.list_topics(topic, timeout=ANSWER).topics.get(topic)
            except KafkaException as error:
                raise _unsettled(error) from error
            count = len(known.partitions) if known is not None else 0
            self._counts[topic] = (count, time.monotonic())
        return max(1, count)

    def offline(self, topic: str) -> bool:
        """See ports.Writer."""
        try:
            known = self._current.list_topics(topic, timeout=ANSWER).topics.get(topic)
        except KafkaException as error:
            raise _unsettled(error) from error
        if known is None:
            return False
        needed = self._in_sync_needed(topic)  # a topic with fewer replicas than that needs them all
        return any(p.leader < 0 or len(p.isrs) < min(needed, len(p.replicas)) for p in known.partitions.values())

    def _in_sync_needed(self, topic: str) -> int:
        try:
            found = topics.configs(self._admin, ResourceType.TOPIC, [topic])[topic]
        except errors.AlmanacError as error:
            log.debug("%s", error)  # not allowed to ask, or not there: then a try will tell
            return 0
        return int(found.get("min.insync.replicas") or 0)

    @property
    def _current(self) -> Producer:
        if self._producer is None:
            raise ports.Unavailable("no producer: it was given up after an unclear answer")
        return self._producer

    def _end(self, call: Any) -> None:
        self._doubt = None
        begun = time.monotonic()
        try:
            call(ANSWER)
        except KafkaException as error:
            raise _refused_or_unsettled(error) from error
        took = time.monotonic() - begun
        if took > SLOW or self._doubt:
            raise ports.Unavailable(self._doubt or f"the answer took {took:.1f} s")


def _fault(error: KafkaError) -> ports.Fault:
    code = error.code()
    kinds = {"message": _MESSAGE, "size": _SIZE, "time-out": _TIMEOUT, "gap": {KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER}}
    kind = next((kind for kind, codes in kinds.items() if code in codes), "other")
    return ports.Fault(kind, error.str())


def _size(out: Outgoing) -> int:
    """What it takes in a batch, or a little more."""
    headers = sum(len(name) + len(value or b"") + 10 for name, value in out.headers)
    return len(out.key or b"") + len(out.value or b"") + headers + 50


def _refused(error: KafkaException) -> Exception:
    """Why a record was not taken."""
    if error.args[0].code() == KafkaError._STATE:  # rule 8: an earlier record was refused meanwhile
        return ports.Refused(error.args[0].str())
    return _refused_or_unsettled(error)


def _refused_or_unsettled(error: KafkaException) -> Exception:
    reason = error.args[0]
    if reason.code() in _FENCED or reason.fatal():
        return ports.Fenced(reason.str())
    if reason.txn_requires_abort() or reason.code() in _MESSAGE | _SIZE:
        return ports.Refused(reason.str())
    return ports.Unavailable(reason.str())


def _unsettled(error: KafkaException, prefix: str = "") -> ports.Unsettled:
    reason = error.args[0]
    if reason.code() in _FENCED or reason.fatal():
        return ports.Fenced(reason.str())
    return ports.Unavailable(prefix + reason.str())
