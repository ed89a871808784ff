"""The embedded Kafka: one broker of its own, for `almanac up` and the tests.

A real Kafka (KRaft, broker and controller in one process) with its data in a folder that survives restarts:

    <folder>/data               Kafka's log directory
    <folder>/broker.properties  written anew at each start
    <folder>/lock               held by the broker's process: one broker a folder
    <folder>/../log/kafka.log   what it says; kafka.out is what its Java says

It runs in a session of its own, so Ctrl-C in the terminal does not end it under a scheduler that still writes. And it
does not outlive the process that started it: a guard (a shell that waits for the end of a pipe) ends it then, whatever
the reason. Linux could signal a parent's death itself, but does so when the thread that started the broker ends.
"""

import contextlib
import errno
import os
import subprocess
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from almanac import errors, jars, java
from almanac.broker import archive, folder, ports, reasons
from almanac.broker import config as configs
from almanac.broker.config import Config, Sasl

__all__ = ["Broker", "ClientSettings", "Config", "Sasl"]

ClientSettings = dict[str, str | int | float | bool]  # as librdkafka's clients take them

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 4.0  # then it is killed; it needs half a second

# $1 is the broker. A line on standard input: it was stopped in an orderly way. The end of it: our parent is gone.
_GUARD = """
read -r _ && exit
kill -TERM "$1"
for _ in 1 2 3 4 5 6 7 8; do sleep 0.5; kill -0 "$1" || exit; done
kill -KILL "$1"
"""


class Broker:
    """Start it from any thread; `stop()` it, or leave its `with` block. It may be started again after it ended."""

    def __init__(self, config: Config, jvm_options: list[str] | None = None) -> None:
        self.config = config
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._lock: int | None = None
        self._jvm_options = archive.options() if jvm_options is None else jvm_options

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        return self.config.bootstrap_servers

    @property
    def pid(self) -> int | None:
        """The broker's process, if it was started."""
        return self._process.pid if self._process else None

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def client_settings(self) -> ClientSettings:
        """What a client (librdkafka) needs to connect."""
        settings: ClientSettings = {"bootstrap.servers": self.bootstrap_servers}
        if sasl := self.config.sasl:
            settings |= {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": sasl.user,
                "sasl.password": sasl.password,
                "ssl.ca.location": str(sasl.authority),
            }
        return settings

    def start(self, progress: Callable[[str], None] = lambda _: None) -> None:
        """Return when it answers. `progress` is told each step."""
        runtime, classpath = java.find(), jars.broker_classpath()
        try:
            self.config.folder.mkdir(parents=True, exist_ok=True)
            self.config.log.parent.mkdir(parents=True, exist_ok=True)
            folder.check_space(self.config)
            self._lock = folder.lock(self.config.folder, progress)
            ports.check(self.config)
            folder.check_data(self.config)
            command = [
                str(runtime.executable),
                *self._jvm_options,
                *configs.java_options(self.config),
                "-cp",
                classpath,
            ]
            if not self.config.data.exists():
                progress("formatting the data folder of the embedded Kafka")
                folder.format_data(self.config, command)
            properties = self.config.folder / "broker.properties"
            configs.write(properties, configs.properties(self.config, self.config.data))
            progress("starting the embedded Kafka")
            self._run([*command, "kafka.Kafka", str(properties)])
            self._wait_until_it_answers(progress)
        except OSError as error:
            self.stop()
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise reasons.disk_full(self.config) from error
            raise errors.BrokerError(
                f"The embedded Kafka cannot use {error.filename or self.config.folder}: {error.strerror}."
            ) from error
        except BaseException:
            self.stop()
            raise

    def check(self) -> None:
        """Raise, with the reason, if it has ended by itself."""
        if self._process is not None and (code := self._process.poll()) is not None:
            raise reasons.of_death(self.config, f"ended with exit code {code}", killed=code < 0)

    def stop(self, timeout: float = STOP_TIMEOUT_S) -> None:
        """End it: in an orderly way within `timeout` seconds, else at once."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._guard is not None:
            with contextlib.suppress(BrokenPipeError):
                self._guard.communicate(b"stopped\n")
            self._guard = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _run(self, command: list[str]) -> None:
        assert self._lock is not None  # taken before
        with self.config.log.with_suffix(".out").open("wb") as output:
            # It inherits the lock, so that the folder stays locked until it has really ended.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
                pass_fds=[self._lock],
            )  # fmt: skip
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "almanac-guard", str(self._process.pid)], stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def _wait_until_it_answers(self, progress: Callable[[str], None]) -> None:
        start = said = time.monotonic()
        quick: ClientSettings = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 100, "log_level": 0}
        admin = AdminClient(self.client_settings() | quick)
        while time.monotonic() - start < START_TIMEOUT_S:
            self.check()
            with contextlib.suppress(KafkaException):
                if admin.list_topics(timeout=0.5).brokers:
                    return
            if time.monotonic() - said >= 1:
                said = time.monotonic()
                progress(f"starting the embedded Kafka ({said - start:.0f} s)")
        raise reasons.of_death(self.config, f"did not answer within {START_TIMEOUT_S:.0f} s")
