"""`almanac up`, as a new user runs it: an embedded Kafka and the scheduler on it, ended by a signal."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from applications import Application, almanac
from confluent_kafka import Consumer
from waiting import until

from almanac.broker import ports


@pytest.fixture
def port() -> int:
    """The controller takes the next one."""
    return ports.free(following=1)


@pytest.fixture
def up(port: int, tmp_path: Path) -> Iterator[Application]:
    environ = {"ALMANAC_KAFKA_PORT": str(port), "BOOTSTRAP_SERVERS": f"localhost:{port}"}
    with almanac(environ, tmp_path, "up") as started:
        yield started


def test_from_nothing_to_the_first_message_and_to_a_clean_end(up: Application, port: int, tmp_path: Path) -> None:
    up.says("Up:")
    command = ["schedule", "--at", "+1s", "--topic", "videos", "--key", "1", "--value", "online", "--id", "video"]
    done = subprocess.run(
        [sys.executable, "-m", "almanac", *command], cwd=tmp_path, capture_output=True, text=True, timeout=60,
        env={"BOOTSTRAP_SERVERS": f"localhost:{port}", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    more = {"isolation.level": "read_committed", "auto.offset.reset": "earliest", "group.id": "viewers"}
    viewer = Consumer({"bootstrap.servers": f"localhost:{port}", "topic.metadata.refresh.interval.ms": 500, **more})
    viewer.subscribe(["videos"])
    got = until(lambda: [m for m in viewer.consume(1, 1) if m.error() is None], 60, "the video is online")
    viewer.close()
    assert [(message.key(), message.value()) for message in got] == [(b"1", b"online")]
    up.says("fired 1", 30)
    begun = time.monotonic()
    assert up.end(signal.SIGTERM) == 0
    assert time.monotonic() - begun < 10
    assert up.text.rstrip().endswith("Stopped")
    assert [path.name for path in tmp_path.iterdir()] == ["var"], "nothing is left beside its folder"


def test_a_signal_while_kafka_starts_ends_it_at_once(up: Application) -> None:
    up.says("starting the embedded Kafka")
    assert up.end(signal.SIGINT) == 0


def test_a_kafka_that_dies_while_spark_starts_is_said_and_is_no_success(up: Application) -> None:
    up.says("Spark: starting")
    up.child("java", "kafka.Kafka").kill()
    assert up.ended(60) == 1
    assert "embedded Kafka" in up.text.rpartition("Stopped")[2], "the last word is the reason"
