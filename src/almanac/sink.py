"""Wheels as Spark tasks: a Python data source that is written one row per shard, and each row turns a wheel.

The driver writes a frame of one row to `format("almanac")`; the task that gets it runs the shard's wheel until the
driver says stop or a later owner takes the shard. A task whose process died is run again by Spark. The duties beside
the wheels (bridge, oscillator) run the same way, one row each.
"""

import gc
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from almanac import (
    bridge,
    dial,
    duty,
    formats,
    inbox,
    log,
    oscillator,
    ports,
    priority,
    shadow,
    shard,
    tail,
    wheel,
    writer,
)
from almanac.book import pages
from almanac.clock import Clock
from almanac.ledger import Ledger
from almanac.parquet import ParquetPage
from almanac.settings import Settings

SCHEMA = "shard int, job string"


@dataclass(frozen=True)
class Job:
    """All that a wheel needs to know, as the row's text."""

    settings: Settings
    shard: int
    owner: int  # offset of the owner record it works under
    partitions: list[ports.Source]
    topic_ids: dict[str, str]
    broker_max_bytes: int
    duty: str = ""  # one of these instead of a wheel
    shards: int = 1  # wheels of the group

    def to_json(self) -> str:
        """For the row."""
        # No task serves the REST interface: its token stays with the driver.
        fields = {**vars(self), "settings": self.settings.model_copy(update={"api_token": ""}).to_json()}
        return json.dumps(fields)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """From the row."""
        fields: dict[str, Any] = json.loads(text)
        fields["settings"] = Settings.from_json(fields["settings"])
        fields["partitions"] = [(topic, partition) for topic, partition in fields["partitions"]]
        return cls(**fields)


@dataclass
class Ended(WriterCommitMessage):
    """How a wheel ended."""

    shard: int
    how: str


class WheelSource(DataSource):
    """`spark.dataSource.register(WheelSource)`, then write to `format("almanac")`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "almanac"

    def writer(self, schema: StructType, overwrite: bool) -> "WheelWriter":
        """Called on the driver, used in the tasks."""
        return WheelWriter()


class WheelWriter(DataSourceArrowWriter):
    """Turns the wheels of the rows it is given."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Ended:
        """Ends when the wheel ends."""
        ended = Ended(-1, "empty")
        for batch in iterator:
            for text in batch.column("job").to_pylist():
                job = Job.from_json(text)
                ended = Ended(job.shard, serve(job) if job.duty else turn(job))
        return ended


def turn(job: Job) -> str:
    """Runs one shard's wheel in this process."""
    settings = job.settings
    log.configure(settings)
    priority.step_forward()
    clock = Clock()
    grace = settings.schedule_grace_interval * 1000
    kinds = {topic: formats.named(name, grace) for topic, name in settings.sources}
    ledgers = [Ledger(topic, partition, job.topic_ids[topic], kinds[topic]) for topic, partition in job.partitions]
    # Clients are made here, in the task: one made before a fork does not work after it.
    reader = tail.KafkaTail(settings, job.partitions)
    claims = shard.KafkaClaims(settings, job.shard, job.owner, clock)
    transactions = (
        shadow.ShadowWriter(settings, clock)
        if settings.shadow
        else writer.KafkaWriter(settings, settings.transactional_id(job.shard), job.broker_max_bytes)
    )
    options = wheel.Options(
        history=settings.history_topic,
        dead_letters=settings.dead_letters_topic,
        fires=settings.fires_per_transaction,
        bytes=settings.transaction_bytes,
        ahead=settings.stage_ahead,
        since_delta=settings.since_delta,
        keep=2 * settings.page_length_ms,
        early=settings.commits_ahead if settings.commit_ahead_targets else None,
        forbidden=settings.forbids if settings.targets_allow or settings.targets_deny else None,
        shards=job.shards,
    )
    turning = wheel.Wheel(
        ledgers, reader, transactions, claims, clock, options, lambda page: open_page(page, job.shard)
    )
    try:
        with _uncollected():
            return turning.run()
    except Exception:
        logging.getLogger("almanac.wheel").exception("the wheel of shard %d ended; Spark runs it again", job.shard)
        raise
    finally:
        transactions.close()
        claims.close()
        reader.close()


def serve(job: Job) -> str:
    """Does one duty in this process."""
    settings, name = job.settings, job.duty
    log.configure(settings)
    priority.step_forward()
    clock = Clock()
    requests = inbox.KafkaInbox(settings) if name == "bridge" else None
    post = shard.KafkaPost(settings, name, job.owner, clock)
    consumer = requests.consumer if requests is not None else None
    transactions = writer.KafkaWriter(settings, settings.transactional_id(name), job.broker_max_bytes, consumer)
    work: duty.Work
    if requests is not None:
        options = bridge.Options(
            topic=settings.bridge_target,
            dead_letters=settings.dead_letters_topic,
            earliest=settings.bridge_from == "earliest",
            requests=settings.fires_per_transaction,
            bytes=settings.transaction_bytes,
        )
        work = bridge.Bridge(requests, transactions, post, clock, options)
    else:
        work = oscillator.Oscillator(dial.KafkaDial(settings), transactions, clock, settings.oscillator_topic)
    try:
        with _uncollected():
            return duty.Duty(name, work, transactions, post, clock).run()
    except Exception:
        logging.getLogger("almanac.duty").exception("the %s ended; Spark runs it again", name)
        raise
    finally:
        transactions.close()
        post.close()
        if requests is not None:
            requests.close()


@contextmanager
def _uncollected() -> Iterator[None]:
    """Entries and requests hold no cycles, and each collection would walk through hundreds of thousands of them."""
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def open_page(described: dict[str, Any], number: int) -> wheel.Opened:
    """The shard's part of an announced page."""
    spec = pages.PageSpec.from_json(json.dumps(described))
    return wheel.Opened(spec.number, ParquetPage(spec.folder(number)), spec.offsets, spec.horizon)
