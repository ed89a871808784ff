"""The examples print what they say, and the tutorial's commands do what it says, as a newcomer runs them."""

import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from applications import Application, almanac
from waiting import until

from almanac.broker import ports

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if path.stem != "arrivals")
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")


class Desk:
    """A terminal beside `almanac up`."""

    def __init__(self, folder: Path, servers: str, up: Application) -> None:
        self.folder, self.servers, self._up = folder, servers, up
        tools = folder / "bin"
        tools.mkdir()
        for name, command in (("almanac", f"{sys.executable} -m almanac"), ("python", sys.executable)):
            script = tools / name
            script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
            script.chmod(script.stat().st_mode | stat.S_IXUSR)
        (folder / "examples").symlink_to(ROOT / "examples")
        path = f"{tools}:{os.environ['PATH']}"
        self.environ = {**os.environ, "PATH": path, "BOOTSTRAP_SERVERS": servers, "COLUMNS": "200"}

    def types(self, command: str) -> str:
        """What the command prints; it must succeed."""
        done = subprocess.run(
            command, shell=True, cwd=self.folder, env=self.environ, capture_output=True, text=True, timeout=90
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}\n{done.stderr}\n{self._up.text[-2000:]}"
        return done.stdout


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder, port = tmp_path_factory.mktemp("desk"), ports.free()
    environ = {"ALMANAC_KAFKA_PORT": str(port), "BOOTSTRAP_SERVERS": f"localhost:{port}"}
    with almanac(environ, folder, "up") as up:
        up.says("Up:")
        yield Desk(folder, f"localhost:{port}", up)
        assert up.end() == 0


def test_every_use_case_has_its_example() -> None:
    listed = re.findall(
        r"^\| \[(\w+)\.py\]", (ROOT / "examples" / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(listed) == [path.stem for path in EXAMPLES]
    assert len(listed) == 12


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_it_says(path: Path, desk: Desk) -> None:
    promised = re.search(r'It prints:\n(.*?)"""', path.read_text(encoding="utf-8"), re.DOTALL)
    assert promised is not None
    assert desk.types(f"python examples/{path.name}") == dedent(promised[1])


def commands(heading: str) -> list[str]:
    """What the tutorial has typed below a heading."""
    part = TUTORIAL.split(f"## {heading}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"<!-- run -->\n```console\n(.*?)```", part, re.DOTALL)
    return [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]


def test_tutorial_the_first_message(desk: Desk) -> None:
    schedule, explain = commands("The first message")
    assert "vid1-online" in desk.types(schedule)
    assert "scheduled" in desk.types(explain)
    until(lambda: "fired" in desk.types(explain), 30, "explain says that it fired")


def test_tutorial_changing_your_mind(desk: Desk) -> None:
    first, second, ls, cancel, ls_again = commands("Changing your mind")
    for command in (first, second):
        assert "vid2-online" in desk.types(command)
    shown = desk.types(ls)
    assert shown.count("vid2-online") == 1
    desk.types(cancel)
    assert "vid2-online" not in desk.types(ls_again)


def test_tutorial_from_a_program(desk: Desk) -> None:
    program = re.search(r"```python\n(.*?)```", TUTORIAL, re.DOTALL)
    assert program is not None
    (desk.folder / "program.py").write_text(program[1].replace("localhost:9092", desk.servers))
    desk.types("python program.py")
    assert "cancelled" in desk.types("almanac explain cart-42")
    (example,) = commands("From a program")
    assert desk.types(example) == "delete bob\ndelete alice\n"


def test_tutorial_taking_it_with_you(desk: Desk) -> None:
    schedule, export, cancel, dry_run, again, ls = commands("Taking it with you")
    for command in (schedule, export, cancel, dry_run):
        desk.types(command)
    assert "new-year" not in desk.types(ls)
    desk.types(again)
    assert "new-year" in desk.types(ls)
    desk.types(cancel)


def test_tutorial_when_something_is_wrong(desk: Desk) -> None:
    doctor, config = commands("When something is wrong")
    assert "ok" in desk.types(doctor)
    assert "BOOTSTRAP_SERVERS" in desk.types(config)
