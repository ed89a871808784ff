import stat
from pathlib import Path

import pytest

from almanac import errors, jars, java


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place for jars."""
    monkeypatch.setenv("ALMANAC_JARS", str(tmp_path / "jars"))
    return tmp_path / "jars"


@pytest.fixture
def ivy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java that plays Ivy: each run adds a line to the file `runs`."""
    home = tmp_path / "fake"
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        """#!/bin/sh
echo run >> "$(dirname "$0")/../runs"
if [ -e "$(dirname "$0")/../offline" ]; then
  echo "	Server access error at url example (java.net.UnknownHostException: example)"
  exit 1
fi
for last in "$@"; do :; done
target=${last%%/\\[conf\\]*}
mkdir -p "$target/spark" "$target/broker"
echo "	found org.example#connector;1.0 in public"
echo "	found org.example#scala-library;2.13.0 in public"
echo "	[SUCCESSFUL ] org.example#connector;1.0!connector.jar (1ms)"
echo spark > "$target/spark/connector-1.0.jar"
echo twice > "$target/spark/scala-library-2.13.0.jar"
echo kafka > "$target/broker/kafka-4.1.0.jar"
"""
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(java, "find", lambda: java.Java(home=home, version=17, bundled=False))
    return home


def runs(ivy: Path) -> int:
    return len((ivy / "runs").read_text().splitlines())


@pytest.mark.usefixtures("elsewhere")
def test_missing_jars_are_said_to_be_missing_with_the_command() -> None:
    with pytest.raises(errors.JarsMissing, match=r"python -m almanac\.jars"):
        jars.spark_jars()


@pytest.mark.usefixtures("elsewhere")
def test_fetched_once_and_without_what_pyspark_carries(ivy: Path) -> None:
    seen: list[jars.Progress] = []
    jars.fetch(seen.append)
    jars.fetch(seen.append)
    assert runs(ivy) == 1
    assert [jar.name for jar in jars.spark_jars()] == ["connector-1.0.jar"]
    assert jars.broker_classpath().endswith("kafka-4.1.0.jar")
    assert [(p.step, p.done, p.total) for p in seen] == [
        ("resolving", 1, None),
        ("resolving", 2, None),
        ("fetching", 1, 2),
    ]


def test_a_damaged_jar_is_fetched_again_and_earlier_versions_are_removed(elsewhere: Path, ivy: Path) -> None:
    (elsewhere / "earlier").mkdir(parents=True)
    jars.fetch(lambda _: None)
    jars.spark_jars()[0].write_text("")
    assert not jars.complete()
    jars.fetch(lambda _: None)
    assert jars.complete()
    assert runs(ivy) == 2
    assert sorted(elsewhere.iterdir()) == sorted([elsewhere / "lock", jars.folder()])


def test_an_unreachable_registry_leaves_nothing_behind_and_says_so(elsewhere: Path, ivy: Path) -> None:
    (ivy / "offline").touch()
    with pytest.raises(errors.JarsMissing, match=r"UnknownHostException.*Check that this machine reaches"):
        jars.fetch(lambda _: None)
    assert runs(ivy) == jars.ATTEMPTS
    assert list(elsewhere.iterdir()) == [elsewhere / "lock"]


def test_a_proxy_is_told_to_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    assert "-Dhttps.proxyHost=proxy.example" in jars._proxy()
    assert "-Dhttps.proxyPort=3128" in jars._proxy()


def test_the_module_of_a_jar() -> None:
    names = ["lz4-java-1.8.0", "zstd-jni-1.5.6-10", "spark-sql-kafka-0-10_2.13-4.1.1", "javassist-3.30.2-GA"]
    modules = [jars._module(Path(f"{name}.jar")) for name in names]
    assert modules == ["lz4-java", "zstd-jni", "spark-sql-kafka-0-10_2.13", "javassist"]


def test_the_jars_of_this_machine_are_complete() -> None:
    assert jars.complete()
    assert any("delta-spark" in jar.name for jar in jars.spark_jars())
