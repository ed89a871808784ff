"""The settings: names, defaults, limits, and where each value came from.

A value is looked up in the arguments of the command, then the environment, then the YAML file, then the default:

    SCHEDULES_TOPICS=schedules,invoices=etf1 CONFIGURATION_FILE=kafka.yaml almanac run --group-id billing

`Settings.load()` reads all of these. `Settings(...)` and `Settings.from_json()` read nothing but what they are given,
so that a Spark task gets exactly the driver's settings.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, Self
from urllib.parse import unquote, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)

from almanac import errors, formats, passthrough

PARTITIONERS: Final = (
    "murmur2_random", "murmur2", "consistent_random", "consistent", "fnv1a_random", "fnv1a", "random",
)  # fmt: skip
SIZE_MARGIN: Final = 65_536
"""Bytes that history and dead letters take on top of the schedules topics' records (rule 9)."""

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_BYTES: Final = {"b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}


class TopicFormat(NamedTuple):
    """A schedules topic and the wire format of its records."""

    topic: str
    format: str = "auto"


class Address(NamedTuple):
    """Where a server listens; an empty host means every interface."""

    host: str
    port: int


def is_topic(name: str) -> bool:
    """Whether Kafka accepts this as a topic's name."""
    return formats.legal_topic(name.encode()) is not None


def address(text: str) -> Address:
    """`:8001`, `host:8001` or `[::1]:8001`."""
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not port.isdecimal() or int(port) > 65_535 or (":" in host and bare == host) or " " in text:
        raise ValueError("no address")
    return Address(bare, int(port))


def _split(value: object) -> object:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def _topic_formats(value: object) -> object:
    parts = _split(value)
    if not isinstance(parts, list | tuple):
        raise ValueError("no list")
    found = []
    for part in parts:
        topic, _, name = part.partition("=") if isinstance(part, str) else (part[0], "=", part[1])
        found.append(TopicFormat(topic.strip(), name.strip() or "auto"))
    names = [topic for topic, _ in found]
    if not found or len(set(names)) < len(names):
        raise ValueError("none, or one twice")
    if not all(is_topic(topic) and name in (*formats.NAMES, formats.BRIDGED) for topic, name in found):
        raise ValueError("no topic name, or no format")
    return tuple(found)


def _bootstrap(value: object) -> object:
    servers = _split(value)
    if not isinstance(servers, list | tuple) or not servers:
        raise ValueError("none")
    for server in servers:
        if not all(address(server.rpartition("://")[2])):
            raise ValueError("host or port missing")
    return ",".join(servers)


def _measure(units: dict[str, int]) -> BeforeValidator:
    def read(value: object) -> object:
        if not isinstance(value, str):
            return value
        match = re.fullmatch(r"\s*(\d+)\s*([A-Za-z]*)\s*", value)
        if match is None or (match[2] and match[2].lower() not in units):
            raise ValueError("no number, or an unknown unit")
        return int(match[1]) * units.get(match[2].lower(), 1)

    return BeforeValidator(read)


def _checked(test: Any) -> AfterValidator:
    def check(value: str) -> str:
        if not test(value):
            raise ValueError("not allowed")
        return value

    return AfterValidator(check)


def _is_url(place: str) -> bool:
    return "://" in place or place.startswith("file:")


def _names_states(name: str) -> bool:
    return name == "" or ("{topic}" in name and is_topic(name.replace("{topic}", "x")))


def _librdkafka(value: object) -> object:
    return {str(k): passthrough.text(v) for k, v in value.items()} if isinstance(value, dict) else value


Topic = Annotated[str, _checked(is_topic)]
TopicOrOff = Annotated[str, _checked(lambda name: name == "" or is_topic(name))]
# What follows # or ? is no part of a place: some of the libraries below would drop it, others would not.
Place = Annotated[str, _checked(lambda place: not (_is_url(place) and set(place) & set("#?")))]
# a bare port: how PROMETHEUS_SCRAPING_ENDPOINT_PORT is written
Listen = Annotated[
    str, BeforeValidator(lambda v: f":{v}" if str(v).isdecimal() else v), _checked(lambda v: v == "" or address(v))
]
Seconds = Annotated[int, _measure(_SECONDS)]
Milliseconds = Annotated[int, _measure({"ms": 1, "s": 1000})]
Bytes = Annotated[int, _measure(_BYTES)]
Names = Annotated[tuple[str, ...], BeforeValidator(_split)]
Librdkafka = Annotated[dict[str, str], BeforeValidator(_librdkafka)]
_LEVELS = {"WARN": "WARNING", "TRACE": "DEBUG", "FATAL": "ERROR", "PANIC": "ERROR"}  # as the peers call them
Level = Annotated[
    Literal["DEBUG", "INFO", "WARNING", "ERROR"],
    BeforeValidator(lambda v: _LEVELS.get(v.upper(), v.upper()) if isinstance(v, str) else v),
]


def _field(
    default: object, about: str, allowed: str, *, environment: tuple[str, ...] = (), hidden: bool = False, **limits: Any
) -> Any:
    """A field with the sentence that `almanac config` shows and the one that a refused value gets."""
    extra: dict[str, Any] = {"allowed": allowed, "environment": list(environment)}
    return Field(default, description=about, json_schema_extra=extra, repr=not hidden, **limits)


class Settings(BaseModel):
    """What the scheduler is told. Immutable; `replaced()` gives a changed copy."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # The peer's names (etf1)
    bootstrap_servers: Annotated[str, BeforeValidator(_bootstrap)] = _field(
        "localhost:9092",
        "Kafka to connect to",
        "host:port, several separated by commas",
        environment=("BOOTSTRAP_SERVERS", "KAFKA_BROKERS"),
    )
    schedules_topics: Annotated[tuple[TopicFormat, ...], BeforeValidator(_topic_formats)] = _field(
        (TopicFormat("schedules"),),
        "where schedules are read from",
        "topics separated by commas, none twice, each `topic` or `topic=format`; formats: "
        + ", ".join((*formats.NAMES, formats.BRIDGED)),
    )
    since_delta: int | None = _field(
        None,
        "how many days back, from its start, missed schedules still fire (0: since the start of that day; unset: all)",
        "0 or a negative number of days, -1 is yesterday",
        le=0,
        ge=-36_500,
    )
    group_id: Annotated[str, _checked(is_topic)] = _field(
        "scheduler-cg",
        "the scheduler's name: transactional ids, shard topic and book derive from it",
        "1 to 200 of the characters a-z A-Z 0-9 . _ - (a topic is named after it)",
        max_length=200,
        environment=("GROUP_ID", "CONSUMER_GROUP_ID"),
    )
    metrics_http_addr: Listen = _field(
        "127.0.0.1:8001",
        "where metrics are served, at /metrics",
        "host:port, :port for every interface, or empty for none",
        environment=("METRICS_HTTP_ADDR", "METRICS_ADDR", "PROMETHEUS_SCRAPING_ENDPOINT_PORT"),
    )
    server_addr: Listen = _field(
        "127.0.0.1:8000",
        "where the REST interface and the page are served",
        "host:port, :port for every interface, or empty for none",
    )
    history_topic: TopicOrOff = _field("history", "gets a copy of all that fires", "a topic's name, or empty for none")
    schedule_grace_interval: Seconds = _field(
        0,
        "seconds a schedule may be past its time when it arrives",
        "seconds from 0, or 30s, 5m, 1h",
        ge=0,
        le=315_360_000,
    )
    configuration_file: str | None = _field(None, "YAML file with settings", "the path of a readable YAML file")

    # Topics
    dead_letters_topic: Topic = _field("dead-letters", "gets what cannot be delivered, and why", "a topic's name")
    states_topic: Annotated[str, _checked(_names_states)] = _field(
        "{topic}_states",
        "where the state of each partition of a karafka topic is told, and how many are due on which day",
        "a topic's name with {topic} in it, for the name of the schedules topic, or empty for none",
    )
    topic_partitions: int = _field(3, "partitions of the topics made here", "1 to 10000", ge=1, le=10_000)
    replication_factor: int | None = _field(
        None, "replicas of the topics made here (unset: the broker's default)", "1 to 32767", ge=1, le=32_767
    )
    retention_days: int = _field(
        7, "days that history and dead letters are kept (-1: for ever)", "-1 or 1 to 36500 days", ge=-1, le=36_500
    )
    fired_retention_days: int = _field(
        7, "days that the table of what fired is kept (-1: for ever)", "-1 or 1 to 36500 days", ge=-1, le=36_500
    )
    partitioner: Literal[PARTITIONERS] = _field(  # type: ignore[valid-type]
        "murmur2_random", "who schedules and cancels an id must use the same one", "one of " + ", ".join(PARTITIONERS)
    )

    # The REST interface
    api_token: Annotated[str, _checked(lambda token: token.isascii() and not set(token) & set(" \t\r\n"))] = _field(
        "",
        "whoever asks must send it (Authorization: Bearer ...); empty: nobody needs one",
        "ASCII without spaces, 16 characters or more",
        hidden=True,
    )
    hide_payloads: bool = _field(False, "values and headers of messages are not shown to anybody", "true or false")
    api_max_body: Bytes = _field(
        1 << 20, "bytes of a request that are taken", "1 KiB to 100 MiB, such as 1MiB", ge=1 << 10, le=100 << 20
    )
    api_max_page: int = _field(1000, "rows of one answer", "1 to 10000", ge=1, le=10_000)
    api_rate: int = _field(
        100, "requests a second that one address may send (0: no limit)", "0 to 100000", ge=0, le=100_000
    )

    # Timers
    bridge_topic: TopicOrOff = _field(
        "",
        "the schedules topic to which timer requests are bridged (empty: the first native one)",
        "one of SCHEDULES_TOPICS in a native format (auto, etf1)",
    )
    bridge_from: Literal["latest", "earliest"] = _field(
        "latest",
        "where the bridge begins in a request topic that it has never read: only new requests, or all",
        "latest or earliest",
    )
    oscillator_topic: TopicOrOff = _field(
        "", "gets one record a second: the key is the second, the value 1", "a topic's name, or empty for none"
    )

    # The engine
    page_length: Seconds = _field(300, "seconds of due times in a page", "1 s to 1 d", ge=1, le=86_400)
    shards: int | None = _field(
        None, "wheels side by side (unset: one per core, at most one per source partition)", "1 to 1000", ge=1, le=1000
    )
    fires_per_transaction: int = _field(4000, "messages fired in one transaction", "1 to 100000", ge=1, le=100_000)
    transaction_bytes: Bytes = _field(
        16 << 20, "bytes fired in one transaction", "1 MiB to 1 GiB, such as 16MiB", ge=1 << 20, le=1 << 30
    )
    stage_ahead: Milliseconds = _field(
        150, "milliseconds before the due time at which work on a message begins", "0 to 5000 ms", ge=0, le=5000
    )
    transaction_timeout: Seconds = _field(
        15, "seconds after which the broker ends a transaction that hangs", "10 to 60 s", ge=10, le=60
    )
    commit_ahead_targets: Names = _field(
        (),
        "targets (patterns) written before their due time and committed at it: readers of uncommitted records see "
        "them early",
        "patterns of topic names such as alerts-*, separated by commas",
    )

    targets_allow: Names = _field(
        (),
        "the only targets (patterns) that may be delivered to (unset: all); others end in the dead letters, forbidden",
        "patterns of topic names such as orders-*, separated by commas",
    )
    targets_deny: Names = _field(
        (),
        "targets (patterns) that nothing is delivered to, whatever TARGETS_ALLOW says",
        "patterns of topic names such as internal-*, separated by commas",
    )

    shadow: bool = _field(
        False, "log what would be fired, and write nothing but the shadow's own shard topic", "true or false"
    )

    # Places
    book_location: Place = _field(
        "./var/book",
        "where the book is kept",
        "a path, or a URL that Spark can write, without # and ?",
        min_length=1,
    )
    data_folder: str = _field("./var", "where `almanac up` keeps its Kafka", "a path", min_length=1)
    kafka_port: int = _field(
        9092,
        "port of the Kafka that `almanac up` starts",
        "1 to 65534 (the port above it is for Kafka's controller)",
        ge=1,
        le=65_534,
        # Not KAFKA_PORT: Kubernetes sets that to tcp://... in every pod near a service named kafka.
        environment=("ALMANAC_KAFKA_PORT",),
    )

    # Logs and Spark
    log_level: Level = _field("INFO", "how much is logged", "DEBUG, INFO, WARNING or ERROR")
    log_json: bool = _field(False, "log one JSON object a line", "true or false")
    spark_ui: bool = _field(False, "serve Spark's web interface", "true or false")
    spark_event_log: str | None = _field(None, "folder for Spark's event log (unset: none)", "a path or URL")
    spark_master: str | None = _field(None, "Spark's master (unset: this machine)", "local[4], spark://host:7077 ...")
    spark_driver_memory: str = _field(
        "1g", "memory of Spark's driver", "a number with m or g, such as 1g", pattern=r"^[1-9]\d*[mMgG]$"
    )

    # librdkafka's own
    kafka_common: Librdkafka = _field({}, "for every Kafka client", "librdkafka keys", hidden=True)
    kafka_producer: Librdkafka = _field({}, "for producers", "librdkafka keys", hidden=True)
    kafka_consumer: Librdkafka = _field({}, "for consumers", "librdkafka keys", hidden=True)

    origins: dict[str, str] = Field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = Field(default=(), repr=False)

    @model_validator(mode="wrap")
    @classmethod
    def _refuse(cls, values: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Every problem at once, as one of our errors."""
        problems = _passed_through(values)
        try:
            settings = handler(values)
        except ValidationError as error:
            raise errors.SettingsError(_problems(error) + problems) from None
        if problems := settings._contradictions() + problems:
            raise errors.SettingsError(problems)
        return settings

    def _contradictions(self) -> list[tuple[str, str, str]]:
        problems = []
        taken = dict.fromkeys((topic for topic, _ in self.schedules_topics), "schedules_topics")
        for field in ("history_topic", "dead_letters_topic", "shard_topic", "oscillator_topic"):
            topic = getattr(self, field)
            if topic and topic in taken:
                name = "group_id" if field == "shard_topic" else field
                problems.append((name, topic, f"a topic with one purpose only; {taken[topic]} names it too"))
            taken.setdefault(topic, field)
        problems += (
            ("states_topic", topic, f"a topic with one purpose only; {taken[topic]} names it too")
            for topic in self.states_topics.values()
            if topic in taken
        )
        native = [topic for topic, name in self.sources if name in formats.NATIVE]
        if not self.sources or (self.request_topics and not native):
            shown = ",".join(f"{topic}={name}" for topic, name in self.schedules_topics)
            problems.append(
                ("schedules_topics", shown, "must hold a native topic, to which timer requests are bridged")
            )
        if self.bridge_topic and self.bridge_topic not in native:
            problems.append(("bridge_topic", self.bridge_topic, f"must be {allowed('bridge_topic')}"))
        if self.api_token and len(self.api_token) < 16:
            problems.append(("api_token", passthrough.MASK, f"must be {allowed('api_token')}"))
        problems += (
            (field, "0", f"must be {allowed(field)}")
            for field in ("retention_days", "fired_retention_days")
            if getattr(self, field) == 0
        )
        return problems

    # Names that derive from others

    @property
    def sources(self) -> tuple[TopicFormat, ...]:
        """What wheels and book read: the schedules topics without those of timer requests."""
        return tuple(each for each in self.schedules_topics if each.format != formats.BRIDGED)

    @property
    def topics(self) -> tuple[str, ...]:
        """The schedules topics' names."""
        return tuple(topic for topic, _ in self.sources)

    @property
    def request_topics(self) -> tuple[str, ...]:
        """Where timer requests come from."""
        return tuple(topic for topic, name in self.schedules_topics if name == formats.BRIDGED)

    @property
    def bridge_target(self) -> str:
        """Where timer requests are bridged to."""
        return self.bridge_topic or next(topic for topic, name in self.sources if name in formats.NATIVE)

    @property
    def own_topics(self) -> tuple[str, ...]:
        """The topics that no other group may work on: their messages would come twice."""
        return (*self.topics, *self.request_topics, *([self.oscillator_topic] if self.oscillator_topic else []))

    @property
    def duties(self) -> tuple[str, ...]:
        """What there is to do beside the wheels."""
        wanted = {"bridge": self.request_topics, "oscillator": self.oscillator_topic}
        return tuple(duty for duty, topics in wanted.items() if topics)

    @property
    def states_topics(self) -> dict[str, str]:
        """Where the states of each karafka topic are told."""
        names = [topic for topic, form in self.schedules_topics if form == "karafka" and self.states_topic]
        return {topic: self.states_topic.replace("{topic}", topic) for topic in names}

    @property
    def shard_topic(self) -> str:
        return f"{self.group_id}-shards"

    def transactional_id(self, shard: int | str) -> str:
        """Of a wheel by its shard's number, of a duty by its name."""
        return f"{self.group_id}-{shard}" if isinstance(shard, str) else f"{self.group_id}-shard-{shard}"

    @property
    def bridge_group(self) -> str:
        """The consumer group whose offsets say how far the request topics were bridged."""
        return f"{self.group_id}-bridge"

    @property
    def book_folder(self) -> str:
        """The group's own folder below `book_location`; absolute, as Spark's processes may work elsewhere."""
        place = self.book_location.rstrip("/")
        if place.startswith("file:"):
            place = unquote(urlsplit(place).path)
        return f"{place if '://' in place else Path(place).expanduser().absolute()}/{self.group_id}"

    @property
    def checkpoint_folder(self) -> str:
        """Each start uses a new checkpoint below it (rule 10)."""
        return f"{self.book_folder}/checkpoints"

    @property
    def page_length_ms(self) -> int:
        return self.page_length * 1000

    @property
    def transaction_timeout_ms(self) -> int:
        return self.transaction_timeout * 1000

    @property
    def metrics_address(self) -> Address | None:
        """None: metrics are not served."""
        return address(self.metrics_http_addr) if self.metrics_http_addr else None

    @property
    def server_address(self) -> Address | None:
        """None: nothing is served."""
        return address(self.server_addr) if self.server_addr else None

    def commits_ahead(self, target: str) -> bool:
        """Whether messages for this topic are written before their due time and committed at it."""
        return _matches(target, self.commit_ahead_targets)

    def forbids(self, target: str) -> str | None:
        """Why nothing may be delivered to this topic; None if it may."""
        if _matches(target, self.targets_deny):
            return f"target {target} is among TARGETS_DENY ({', '.join(self.targets_deny)})"
        if self.targets_allow and not _matches(target, self.targets_allow):
            return f"target {target} is not among TARGETS_ALLOW ({', '.join(self.targets_allow)})"
        return None

    # Loading and copies

    @classmethod
    def load(cls, arguments: Mapping[str, object] | None = None, environ: Mapping[str, str] = os.environ) -> Settings:
        """From arguments, environment and YAML file; raises SettingsError with every wrong value."""
        from almanac import sources  # it builds on this module

        return sources.load(arguments or {}, environ)

    def origin(self, name: str) -> str:
        return self.origins.get(name, "argument" if name in self.model_fields_set else "default")

    def replaced(self, **values: object) -> Settings:
        """A checked copy with these values."""
        origins = {**{name: self.origin(name) for name in NAMES}, **dict.fromkeys(values, "argument")}
        return Settings.model_validate({**self.model_dump(), **values, "origins": origins})

    def to_json(self) -> str:
        """Everything, secrets included: for Spark's tasks, not for people."""
        return self.model_dump_json()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What `to_json` gave; reads neither environment nor file."""
        return cls.model_validate_json(text)


NAMES: Final = tuple(name for name in Settings.model_fields if name not in ("origins", "notes"))
"""The settings' names, in the order in which people read them."""


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _extra(name: str, part: str) -> Any:
    extra = Settings.model_fields[name].json_schema_extra if name in Settings.model_fields else None
    return extra.get(part) if isinstance(extra, dict) else None


def allowed(name: str) -> str:
    return str(_extra(name, "allowed") or "")


def environment(name: str) -> tuple[str, ...]:
    """The environment variables that hold this setting, the first wins. Passed-through sections have none."""
    return () if name in passthrough.SECTIONS else tuple(_extra(name, "environment") or (name.upper(),))


def _passed_through(values: object) -> list[tuple[str, str, str]]:
    problems = []
    for field, section in passthrough.SECTIONS.items():
        configuration = _librdkafka(values.get(field)) if isinstance(values, dict) else None
        for key, value, reason in passthrough.refused(configuration) if isinstance(configuration, dict) else ():
            problems.append((f"{section}: {key}", value, f"cannot be passed through: {reason}"))
    return problems


def _problems(error: ValidationError) -> list[tuple[str, str, str]]:
    found: dict[str, tuple[str, str, str]] = {}
    for detail in error.errors(include_url=False, include_context=False):
        name = str(detail["loc"][0]) if detail["loc"] else "settings"
        value = passthrough.masked(name, detail["input"])
        rule = allowed(name)
        found.setdefault(name, (name, passthrough.text(value), f"must be {rule}" if rule else "is no setting"))
    return list(found.values())
