"""The jars beside those in pyspark: Spark's connectors and the embedded Kafka, fetched once with the Ivy in pyspark.

`ivy.xml` says which. They live beside the packages of the virtual environment (or in the user's cache, if there is
none), in a folder named after what `ivy.xml` says: a changed one is fetched anew, a half-fetched one is never seen.
"""

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import rich.console
import rich.progress

from almanac import errors, java, truststore

IVY_XML = Path(__file__).with_name("ivy.xml")
MANIFEST = "jars.json"  # name and size of each jar: written last, so it is the proof of completeness
ATTEMPTS = 2  # a second one goes on with what the first has fetched
LINE_EVERY_S = 3.0  # where progress is lines


@dataclass(frozen=True, kw_only=True)
class Progress:
    step: Literal["resolving", "fetching"]
    done: int
    total: int | None  # known once everything is resolved
    name: str


def root() -> Path:
    """Where jars are kept."""
    if chosen := os.environ.get("ALMANAC_JARS"):
        return Path(chosen)
    if sys.prefix != sys.base_prefix:
        return Path(sys.prefix) / "share" / "almanac" / "jars"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "almanac" / "jars"


def folder() -> Path:
    """Where the jars of this version of Almanac are, once they are fetched."""
    wanted = IVY_XML.read_bytes() + importlib.metadata.version("pyspark").encode()
    return root() / hashlib.sha256(wanted).hexdigest()[:12]


def spark_jars() -> list[Path]:
    """What Spark needs on its class path beside what pyspark carries."""
    return _all("spark")


def broker_classpath() -> str:
    """The class path of the embedded Kafka."""
    return os.pathsep.join(str(jar) for jar in _all("broker"))


def complete() -> bool:
    """Whether every jar is there, with the size it was fetched with."""
    try:
        sizes: dict[str, int] = json.loads((folder() / MANIFEST).read_text())
        return all((folder() / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


def fetch(report: Callable[[Progress], None]) -> None:
    """Fetch what is missing. Safe to call from several processes, and again after a failure."""
    with _lock():
        if complete():
            return
        target = folder()
        with tempfile.TemporaryDirectory(dir=root(), prefix="incoming-") as name:
            incoming = Path(name)
            cache = root() / "ivy"  # outlives a failure, so that the next attempt has less to do
            _ivy(cache, incoming, report)
            for jar in _carried(incoming / "spark"):
                jar.unlink()
            sizes = {str(jar.relative_to(incoming)): jar.stat().st_size for jar in incoming.glob("*/*.jar")}
            (incoming / MANIFEST).write_text(json.dumps(sizes, indent=1, sort_keys=True))
            for earlier in root().iterdir():
                if earlier != incoming and earlier.name != "lock":
                    shutil.rmtree(earlier, ignore_errors=True)
            incoming.rename(target)
            incoming.mkdir()  # for the context to remove
            target.chmod(0o755)


def _all(conf: str) -> list[Path]:
    jars = sorted((folder() / conf).glob("*.jar")) if complete() else []
    if not jars:
        raise errors.JarsMissing(f"{errors.JarsMissing.__doc__} They belong in {folder()}.")
    return jars


@contextmanager
def _lock() -> Iterator[None]:
    root().mkdir(parents=True, exist_ok=True)
    with (root() / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _pyspark_jars() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise errors.JarsMissing("The package pyspark, which brings Ivy and Spark's own jars, is not installed.")
    return Path(spec.origin).parent / "jars"


def _carried(fetched: Path) -> Iterator[Path]:
    """Those of the fetched jars that pyspark carries, whatever the version: two of a kind on one class path clash."""
    carried = {_module(jar) for jar in _pyspark_jars().glob("*.jar")}
    return (jar for jar in fetched.glob("*.jar") if _module(jar) in carried)


def _module(jar: Path) -> str:
    """lz4-java of lz4-java-1.8.0.jar."""
    return re.sub(r"-\d[\w.]*(-(\d+|[A-Za-z]\w*))?$", "", jar.stem)


def _ivy(cache: Path, target: Path, report: Callable[[Progress], None]) -> None:
    runtime = java.find()
    ivy = next(_pyspark_jars().glob("ivy-*.jar"))
    options = _proxy()
    if runtime.bundled and (authorities := truststore.authorities()):
        cache.mkdir(exist_ok=True)
        truststore.write(store := cache / "trusted.jks", authorities)
        options += [f"-Djavax.net.ssl.trustStore={store}", f"-Djavax.net.ssl.trustStorePassword={truststore.PASSWORD}"]
    settings = ["-settings", chosen] if (chosen := os.environ.get("ALMANAC_IVY_SETTINGS")) else []
    command = [
        str(runtime.executable), *options, "-jar", str(ivy), *settings, "-ivy", str(IVY_XML), "-cache", str(cache),
        "-retrieve", f"{target}/[conf]/[artifact]-[revision].[ext]",
    ]  # fmt: skip
    for _ in range(ATTEMPTS):
        reason = _run(command, report)
        if reason is None:
            return
    raise errors.JarsMissing(
        f"The jars could not be fetched: {reason}. Check that this machine reaches a Maven repository (a proxy: set "
        "https_proxy; a mirror: name an Ivy settings file in ALMANAC_IVY_SETTINGS), then start again: what is already "
        "fetched is kept."
    )


def _run(command: list[str], report: Callable[[Progress], None]) -> str | None:
    """Run Ivy; None if all is there, else what it said was wrong."""
    found = fetched = 0
    problems: list[str] = []
    ivy = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    with ivy:
        assert ivy.stdout is not None  # it is a pipe
        for line in ivy.stdout:
            if match := re.match(r"\s+found \S+#(\S+);", line):
                found += 1
                report(Progress(step="resolving", done=found, total=None, name=match[1]))
            elif match := re.match(r"\s+\[SUCCESSFUL \] \S+#(\S+);", line):
                fetched += 1
                report(Progress(step="fetching", done=fetched, total=max(found, fetched), name=match[1]))
            elif match := re.search(r"Server access error.*|.*Exception:.*|module not found: .*|FAILED.*", line):
                problems.append(match[0].strip())
    if ivy.returncode == 0:
        return None
    return problems[0] if problems else f"Ivy ended with exit code {ivy.returncode}"


def _proxy() -> list[str]:
    """Java does not read the variables that name a proxy."""
    options = []
    for scheme in ("http", "https"):
        address = urllib.parse.urlsplit(urllib.request.getproxies().get(scheme, ""))
        if address.hostname:
            options += [f"-D{scheme}.proxyHost={address.hostname}", f"-D{scheme}.proxyPort={address.port or 80}"]
    return options


def ensure(console: rich.console.Console) -> None:
    """Fetch what is missing and show it: with a bar on a terminal, a line now and then elsewhere."""
    if complete():
        return
    start = time.monotonic()
    console.print("Jars: fetching Spark's connectors and Kafka (a minute or two, once)")
    _fetch_with_progress(console)
    console.print(f"Jars: all there after {time.monotonic() - start:.0f} s")


def _fetch_with_progress(console: rich.console.Console) -> None:
    if console.is_terminal:
        with rich.progress.Progress(console=console, transient=True) as bar:
            task = bar.add_task("Jars", total=None)
            fetch(lambda p: bar.update(task, completed=p.done, total=p.total, description=f"Jars: {p.step} {p.name}"))
        return
    last = 0.0

    def line(p: Progress) -> None:
        nonlocal last
        if time.monotonic() - last >= LINE_EVERY_S:
            last = time.monotonic()
            console.print(f"Jars: {p.step} {p.done}{f' of {p.total}' if p.total else ''}: {p.name}")

    fetch(line)


def main() -> None:
    """`python -m almanac.jars`: fetches the jars, if they are not there."""
    try:
        ensure(rich.console.Console(highlight=False, soft_wrap=True))
    except errors.AlmanacError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
