"""The data folder of the embedded Kafka: locked, checked and, the first time, formatted."""

import base64
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import psutil

from almanac import errors
from almanac.broker import config as configs
from almanac.broker import reasons
from almanac.broker.config import Config, Sasl

SCRAM_ITERATIONS = 4096
LOCK_TIMEOUT_S = 6.0  # a guard needs no more than four to end a broker


def check_space(config: Config) -> None:
    if shutil.disk_usage(config.folder).free < reasons.FREE_SPACE_NEEDED:
        raise reasons.disk_full(config)


def lock(folder: Path, progress: Callable[[str], None]) -> int:
    """The lock of the folder: at once, or once a broker whose owner is gone has ended; its guard is at it."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            owner = int(os.pread(lock, 20, 0) or 0)
            if psutil.pid_exists(owner) or time.monotonic() > deadline:
                os.close(lock)
                raise errors.FolderInUse(
                    f"{folder} is in use by another embedded Kafka (process {owner} started it). Stop that one, or "
                    "choose another folder."
                ) from None
            progress("waiting for the earlier embedded Kafka to end")
            time.sleep(0.1)
    os.truncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    return lock


def check_data(config: Config) -> None:
    """Refuse a folder that Kafka would not understand, before it tries."""
    if not config.data.exists():
        return
    try:
        lines = (config.data / "meta.properties").read_text().splitlines()
    except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError) as error:
        raise reasons.corrupt(config, f"meta.properties cannot be read ({error})") from None
    meta = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    for name, allowed in (("version", r"1"), ("node.id", str(configs.NODE_ID)), ("cluster.id", r"[\w-]{22}")):
        if not re.fullmatch(allowed, meta.get(name, "")):
            raise reasons.corrupt(config, f"meta.properties says {name}={meta.get(name, '')!r}")


def format_data(config: Config, command: list[str]) -> None:
    """Make the data folder: under another name first, so that one with its proper name is complete."""
    with tempfile.TemporaryDirectory(dir=config.folder, prefix="formatting-") as name:
        properties = Path(name) / "broker.properties"
        data = Path(name) / "data"
        configs.write(properties, configs.properties(config, data))
        tool = [*command, "kafka.tools.StorageTool", "format", "--config", str(properties), "--cluster-id", new_id()]
        if config.sasl:
            tool += ["--add-scram", _scram(config.sasl)]
        said = subprocess.run(tool, capture_output=True, text=True, stdin=subprocess.DEVNULL, start_new_session=True)
        if said.returncode != 0:
            if "No space left" in said.stderr:
                raise reasons.disk_full(config)
            raise errors.BrokerDied(f"The embedded Kafka could not format {config.data}:\n{said.stdout}{said.stderr}")
        data.rename(config.data)


def new_id() -> str:
    """A cluster's id as Kafka makes them: never with a dash in front, which its tools would take for an option."""
    while (made := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return made


def _scram(sasl: Sasl) -> str:
    """The user as Kafka stores it: salted, so that the password is in nobody's list of processes."""
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha512", sasl.password.encode(), salt, SCRAM_ITERATIONS)
    coded = {"salt": base64.b64encode(salt).decode(), "saltedpassword": base64.b64encode(salted).decode()}
    values = ",".join(f'{name}="{value}"' for name, value in coded.items())
    return f"SCRAM-SHA-512=[name={sasl.user},iterations={SCRAM_ITERATIONS},{values}]"
