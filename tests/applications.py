"""Schedulers in processes of their own, and what a consumer gets of them."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import psutil
import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from waiting import until

from almanac.broker import Broker

START_S = 120
STOP_S = 10  # what is promised


class Application:
    """A process whose lines are kept; ended, with its children, at the end of its `with` block."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], folder: Path) -> None:
        quiet = {"SERVER_ADDR": "", "METRICS_HTTP_ADDR": ""}  # several run at once, and none is asked anything
        self._process = subprocess.Popen(
            command, env={**os.environ, **quiet, **environ}, cwd=folder, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self.lines.append(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.family():
            process.kill()
        self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def text(self) -> str:
        return "".join(self.lines)

    def family(self) -> list[psutil.Process]:
        """The process and all that it started."""
        try:
            process = psutil.Process(self.pid)
            return [process, *process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def child(self, program: str, argument: str) -> psutil.Process:
        """The process of that program that was started with this argument."""
        for process in self.family():
            with suppress(psutil.Error):  # others may end meanwhile
                if process.name().startswith(program) and argument in process.cmdline():
                    return process
        raise AssertionError(f"no process with {argument}")

    def says(self, part: str, timeout: float = START_S) -> None:
        """Waits until it has said so."""

        def said() -> bool:
            assert part in self.text or self._process.poll() is None, f"it ended: {self.text[-3000:]}"
            return part in self.text

        until(said, timeout, f"it says {part!r}")

    def end(self, number: signal.Signals = signal.SIGTERM, pid: int | None = None) -> int:
        """Sends the signal to it (or to one of its children) and returns its exit code. Nothing may be left."""
        family = self.family()
        os.kill(pid or self.pid, number)
        code = self.ended(STOP_S)
        _, left = psutil.wait_procs(family, timeout=STOP_S)
        assert not left, f"left running: {left}"
        return code

    def ended(self, timeout: float = START_S) -> int:
        """Waits until it ends; returns its exit code."""
        code = self._process.wait(timeout)
        self._reader.join(timeout)
        return code


def almanac(environ: Mapping[str, str], folder: Path, *arguments: str) -> Application:
    """`almanac run`, or what else it is told, in that folder."""
    return Application([sys.executable, "-m", "almanac", *(arguments or ("run",))], environ, folder)


def schedule(broker: Broker, topic: str, target: str, name: str, seconds: float) -> tuple[int, int]:
    """Writes a schedule that is due in so many seconds; returns its partition and offset."""
    due = int((time.time() + seconds) * 1000)
    headers: list[tuple[str, str | bytes | None]] = [
        ("scheduler-epoch-ms", str(due).encode()),
        ("scheduler-target-topic", target.encode()),
        ("due", str(due).encode()),
    ]
    written: list[tuple[int, int]] = []
    producer = Producer({**broker.client_settings(), "partitioner": "murmur2_random"})

    def told(_: object, message: Message) -> None:
        written.append((message.partition() or 0, message.offset() or 0))

    producer.produce(topic, name.encode(), name.encode(), headers=headers, on_delivery=told)
    assert producer.flush(30) == 0
    return written[0]


def received(broker: Broker, topic: str, partitions: int, count: int, timeout: float) -> list[Message]:
    """The first committed messages of a topic, in the order in which they came."""
    more = {"group.id": "test", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    consumer = Consumer({**broker.client_settings(), **more})
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
    found: list[Message] = []

    def all_have_come() -> bool:
        found.extend(consumer.consume(count, 0.1))
        return len(found) >= count

    try:
        until(all_have_come, timeout, f"{count} messages have come")
    finally:
        consumer.close()
    assert all(message.error() is None for message in found)
    return found


@contextmanager
def _decompressed(path: Path) -> Iterator[io.BufferedReader]:
    if path.suffix in (".zstd", ".zst") or ".zstd" in path.suffixes:
        with pa.CompressedInputStream(str(path), "zstd") as stream:
            yield stream
    else:
        with path.open("rb") as file:
            yield file


def event_log(folder: Path) -> str:
    """All of Spark's event log, once the application that wrote it has ended."""
    text = ""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.stat().st_size and not path.name.endswith(".crc"):
            with _decompressed(path) as file:
                text += file.read().decode()
    return text


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]
