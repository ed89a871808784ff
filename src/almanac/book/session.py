"""The Spark session: what the book, the pages and the wheels rely on.

Each setting below is there for a reason; `check` refuses a caller's session whose settings would break a guarantee.
"""

import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

import pyspark
from pyspark.sql import SparkSession

from almanac import errors, java

SPARE_CORES = 2  # for the book and the pages: the wheels' tasks never end
TASK_FAILURES = 8  # a wheel whose process died is run again (rule 6)


class Settings(Protocol):
    """What of the settings matters here."""

    @property
    def group_id(self) -> str: ...
    @property
    def spark_ui(self) -> bool: ...
    @property
    def spark_event_log(self) -> str | None: ...
    @property
    def spark_master(self) -> str | None: ...
    @property
    def spark_driver_memory(self) -> str: ...
    @property
    def book_folder(self) -> str: ...


ALWAYS: Mapping[str, str] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    # rule 6: a second attempt of a living wheel would fence it
    "spark.speculation": "false",
    "spark.dynamicAllocation.enabled": "false",
    # one machine, small tables: more partitions are only more overhead
    "spark.sql.shuffle.partitions": "4",
    "spark.databricks.delta.snapshotPartitions": "2",
    # a method of more bytecode is never compiled by the JVM
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # batches, what fired and tidying are more than the usual 100 of them, each to be compiled again when it comes
    "spark.sql.codegen.cache.maxEntries": "200",
    # OPTIMIZE puts the book in order of due times, within files too, and leaves large parts that it has put in order
    # alone (by default only those of 100 GB). It stops adding to a part before the second size: so that is larger.
    "spark.databricks.delta.optimize.maxFileSize": str(64 << 20),
    "spark.databricks.delta.optimize.minFileSize": str(32 << 20),
    "spark.databricks.io.skipping.mdc.sortWithinFiles": "true",
    "spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize.threshold": str(256 << 20),
    "spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize.targetCubeSize": str(384 << 20),
    # What Spark sorts in, of the heap. With the usual 0.6 and all else that lives there it was full: a merge stood
    # still for half of its time, in one collection after the other. What does not fit goes to the disk, unfelt.
    "spark.memory.fraction": "0.4",
    # VACUUM lists the folder in that many tasks; the default is 10,000
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    # the page of Spark's web interface keeps its data in the driver's memory
    "spark.ui.retainedJobs": "200",
    "spark.ui.retainedStages": "200",
    "spark.ui.retainedTasks": "2000",
    "spark.sql.ui.retainedExecutions": "50",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}

# A merge makes much that is thrown away at once, and nobody waits for it: the usual collector's own threads would take
# a tenth of two processors beside it. A quarter of the heap for what is new, not a third: what Spark sorts is old.
_COLLECTOR = ["-XX:+UseParallelGC", "-XX:NewRatio=3"]
_OTHERS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")  # Java takes options from there too, and one collector only

# What was freed goes back to the system. By default glibc keeps it, for each of a JVM's hundred threads, and holds
# large pieces too once it has seen them freed; the wheels are children of the JVM and have these from it.
_MALLOC = {"MALLOC_ARENA_MAX": "2", "MALLOC_MMAP_THRESHOLD_": "131072"}
_TRIM = [
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:TrimNativeHeapInterval=30000",  # ms; since Java 17.0.9
    "-Djdk.nio.maxCachedBufferSize=262144",  # else each thread keeps one as large as it has ever read
    "-XX:ReservedCodeCacheSize=80m",  # 240 by default: it had grown from 52 to 118 at 3 M pending
]

_HOSTILE: Mapping[str, tuple[str, str]] = {
    "spark.speculation": ("false", "a second attempt of a wheel's task would fence the first (rule 6)"),
    "spark.dynamicAllocation.enabled": ("false", "an executor taken away takes its wheels along"),
    "spark.python.worker.killOnIdleTimeout": ("false", "a wheel that waits for its next due time would be killed"),
    "spark.sql.execution.pyspark.udf.killOnIdleTimeout": ("false", "a wheel that waits would be killed"),
    "spark.python.worker.reuse": ("true", "a new Python process for each task delays pages and restarts"),
}


def connectors(jars: Iterable[Path]) -> list[Path]:
    """Those of the jars that pyspark does not carry itself, in whatever version."""
    carried = {_name(jar) for jar in (Path(pyspark.__file__).parent / "jars").glob("*.jar")}
    return sorted(jar for jar in jars if _name(jar) not in carried)


def _name(jar: Path) -> str:
    return jar.stem.rpartition("-")[0]


def session(settings: Settings, wheels: int, jars: Iterable[Path], options: Iterable[str] = ()) -> SparkSession:
    """A session of our own with room for that many wheels, or the one that `spark-submit` prepared.

    `options` are Java's, more than the usual ones.
    """
    own = "PYSPARK_GATEWAY_PORT" not in os.environ
    if own:
        # The JVM is ours to start: on the Java that was found, with workers that have this program's packages.
        os.environ["JAVA_HOME"] = str(java.find().home)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        for name, value in _MALLOC.items():
            os.environ.setdefault(name, value)
    spark = SparkSession.builder.appName(f"almanac {settings.group_id}")
    spark = spark.master(settings.spark_master or f"local[{wheels + SPARE_CORES}, {TASK_FAILURES}]")
    for key, value in ALWAYS.items():
        spark = spark.config(key, value)
    spark = spark.config("spark.driver.memory", settings.spark_driver_memory)
    # Empty, but Spark makes it: not where the program was started, which may not even be writable.
    spark = spark.config("spark.sql.warehouse.dir", f"{settings.book_folder}/warehouse")
    # All of it from the start: what the process takes does not depend on how much is pending.
    heap = [f"-Xms{settings.spark_driver_memory}", "-XX:+AlwaysPreTouch", *_collector(), *_TRIM, *java.PATIENT_COMPILER]
    spark = spark.config("spark.driver.extraJavaOptions", " ".join(f'"{option}"' for option in (*heap, *options)))
    spark = spark.config("spark.task.maxFailures", str(TASK_FAILURES))
    spark = spark.config("spark.ui.enabled", str(settings.spark_ui).lower())
    if settings.spark_event_log:
        spark = spark.config("spark.eventLog.enabled", "true").config("spark.eventLog.dir", settings.spark_event_log)
    paths = [str(jar) for jar in connectors(jars)]
    if own and not settings.spark_master:
        # on the class path from the start: only what is there can be in the archive of classes
        spark = spark.config("spark.driver.extraClassPath", os.pathsep.join(paths))
    elif paths:
        spark = spark.config("spark.jars", ",".join(paths))
    found = spark.getOrCreate()
    check(found)
    return found


def _collector() -> list[str]:
    chosen = any(re.search(r"-XX:\+Use\w+GC\b", os.environ.get(name, "")) for name in _OTHERS)
    return [] if chosen else _COLLECTOR


def check(spark: SparkSession) -> None:
    """Refuses a session whose settings would break a guarantee. Raises UsageError that names every one of them."""
    problems = []
    for key, (wanted, why) in _HOSTILE.items():
        value = spark.conf.get(key, wanted)
        if value != wanted:
            problems.append(f"{key}={value}: must be {wanted}, as {why}")
    problems += [
        f"{key} lacks {ALWAYS[key]}: the book is a Delta table"
        for key in ("spark.sql.extensions", "spark.sql.catalog.spark_catalog")
        if ALWAYS[key] not in (spark.conf.get(key, "") or "")
    ]
    if problems:
        raise errors.UsageError("This Spark session cannot run the scheduler:\n  " + "\n  ".join(problems))


def check_room(spark: SparkSession, slots: int) -> None:
    """Refuses a local session with fewer slots than that: the wheels hold theirs for as long as they turn."""
    context = spark.sparkContext
    if (context.master or "").startswith("local") and context.defaultParallelism < slots:
        raise errors.UsageError(
            f"Spark's master {context.master} has {context.defaultParallelism} slots, and {slots} are needed: one for "
            f"each wheel, more for the book and the pages. Take local[{slots},{TASK_FAILURES}], or fewer SHARDS"
        )
