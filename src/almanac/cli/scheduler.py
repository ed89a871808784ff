"""`almanac up` and `almanac run`: the scheduler itself."""

from __future__ import annotations

from almanac.cli import common
from almanac.settings import Settings

_ENGINE = (
    "schedules_topics",
    "history_topic",
    "dead_letters_topic",
    "bridge_topic",
    "bridge_from",
    "oscillator_topic",
    "shards",
    "page_length",
    "book_location",
    "metrics_http_addr",
    "log_json",
    "spark_ui",
)


@common.command("kafka_port", "data_folder", *_ENGINE)
def up(settings: Settings) -> None:
    """Start a Kafka on this machine and the scheduler on it; Ctrl-C ends both.

    Example: [bold]almanac up --kafka-port 9092 --data-folder ./var[/bold]
    """
    from almanac import service  # brings Spark, which the other commands do without

    service.up(settings)


@common.command(*_ENGINE)
def run(settings: Settings) -> None:
    """Run the scheduler on an existing Kafka; Ctrl-C ends it.

    Example: [bold]BOOTSTRAP_SERVERS=kafka:9092 almanac run --schedules-topics schedules,invoices[/bold]
    """
    from almanac import service  # brings Spark, which the other commands do without

    service.run(settings)
