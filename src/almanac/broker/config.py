"""What the embedded Kafka is told: where its data lives, who may use it, and Kafka's own properties."""

from dataclasses import dataclass, field
from pathlib import Path

from almanac import java

NODE_ID = 1

_LOG4J = Path(__file__).with_name("log4j2.properties")


@dataclass(frozen=True, kw_only=True)
class Sasl:
    """SASL_SSL with SCRAM-SHA-512 for one user, who is made when the data folder is."""

    user: str
    password: str = field(repr=False)
    keystore: Path  # PEM: the private key (PKCS#8) and the certificate of the broker
    authority: Path  # PEM: who signed the certificate


@dataclass(frozen=True, kw_only=True)
class Config:
    folder: Path
    port: int = 9092
    controller_port: int = 9093
    host: str = "127.0.0.1"  # not `localhost`: where that is ::1 too, clients may try that first
    heap_mb: int = 768
    sasl: Sasl | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder.parent / "log" / "kafka.log"


def java_options(config: Config) -> list[str]:
    return [
        f"-Xms{config.heap_mb}m",
        f"-Xmx{config.heap_mb}m",
        "-XX:+UseG1GC",
        "-XX:MaxGCPauseMillis=20",
        *java.PATIENT_COMPILER,
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.awt.headless=true",
        f"-Dlog4j2.configurationFile={_LOG4J}",
        f"-Dalmanac.log={config.log}",
    ]


def properties(config: Config, data: Path) -> dict[str, object]:
    protocol = "SASL_SSL" if config.sasl else "PLAINTEXT"
    told: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": NODE_ID,
        "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{config.controller_port}",
        "listeners": f"{protocol}://{config.host}:{config.port},CONTROLLER://127.0.0.1:{config.controller_port}",
        "advertised.listeners": f"{protocol}://{config.host}:{config.port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,{protocol}:{protocol}",
        "inter.broker.listener.name": protocol,
        "log.dirs": data,
        "auto.create.topics.enable": "true",
        "num.partitions": 4,
        "group.initial.rebalance.delay.ms": 0,
        # One broker has no replicas.
        "default.replication.factor": 1,
        "min.insync.replicas": 1,
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "share.coordinator.state.topic.num.partitions": 1,
        # A transaction whose owner died holds readers up until it is aborted: look every second, not every ten.
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
        # After a crash the same broker comes back: do not hold its earlier session against it for long.
        "broker.session.timeout.ms": 3000,
        "broker.heartbeat.interval.ms": 500,
        # The default of 128 MB is for disks full of keys.
        "log.cleaner.dedupe.buffer.size": 32 * 1024 * 1024,
    }
    if sasl := config.sasl:
        quoted = {name: _jaas(value) for name, value in (("username", sasl.user), ("password", sasl.password))}
        values = " ".join(f"{name}={value}" for name, value in quoted.items())
        told |= {
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
                f"org.apache.kafka.common.security.scram.ScramLoginModule required {values};"
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": sasl.keystore,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": sasl.authority,
        }
    return told


def _jaas(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def write(path: Path, properties: dict[str, object]) -> None:
    """In Java's syntax, for our eyes only: it may hold a password."""
    lines = [f"{name}={str(value).replace(chr(92), chr(92) * 2)}\n" for name, value in properties.items()]
    path.touch(mode=0o600)
    path.write_text("".join(lines))
