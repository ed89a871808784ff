"""Client configurations: the settings as librdkafka wants them, and as Java (Spark's Kafka source) wants them.

The YAML file speaks librdkafka. Spark's source runs Java's client, so the same keys are translated for it; what has no
counterpart there is named by `untranslated()`.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from almanac import errors, passthrough
from almanac.settings import Settings

log = logging.getLogger(__name__)

QUIET_SECONDS: Final = 30.0
"""While Kafka is away librdkafka says the same many times a second: it is logged once in that time."""

ANSWER_SECONDS: Final = 10.0
"""How long a one-shot command waits for Kafka."""

Answer = TypeVar("Answer")

_AWAY: Final = (
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError._MSG_TIMED_OUT,
    # a broker answers, and says that it cannot just now
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NOT_CONTROLLER,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
)


class Seldom(logging.Filter):
    """Lets a message pass if none like it (but for numbers) has passed lately."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._passed: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Says whether it passes."""
        text, now = re.sub(r"\d+", "#", record.getMessage()), self._clock()
        if now - self._passed.get(text, -QUIET_SECONDS) < QUIET_SECONDS:
            return False
        if len(self._passed) >= 1_000:
            self._passed.clear()
        self._passed[text] = now
        return True


log.addFilter(Seldom())


def _report(error: KafkaError) -> None:
    """librdkafka reconnects by itself: what it reports here is worth a line, never an exception."""
    level = logging.ERROR if error.fatal() or error.code() == KafkaError._AUTHENTICATION else logging.WARNING
    log.log(level, "kafka: %s", error.str())


def _client(settings: Settings, section: dict[str, str], ours: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """What people pass through, then what the protocol decides, then what the caller needs."""
    base: dict[str, Any] = {
        "client.id": settings.group_id,
        "error_cb": _report,
        "logger": log,
        # When Kafka comes back nobody should wait for the client's patience (10 s and 60 s by default), nor for the
        # answer to a greeting that was lost in the queue of a broker which did not accept connections (10 s), nor for
        # the next knock on a door whose queue was full (30 s, with pauses of up to 16 s between two knocks).
        "reconnect.backoff.max.ms": 1_000,
        "socket.timeout.ms": 10_000,
        "socket.connection.setup.timeout.ms": 4_000,
        "api.version.request.timeout.ms": 2_500,
    }
    named = {key if key.endswith("_cb") or key == "logger" else key.replace("_", "."): over[key] for key in over}
    servers = {"bootstrap.servers": settings.bootstrap_servers}
    given = {**base, **settings.kafka_common, **section, **servers, **ours}
    # librdkafka takes them in this order: a second name of one of the caller's (`queue.buffering.max.ms`) comes before.
    return {key: value for key, value in given.items() if key not in named} | named


def producer(settings: Settings, **over: Any) -> dict[str, Any]:
    """For `Producer`: idempotent, acks=all. `over` takes librdkafka keys with _ for dots: `transactional_id=...`."""
    ours = {"enable.idempotence": True, "acks": "all", "partitioner": settings.partitioner}
    return _client(settings, settings.kafka_producer, ours, over)


def consumer(settings: Settings, **over: Any) -> dict[str, Any]:
    """For `Consumer`: committed records only, commits nothing, never jumps to another offset, shows the end."""
    ours = {
        "group.id": settings.group_id,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
    }
    return _client(settings, settings.kafka_consumer, ours, over)


def admin(settings: Settings, **over: Any) -> dict[str, Any]:
    return _client(settings, {}, {}, over)


def admin_client(settings: Settings) -> AdminClient:
    return AdminClient(admin(settings))


def verify(settings: Settings) -> None:
    """Has librdkafka itself look at what is passed through: unknown keys, wrong values, missing certificates."""
    problems = []
    trials: tuple[tuple[str, dict[str, str], Callable[[dict[str, Any]], Any]], ...] = (
        ("kafka_common", {}, AdminClient),
        ("kafka_producer", settings.kafka_producer, Producer),
        ("kafka_consumer", {"group.id": "-", **settings.kafka_consumer}, Consumer),
    )
    for field, section, make in trials:
        if not getattr(settings, field):
            continue
        try:
            # No servers: nothing is connected, so this costs a millisecond.
            client = make({**settings.kafka_common, **section, "error_cb": _report, "logger": log})
        except KafkaException as error:
            kafka_error = error.args[0]
            text = kafka_error.str() if isinstance(kafka_error, KafkaError) else str(kafka_error)
            problems.append((passthrough.SECTIONS[field], "...", f"librdkafka refuses it: {text}"))
            if field == "kafka_common":
                break  # the others would only repeat it
        else:
            if isinstance(client, Consumer):
                client.close()
    if problems:
        raise errors.SettingsError(problems)


def answer(future: Future[Answer], what: str, timeout: float = ANSWER_SECONDS + 5) -> Answer:
    """The result of an admin request; an error of ours if Kafka is away."""
    try:
        return future.result(timeout)
    except TimeoutError:
        raise errors.Unreachable(f"{what}: Kafka did not answer within {timeout:.0f} s") from None
    except KafkaException as error:
        raise explained(error, what) from error


def is_end(message: Message) -> bool:
    """Whether this is no record, but the news that its partition ends here."""
    error = message.error()
    return error is not None and error.code() == KafkaError._PARTITION_EOF


def explained(error: KafkaException, what: str) -> errors.AlmanacError:
    """A librdkafka error as one of ours."""
    kafka_error = error.args[0]
    if isinstance(kafka_error, KafkaError) and kafka_error.code() in _AWAY:
        return errors.Unreachable(
            f"{what}: Kafka does not answer ({kafka_error.str()}). Is it up, and does BOOTSTRAP_SERVERS name it?"
        )
    text = kafka_error.str() if isinstance(kafka_error, KafkaError) else str(kafka_error)
    return errors.AlmanacError(f"{what}: {text}")


# Java

_SAME: Final = (
    "client.id", "client.rack", "client.dns.lookup", "sasl.kerberos.service.name", "ssl.key.password",
    "ssl.keystore.location", "ssl.keystore.password", "fetch.min.bytes", "fetch.max.bytes", "max.partition.fetch.bytes",
    "session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms", "reconnect.backoff.ms",
    "reconnect.backoff.max.ms", "retry.backoff.ms", "retry.backoff.max.ms", "socket.connection.setup.timeout.ms",
    "connections.max.idle.ms", "metadata.max.age.ms", "allow.auto.create.topics", "check.crcs",
)  # fmt: skip
_RENAMED: Final = {
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "socket.timeout.ms": "request.timeout.ms",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
}
_LOGIN: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_HANDLED: Final = (
    "security.protocol", "sasl.mechanisms", "sasl.mechanism", "sasl.username", "sasl.password", "ssl.ca.location",
    "ssl.certificate.location", "ssl.key.location", "ssl.endpoint.identification.algorithm",
    # What the reader of the book says itself
    "isolation.level", "enable.auto.commit", "enable.auto.offset.store", "auto.offset.reset", "enable.partition.eof",
)  # fmt: skip


def java(settings: Settings) -> dict[str, str]:
    """Options for Spark's Kafka source: `spark.readStream.format("kafka").options(**kafka.java(settings))`."""
    given = {**settings.kafka_common, **settings.kafka_consumer}
    java = {key: value for key, value in given.items() if key in _SAME}
    java |= {_RENAMED[key]: value for key, value in given.items() if key in _RENAMED}
    java |= _java_sasl(given) | _java_tls(given)
    java |= {"bootstrap.servers": settings.bootstrap_servers, "isolation.level": "read_committed"}
    return {f"kafka.{key}": value for key, value in java.items()}


def untranslated(settings: Settings) -> list[str]:
    """Passed-through keys that Spark's Kafka source does without; worth a warning."""
    known = {*_SAME, *_RENAMED, *_HANDLED}
    return [key for key in {**settings.kafka_common, **settings.kafka_consumer} if key not in known]


def _java_sasl(given: dict[str, str]) -> dict[str, str]:
    java: dict[str, str] = {}
    protocol = given.get("security.protocol", "").upper()
    if protocol:
        java["security.protocol"] = protocol
    if not protocol.startswith("SASL"):
        return java
    mechanism = given.get("sasl.mechanisms", given.get("sasl.mechanism", "GSSAPI"))
    if mechanism not in _LOGIN:
        reason = f"must be one of {', '.join(_LOGIN)}: Spark's Kafka source is set up for these"
        raise errors.SettingsError([("sasl.mechanisms", mechanism, reason)])
    name, password = (_quoted(given.get(key, "")) for key in ("sasl.username", "sasl.password"))
    return java | {
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"{_LOGIN[mechanism]} required username={name} password={password};",
    }


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _java_tls(given: dict[str, str]) -> dict[str, str]:
    java: dict[str, str] = {}
    if "ssl.ca.location" in given:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": given["ssl.ca.location"]}
    elif "ssl.ca.pem" in given:
        java["ssl.truststore.type"] = "PEM"
    if "ssl.keystore.location" in given:
        java["ssl.keystore.type"] = "PKCS12"
    elif "ssl.certificate.pem" in given or "ssl.certificate.location" in given:
        java["ssl.keystore.type"] = "PEM"
    # Java takes key and certificate from one PEM file or inline; librdkafka has two files.
    for key, name in (("ssl.certificate.location", "ssl.keystore.certificate.chain"),
                      ("ssl.key.location", "ssl.keystore.key")):  # fmt: skip
        if key in given:
            java[name] = _pem(key, given[key])
    if "ssl.endpoint.identification.algorithm" in given:
        algorithm = given["ssl.endpoint.identification.algorithm"]
        java["ssl.endpoint.identification.algorithm"] = "" if algorithm == "none" else algorithm
    return java


def _pem(key: str, path: str) -> str:
    try:
        text = Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise errors.SettingsError([(key, path, f"must be a readable PEM file: {error}")]) from None
    if "BEGIN RSA PRIVATE KEY" in text or "BEGIN EC PRIVATE KEY" in text:
        reason = "must be a PKCS#8 key for Spark: openssl pkcs8 -topk8 -nocrypt -in OLD -out NEW"
        raise errors.SettingsError([(key, path, reason)])
    return text
