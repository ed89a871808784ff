"""The scheduler as a `spark-submit` application.

    $ spark-submit --master "local[4,8]" --jars "$(python -m almanac.submit --jars)" \\
        "$(python -m almanac.submit --path)" --group-id billing

Master, memory and jars are spark-submit's business then; everything else is as with `almanac run`, options and exit
codes included. It takes a slot for each wheel and two more, for the book and the pages.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from almanac import errors, jars, kafka, topics
from almanac.book import session
from almanac.settings import Settings

LOOK_SECONDS = 0.2


def path() -> Path:
    """The application's file."""
    return Path(__file__).with_name("__main__.py")


def jar_list() -> str:
    """For `--jars`."""
    return ",".join(str(jar) for jar in session.connectors(jars.spark_jars()))


def is_submitted() -> bool:
    """Did spark-submit start this process?"""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def prepare(settings: Settings) -> None:
    """Makes the session as spark-submit was told to, with what the scheduler relies on; the runner finds it there."""
    spark = SparkSession.builder.appName(f"almanac {settings.group_id}")
    ours = {**session.ALWAYS, "spark.ui.enabled": str(settings.spark_ui).lower()}
    if settings.spark_event_log:
        ours |= {"spark.eventLog.enabled": "true", "spark.eventLog.dir": settings.spark_event_log}
    for key, value in ours.items():
        spark = spark.config(key, value)
    session.check_room(spark.getOrCreate(), _wheels(settings) + len(settings.duties) + session.SPARE_CORES)


def _wheels(settings: Settings) -> int:
    try:
        counts = topics.partition_counts(kafka.admin_client(settings), settings.topics)
    except errors.Unreachable:  # the runner waits for it, and says so
        counts = {}
    return topics.shards(settings, os.cpu_count() or 1, max(counts.values(), default=settings.topic_partitions))


def end_with_parent(end: Callable[[], None]) -> None:
    """Calls `end` when spark-submit's JVM is gone: a signal that ends it does not reach this process."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_SECONDS)
        end()

    threading.Thread(target=watch, name="almanac parent", daemon=True).start()


def killed() -> None:
    """There is no Spark to end in order any more; what was in flight is aborted by Kafka, as after any crash."""
    os._exit(128 + signal.SIGTERM)
