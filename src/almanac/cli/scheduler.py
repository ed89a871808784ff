"""`almanac up` and `almanac run`: the scheduler itself."""

from __future__ import annotations

from typing import Annotated

import typer

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
    "server_addr",
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
def run(
    settings: Settings,
    shadow: Annotated[
        bool,
        typer.Option(
            "--shadow", help=r"Fire nothing: log what would be fired, and write nothing to a peer's topics. \[SHADOW]"
        ),
    ] = False,
) -> None:
    """Run the scheduler on an existing Kafka; Ctrl-C ends it.

    Example: [bold]BOOTSTRAP_SERVERS=kafka:9092 almanac run --schedules-topics schedules,invoices[/bold]

    Beside a peer, to see what would change: [bold]almanac run --shadow --schedules-topics scheduler=sky-avro[/bold]
    """
    from almanac import service  # brings Spark, which the other commands do without

    service.run(settings.replaced(shadow=True) if shadow else settings)
