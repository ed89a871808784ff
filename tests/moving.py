"""What the tests of moving share: a native topic with a peer's beside it, and processes that are killed."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from almanac import client, formats, mover, scan, tail, topics, words
from almanac.cli import app
from almanac.client import Message
from almanac.record import Record
from almanac.settings import Settings

LATER = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
SOON_MS = int(LATER.timestamp() * 1000)


@dataclass
class Place:
    """A group with a native topic, and a peer's topic beside it."""

    environ: dict[str, str]
    native: str
    peer: str
    admin: AdminClient

    def run(self, *arguments: str, code: int = 0, **more: Any) -> str:
        result = CliRunner().invoke(app, [*arguments], env=self.environ, **more)
        assert result.exit_code == code, result.output
        return result.stdout if code == 0 else result.output

    def migrate(self, form: str, *arguments: str) -> dict[str, Any]:
        command = ["migrate", "--from-topic", self.peer, "--format", form, "--to-topic", self.native, "--json"]
        shown: dict[str, Any] = json.loads(self.run(*command, *(arguments or ("--yes",))))
        return shown

    @property
    def settings(self) -> Settings:
        return Settings.load({}, self.environ)

    def read(self, topic: str | None = None) -> list[Record]:
        """The committed records of a topic, the native one unless told."""
        sources = scan.partitions(self.admin, [topic or self.native])
        return list(scan.read(self.settings, {}, scan.ends(self.admin, sources), lambda _: True))

    def waiting(self) -> dict[bytes, formats.Schedule]:
        """What the native topic has pending, folded by the letter."""
        kills: dict[tuple[int, bytes], int] = {}
        found: dict[tuple[int, bytes], words.Word] = {}
        topic_id = self.topic_id()
        for record in self.read():
            said, key = words.read(record, formats.named("auto"), topic_id), (record.partition, record.key or b"")
            if isinstance(said, words.Kill):
                kills[key] = max(said.version, kills.get(key, -1))
            else:
                assert isinstance(said, words.Word)
                found[key] = said
        pending = [(key, word.schedule) for key, word in found.items() if word.version > kills.get(key, -1)]
        assert len({key for (_, key), _ in pending}) == len(pending), "an id waits twice"
        return {key: schedule for (_, key), schedule in pending}

    def topic_id(self) -> str:
        return topics.topic_ids(self.admin, [self.native])[self.native]

    def ends(self, topic: str) -> dict[Any, int]:
        return tail.ends(self.admin, scan.partitions(self.admin, [topic]), IsolationLevel.READ_UNCOMMITTED)


def content(number: int = 1) -> Message:
    return Message("videos", b"key%d" % number, b"video %d" % number, [("mine", b"%d" % number)])


def plain(number: int) -> Message:
    return replace(content(number), headers=[])


def at_partition(message: Message, partition: int) -> Message:
    return replace(message, partition=partition)


def sky_avro(name: str, number: int, topic: str) -> Message:
    return client.sky.schedule(content(number), name, LATER, topic, "avro")


def sky_json(name: str, number: int, topic: str) -> Message:
    return client.sky.schedule(content(number), name, LATER, topic, "json")


def karafka(name: str, number: int, topic: str) -> Message:
    return client.karafka.schedule(content(number), LATER, topic, id=name)


def etf1(name: str, number: int, topic: str) -> Message:
    return client.etf1.schedule(content(number), name, LATER, topic)


CANCELS: dict[str, Callable[[str, str], Message]] = {
    "etf1": client.etf1.cancel,
    "sky-avro": client.sky.cancel,
    "sky-json": client.sky.cancel,
    "karafka": client.karafka.cancel,
}
SCHEDULES = {"etf1": etf1, "sky-avro": sky_avro, "sky-json": sky_json, "karafka": karafka}


class Crash(BaseException):
    """As if the process had been killed."""


class Dying(Producer):
    """A producer whose process is killed at its third commit."""

    commits = 0
    dies = "before"

    def commit_transaction(self, *arguments: Any) -> None:
        Dying.commits += 1
        if Dying.commits == 3 and Dying.dies == "before":
            self.flush()  # the records are in the log, the transaction is open
            raise Crash
        super().commit_transaction(*arguments)
        if Dying.commits == 3 and Dying.dies == "after":
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the answer was lost"))


@contextmanager
def dying(monkeypatch: pytest.MonkeyPatch, dies: str) -> Iterator[None]:
    """Writes ten a transaction, and does not survive the third."""
    monkeypatch.setattr(mover, "BATCH", 10)
    with monkeypatch.context() as patch:
        patch.setattr(mover, "Producer", Dying)
        patch.setattr(Dying, "commits", 0)
        patch.setattr(Dying, "dies", dies)
        yield
        assert Dying.commits == 3


def killed(place: Place, monkeypatch: pytest.MonkeyPatch, dies: str, *command: str) -> None:
    """Runs a command in that way."""
    with dying(monkeypatch, dies), suppress(Crash):
        assert CliRunner().invoke(app, command, env=place.environ).exit_code == 7


def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """All copies have fired and the cleaner has taken them: the markers alone tell what was done."""
    monkeypatch.setattr(mover.Mover, "spoken", lambda *_: {})
