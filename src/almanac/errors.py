"""What can go wrong, and what to do about it.

    AlmanacError                  1   anything below
    ├── JavaMissing               1   no Java that Spark can run on
    ├── JarsMissing               1   the jars are not there and cannot be fetched
    ├── UsageError                2   a command or a call that cannot work as it is written
    │   ├── SettingsError         2   one or more settings are wrong
    │   └── TimeRefused           2   a point in time that is not understood, or does not exist
    ├── AddressTaken              4   somebody else listens where metrics or the REST interface should be served
    ├── Unreachable               7   Kafka does not answer a command that needs it at once
    └── BrokerError               1   the embedded Kafka
        ├── PortTaken             4   somebody else listens where it should
        ├── FolderInUse           4   another embedded Kafka works in its data folder
        ├── DiskFull              5   no room for its data
        ├── CorruptFolder         6   its data folder cannot be read
        └── BrokerDied            1   it ended by itself, or never answered

The number is the exit code of a command that ends with the error. A message names what was wrong, the value, and what
to do; where an error is raised without one, its docstring is the message.
"""

from typing import ClassVar


class AlmanacError(Exception):
    """Something went wrong in Almanac."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or type(self).__doc__)


class JavaMissing(AlmanacError):
    """No Java 17 or 21 was found. Install one, set JAVA_HOME to it, or run `pip install 'almanac[java]'`."""


class JarsMissing(AlmanacError):
    """The jars of Spark's connectors and of the embedded Kafka are not there. Fetch them: `python -m almanac.jars`."""


class BrokerError(AlmanacError):
    """The embedded Kafka does not run."""


class PortTaken(BrokerError):
    """A port of the embedded Kafka is taken."""

    exit_code = 4


class FolderInUse(BrokerError):
    """The data folder of the embedded Kafka is in use by another one."""

    exit_code = 4


class DiskFull(BrokerError):
    """The disk that holds the embedded Kafka's data is full. Make room and start again."""

    exit_code = 5


class CorruptFolder(BrokerError):
    """The data folder of the embedded Kafka cannot be read. Restore it from a copy, or remove it and lose its data."""

    exit_code = 6


class BrokerDied(BrokerError):
    """The embedded Kafka ended by itself."""


class UsageError(AlmanacError):
    """This cannot work as it is written. `--help` shows an example."""

    exit_code = 2


class SettingsError(UsageError):
    """One or more settings are wrong; `problems` holds (name, value, what is allowed) of each."""

    def __init__(self, problems: list[tuple[str, str, str]]) -> None:
        self.problems = problems
        lines = [f"{name}={value!r}: {allowed}" for name, value, allowed in problems]
        head = "wrong setting" if len(lines) == 1 else f"{len(lines)} wrong settings"
        super().__init__(f"{head}: {lines[0]}" if len(lines) == 1 else "\n  ".join([f"{head}:", *lines]))

    def __reduce__(self) -> tuple[type, tuple[list[tuple[str, str, str]]]]:
        return type(self), (self.problems,)


class TimeRefused(UsageError):
    """This point in time is not understood, or does not exist."""


class AddressTaken(AlmanacError):
    """Somebody else listens where something should be served."""

    exit_code = 4


class Unreachable(AlmanacError):
    """Kafka does not answer. Is it up, and does BOOTSTRAP_SERVERS name it?"""

    exit_code = 7


def brief(error: BaseException) -> str:
    """An error's first line, for a sentence that tells of it."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
