import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from almanac import errors, java


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    java.find.cache_clear()
    yield
    java.find.cache_clear()


def fake_java(home: Path, version: str) -> Path:
    """A program that says it is a Java of this version."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(
        f'#!/bin/sh\necho "    java.home = {home}" >&2\necho "    java.specification.version = {version}" >&2\n'
    )
    executable.chmod(0o755)
    return home


@pytest.fixture
def no_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)


def test_java_home_comes_before_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", "21")))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "path", "17") / "bin"))
    assert java.find() == java.Java(home=tmp_path / "home", version=21, bundled=False)


@pytest.mark.parametrize("version", ["1.8", "11", "25"])
def test_a_java_that_spark_does_not_support_is_passed_over(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", version)))
    path = [tmp_path / "empty", fake_java(tmp_path / "path", "17") / "bin"]
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, path)))
    assert java.find().home == tmp_path / "path"


def test_a_home_that_is_reached_by_a_link_is_the_real_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(tmp_path / "home", "17")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(home / "bin" / "java")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "links"))
    assert java.find().home == home


@pytest.mark.usefixtures("no_bundle")
def test_no_java_says_what_was_passed_over_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "old", "11") / "bin"))
    with pytest.raises(errors.JavaMissing) as raised:
        java.find()
    said = str(raised.value)
    assert "JAVA_HOME" in said
    assert "almanac[java]" in said
    assert f"{tmp_path}/gone/bin/java does not run" in said
    assert f"{tmp_path}/old/bin/java is Java 11" in said


def test_the_java_of_this_machine_runs() -> None:
    assert java.OLDEST <= java.find().version <= java.NEWEST
    assert java.find().executable.is_file()
