"""The scheduler that is measured: one that runs already, or one of the bench's own in a folder that goes afterwards."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Self

from confluent_kafka import IsolationLevel, KafkaException

from almanac import errors, kafka, passthrough, ports, shard, tail, topics
from almanac import settings as settings_module
from almanac.bench import PARTITIONS, Progress
from almanac.broker import Broker, Config
from almanac.broker import ports as free_ports
from almanac.settings import Settings

HERE = ("localhost", "127.0.0.1", "::1")
KNOCK = 3.0  # seconds in which a Kafka that is there answers
REPORTS = 5.0  # seconds in which a wheel that turns has reported
START = 180.0  # seconds
STOP = 12.0  # seconds; it promises ten
UP = "Up:"  # how the line begins that says so


def is_here(settings: Settings) -> bool:
    """Is it on this machine?"""
    servers = settings.bootstrap_servers.split(",")
    return all(settings_module.address(server.rpartition("://")[2]).host in HERE for server in servers)


def answers(settings: Settings) -> bool:
    """Is there a Kafka?"""
    try:
        return bool(kafka.admin_client(settings).list_topics(timeout=KNOCK).brokers)
    except KafkaException:
        return False


def turns(settings: Settings) -> bool:
    """Has a wheel of this group reported within the last seconds?"""
    admin = kafka.admin_client(settings)
    partitions = topics.partition_counts(admin, [settings.shard_topic]).get(settings.shard_topic)
    if not partitions:
        return False
    sources = [(settings.shard_topic, number) for number in range(partitions)]
    ends = tail.ends(admin, sources, IsolationLevel.READ_UNCOMMITTED)
    reader = shard.Reader(settings, {number: end for (_, number), end in ends.items()})
    deadline = time.monotonic() + REPORTS
    try:
        while time.monotonic() < deadline:
            if any(key == "status" and said["state"] not in shard.GONE for *_, key, said in reader.poll(0.2)):
                return True
    except ports.Unavailable as error:
        raise errors.Unreachable(str(error)) from error
    finally:
        reader.close()
    return False


class Embedded:
    """A broker and `almanac run` on it, on free ports. What does not name a place is as the caller set it."""

    def __init__(self, settings: Settings, folder: Path, progress: Progress) -> None:
        config = Config(folder=folder / "kafka", port=free_ports.free(), controller_port=free_ports.free())
        self._broker = Broker(config)
        self.settings = settings.replaced(
            bootstrap_servers=config.bootstrap_servers,
            group_id="bench",
            schedules_topics="schedules",
            metrics_http_addr="127.0.0.1:0",
            server_addr="127.0.0.1:0",
            book_location=str(folder / "book"),
            topic_partitions=PARTITIONS,
            replication_factor=None,
            configuration_file=None,
            **{section: {} for section in passthrough.SECTIONS},
        )
        self._log = folder / "scheduler.log"
        self._process: subprocess.Popen[str] | None = None
        self._progress = progress

    def __enter__(self) -> Self:
        try:
            self._broker.start(lambda text: self._progress(text, 0, 0))
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Returns when its wheels turn."""
        self._progress("starting the scheduler", 0, 0)
        with self._log.open("ab") as log:
            # In a session of its own: Ctrl-C is for the bench, which ends it in order.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "almanac", "run"], env=self._environment(), text=True, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        is_up = threading.Event()
        threading.Thread(target=self._listen, args=(self._process.stdout, is_up), daemon=True).start()
        deadline = time.monotonic() + START
        while not is_up.wait(0.1):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise errors.AlmanacError(f"the scheduler did not come up:\n{self._log.read_text()[-2000:]}")

    def stop(self) -> None:
        """Ends the scheduler in order; the broker stays."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process = None

    def close(self) -> None:
        """Ends everything."""
        self.stop()
        self._broker.stop()

    def _environment(self) -> dict[str, str]:
        """The caller's, with everything that was said elsewhere (command line, file, above) put into it."""
        environ = dict(os.environ)
        for name in settings_module.NAMES:
            origin = self.settings.origin(name)
            if origin == "default" or origin.startswith("environment") or name in passthrough.SECTIONS:
                continue
            for variable in settings_module.environment(name):
                environ.pop(variable, None)
            value = getattr(self.settings, name)
            if value is not None:
                environ[settings_module.environment(name)[0]] = _text(value)
        return environ

    def _listen(self, lines: IO[str] | None, is_up: threading.Event) -> None:
        with self._log.open("a") as log:
            for line in lines or ():
                log.write(line)
                log.flush()
                if line.startswith(UP):
                    is_up.set()


def _text(value: object) -> str:
    """As people write it into a variable."""
    if isinstance(value, tuple):
        return ",".join(each if isinstance(each, str) else "=".join(each) for each in value)
    return passthrough.text(value)
