"""Why the embedded Kafka does not run, as errors that say what to do."""

import contextlib
import re
import shutil
from pathlib import Path

import psutil

from almanac import errors
from almanac.broker.config import Config

FREE_SPACE_NEEDED = 256 * 1024 * 1024  # bytes, at the start

# What Kafka writes to its log before it gives up.
_FULL = r"No space left on device|Disk quota exceeded"
_TAKEN = r"Address already in use"
_DAMAGED = (
    r"meta\.properties|quorum-state|Inconsistent(ClusterId|NodeId|VoterSet)|CorruptRecord|CorruptSnapshot"
    r"|KafkaStorageException|log dirs? .*failed"
)


def of_death(config: Config, what: str, *, killed: bool = False) -> errors.BrokerError:
    """The error that the log speaks of. A broker that was killed had no time to write about its own end."""
    lines = [line for name in (config.log.with_suffix(".out"), config.log) for line in _tail(name)]
    complaints = [] if killed else [line for line in lines if not re.search(r" (INFO|WARN) ", line)]
    for sign in (_FULL, _TAKEN, _DAMAGED):  # a full disk also makes log directories fail
        if found := next((line for line in complaints if re.search(sign, line)), None):
            if sign == _FULL:
                return disk_full(config)
            return port_taken(config.port) if sign == _TAKEN else corrupt(config, found.strip())
    last = "".join(f"\n  {line}" for line in lines[-10:])
    return errors.BrokerDied(f"The embedded Kafka {what}. {config.log} ends with:{last}")


def _tail(path: Path, lines: int = 400) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()[-lines:]
    except FileNotFoundError:
        return []


def disk_full(config: Config) -> errors.DiskFull:
    free = shutil.disk_usage(config.folder).free // 1024**2
    return errors.DiskFull(
        f"The disk that holds {config.folder} has {free} MB left, and the embedded Kafka needs "
        f"{FREE_SPACE_NEEDED // 1024**2} MB to start. Make room, then start again."
    )


def port_taken(port: int) -> errors.PortTaken:
    return errors.PortTaken(
        f"Port {port}, which the embedded Kafka needs, is taken by {_listener(port)}. Stop that, or choose another "
        "port for the embedded Kafka."
    )


def _listener(port: int) -> str:
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port
            if listens and connection.pid:
                return f"process {connection.pid} ({psutil.Process(connection.pid).name()})"
    return "another process"


def corrupt(config: Config, what: str) -> errors.CorruptFolder:
    return errors.CorruptFolder(
        f"The embedded Kafka's data in {config.data} is damaged: {what}. Restore the folder from a copy, or remove it "
        "to start with an empty Kafka (what is in it is lost)."
    )
