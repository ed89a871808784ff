"""The bridge alone: timer requests into a native topic, by a Spark task, as the scheduler has it."""

import threading
import time

from pyspark.sql import SparkSession

from almanac import errors, kafka, sink, topics
from almanac.inbox import KafkaInbox
from almanac.settings import Settings
from almanac.shard import Ownership

LOOK = 0.1  # seconds between two looks at the consumer group
PATIENCE = 600.0  # seconds


def bridge(settings: Settings, spark: SparkSession) -> tuple[float, int]:
    """Seconds from the task's start until all requests that are there are committed, and how many have been by then."""
    admin = kafka.admin_client(settings)
    topics.ensure(admin, settings)
    ownership = Ownership(settings, 1)
    ownership.look(1)
    job = sink.Job(settings, 0, ownership.claim()[0], [], {}, topics.broker_max_bytes(admin), "bridge")
    spark.dataSource.register(sink.WheelSource)
    task = threading.Thread(target=_serve, args=(spark, job), name="bridge", daemon=True)
    inbox = KafkaInbox(settings)
    begun = time.monotonic()
    task.start()
    try:
        while (bridged := _bridged(inbox)) is None:
            time.sleep(LOOK)
            if not task.is_alive() or time.monotonic() - begun > PATIENCE:
                raise errors.AlmanacError("the bridge ended, or it stands: its log says why")
        return time.monotonic() - begun, bridged
    finally:
        inbox.close()
        ownership.stop()
        task.join(PATIENCE)
        ownership.close()


def _serve(spark: SparkSession, job: sink.Job) -> None:
    frame = spark.createDataFrame([(job.shard, job.to_json())], sink.SCHEMA).coalesce(1)
    frame.write.format("almanac").mode("append").save()


def _bridged(inbox: KafkaInbox) -> int | None:
    """The committed offsets, added up; nothing while they have not reached the ends."""
    found = inbox.look().values()
    marks = [each.mark.offset for each in found if each.mark is not None and each.mark.offset >= each.stable]
    return sum(marks) if len(marks) == len(found) else None
