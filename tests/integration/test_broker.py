import os
import signal
import socket
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, IsolationLevel, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from conftest import MakeTopic, small_config
from waiting import until

from almanac import errors, tail
from almanac.broker import Broker, Config, archive, folder, reasons

TIMEOUT_S = 30


def produce(broker: Broker, topic: str, value: bytes, **more: str | int) -> None:
    producer = Producer(broker.client_settings() | more)
    producer.produce(topic, value)
    assert producer.flush(TIMEOUT_S) == 0


def first_value(broker: Broker, topic: str) -> bytes | None:
    more = {"group.id": "test", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    consumer = Consumer(broker.client_settings() | more)
    consumer.subscribe([topic])
    try:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None
        return message.value()
    finally:
        consumer.close()


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_what_was_produced_survives_a_restart_on_other_ports(broker_config: Config) -> None:
    steps: list[str] = []
    with Broker(broker_config) as broker:
        broker.start(steps.append)
        assert steps[:2] == ["formatting the data folder of the embedded Kafka", "starting the embedded Kafka"]
        produce(broker, "kept", b"value")
        broker.stop()
        assert not broker.is_running()
    with Broker(small_config(broker_config.folder)) as broker:
        broker.start()
        assert first_value(broker, "kept") == b"value"


def test_what_was_produced_survives_a_kill(broker_config: Config) -> None:
    with Broker(broker_config) as broker:
        broker.start()
        produce(broker, "kept", b"value")
        assert broker.pid is not None
        os.kill(broker.pid, signal.SIGKILL)
        until(lambda: not broker.is_running(), TIMEOUT_S, "the broker has ended")
        with pytest.raises(errors.BrokerDied, match="exit code -9"):
            broker.check()
        broker.stop()
        broker.start()
        assert first_value(broker, "kept") == b"value"


def test_the_ends_of_partitions_are_known_again_after_a_restart(broker_config: Config) -> None:
    with Broker(broker_config) as broker:
        broker.start()
        produce(broker, "kept", b"value")
        admin = AdminClient(broker.client_settings())
        before = tail.ends(admin, [("kept", 0)], IsolationLevel.READ_UNCOMMITTED)
        broker.stop()  # the partition's leader is another one after that, though it is the same broker
        broker.start()
        assert tail.ends(admin, [("kept", 0)], IsolationLevel.READ_UNCOMMITTED) == before


def test_transactions_work(broker: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    producer = Producer(broker.client_settings() | {"transactional.id": topic})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"committed")
    producer.commit_transaction(TIMEOUT_S)
    assert first_value(broker, topic) == b"committed"


def test_the_id_of_a_cluster_is_no_option_to_the_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    dash_first, other = uuid.UUID(bytes=b"\xf8" + bytes(15)), uuid.UUID(bytes=bytes(16))
    monkeypatch.setattr(uuid, "uuid4", iter([dash_first, dash_first, other]).__next__)
    assert folder.new_id() == "A" * 22


@pytest.mark.parametrize("which", ["port", "controller_port"])
def test_a_taken_port_is_named_with_who_took_it(which: str, broker_config: Config) -> None:
    port = getattr(broker_config, which)
    with socket.create_server(("127.0.0.1", port)), pytest.raises(errors.PortTaken) as raised:
        Broker(broker_config).start()
    assert f"Port {port}" in str(raised.value)
    assert f"process {os.getpid()}" in str(raised.value)
    assert raised.value.exit_code == 4


def test_a_folder_serves_one_broker(broker: Broker) -> None:
    with pytest.raises(errors.FolderInUse, match=f"process {os.getpid()} started it"):
        Broker(small_config(broker.config.folder)).start()
    assert broker.is_running()


def test_a_full_disk_is_noticed_at_the_start(broker_config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasons, "FREE_SPACE_NEEDED", 2**60)
    with pytest.raises(errors.DiskFull, match="Make room") as raised:
        Broker(broker_config).start()
    assert raised.value.exit_code == 5


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("ERROR LogManager: java.io.IOException: No space left on device", errors.DiskFull),
        ("ERROR Kafka: java.net.BindException: Address already in use", errors.PortTaken),
        ("ERROR LogManager: Shutdown broker because all log dirs in data have failed", errors.CorruptFolder),
        ("ERROR Kafka: something else", errors.BrokerDied),
        ("2026-01-01 WARN LogManager: an earlier KafkaStorageException", errors.BrokerDied),
    ],
)
def test_the_log_tells_why_it_died(line: str, kind: type[errors.BrokerError], broker_config: Config) -> None:
    broker_config.folder.mkdir(parents=True)
    broker_config.log.parent.mkdir()
    broker_config.log.write_text(f"2026-01-01 INFO LogManager: starting\n{line}\n")
    assert type(reasons.of_death(broker_config, "ended")) is kind


class TestADamagedFolder:
    @pytest.fixture
    def stopped(self, broker_config: Config) -> Config:
        with Broker(broker_config) as broker:
            broker.start()
        return broker_config

    def refused(self, config: Config) -> str:
        with Broker(config) as broker, pytest.raises(errors.CorruptFolder) as raised:
            broker.start()
        assert raised.value.exit_code == 6
        assert str(config.data) in str(raised.value)
        assert "remove it" in str(raised.value)
        return str(raised.value)

    def test_each_kind_of_damage(self, stopped: Config) -> None:
        meta = stopped.data / "meta.properties"
        good = meta.read_text()
        for text, said in [
            (good.replace("cluster.id=", "cluster.id=?"), "cluster.id='?"),
            (good.replace("node.id=1", "node.id=7"), "node.id='7'"),
            ("\x00" * 100, "version=''"),
        ]:
            meta.write_text(text)
            assert said in self.refused(stopped)
        meta.unlink()
        assert "meta.properties cannot be read" in self.refused(stopped)
        meta.write_text(good)
        (stopped.data / "__cluster_metadata-0" / "quorum-state").write_text("{")
        assert "quorum-state" in self.refused(stopped)


def test_it_does_not_outlive_the_process_that_started_it(broker_config: Config) -> None:
    program = f"""
import pathlib, signal
from almanac.broker import Broker, Config, archive, folder, reasons
broker = Broker(Config(folder=pathlib.Path({str(broker_config.folder)!r}), port={broker_config.port},
                       controller_port={broker_config.controller_port}, heap_mb=384))
broker.start()
print(broker.pid, flush=True)
signal.pause()
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert not gone(pid)
        owner.kill()
    with Broker(broker_config) as successor:
        successor.start()  # waits for the folder
        assert gone(pid)


def test_ctrl_c_in_the_terminal_does_not_reach_it(broker: Broker) -> None:
    assert broker.pid is not None
    assert os.getsid(broker.pid) != os.getsid(0)


class TestSasl:
    def test_the_right_password_is_let_in(self, sasl_broker: Broker) -> None:
        producer = Producer(sasl_broker.client_settings() | {"transactional.id": "sasl"})
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        producer.produce("secret", b"value")
        producer.commit_transaction(TIMEOUT_S)
        assert first_value(sasl_broker, "secret") == b"value"

    def test_a_wrong_password_is_refused(self, sasl_broker: Broker) -> None:
        said: list[str] = []
        wrong: dict[str, Any] = {"sasl.password": "wrong", "log_level": 0, "error_cb": lambda e: said.append(e.str())}
        admin = AdminClient(sasl_broker.client_settings() | wrong)
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=3)
        until(lambda: admin.poll(0.1) or said, TIMEOUT_S, "the client is told why")
        assert "Authentication failed" in "".join(said)

    def test_the_password_is_not_shown(self, sasl_broker: Broker) -> None:
        sasl = sasl_broker.config.sasl
        assert sasl is not None
        assert sasl.password not in repr(sasl_broker.config)
        assert (sasl_broker.config.folder / "broker.properties").stat().st_mode & 0o077 == 0


def test_the_archive_makes_no_difference_but_time(broker_config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "path", lambda: Path("gone"))
    with Broker(broker_config) as broker:
        broker.start()
        assert broker.is_running()
