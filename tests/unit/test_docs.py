"""The documentation says what the code says. `python tests/unit/test_docs.py` writes the table of settings anew."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from almanac import client, errors, passthrough, runner, settings, sources, topics
from almanac.settings import Settings

DOCS = Path(__file__).parents[2] / "docs"
RUNNING, FORMATS, CLIENT = DOCS / "running.md", DOCS / "formats.md", DOCS / "client.md"
TABLE = re.compile(r"(<!-- settings[^\n]*-->\n).*?(<!-- /settings -->)", re.DOTALL)


def table() -> str:
    """Every setting: its variable, default, meaning, and what is allowed."""
    lines = ["| setting | default | what | allowed |", "|---|---|---|---|"]
    for name in settings.NAMES:
        field = Settings.model_fields[name]
        section = passthrough.SECTIONS.get(name)
        called = (
            f"`{section}` in the file" if section else " or ".join(f"`{each}`" for each in settings.environment(name))
        )
        cells = (called, default(name), str(field.description), settings.allowed(name))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def default(name: str) -> str:
    value = Settings.model_fields[name].default
    if name == "schedules_topics":
        value = ",".join(topic for topic, _ in value)
    return "" if value in (None, (), {}) else f"`{passthrough.text(value)}`"


def test_the_table_of_settings() -> None:
    found = TABLE.search(RUNNING.read_text(encoding="utf-8"))
    assert found is not None
    assert found[0] == f"{found[1]}{table()}{found[2]}", "stale: run `python tests/unit/test_docs.py`"


def test_every_exit_code() -> None:
    def below(kind: type[errors.AlmanacError]) -> set[int]:
        return {kind.exit_code}.union(*(below(each) for each in kind.__subclasses__()))

    documented = set(re.findall(r"^\| (\d+) \|", RUNNING.read_text(encoding="utf-8"), re.MULTILINE))
    assert runner.Replaced in errors.AlmanacError.__subclasses__()
    assert {str(code) for code in below(errors.AlmanacError)} <= documented


def test_the_configuration_of_every_topic() -> None:
    text = RUNNING.read_text(encoding="utf-8")
    for spec in topics.wanted(Settings()):
        missing = [f"{key}={value}" for key, value in spec.configs.items() if f"`{key}={value}`" not in text]
        assert not missing, spec.name


def test_the_peers_names_of_settings() -> None:
    text = FORMATS.read_text(encoding="utf-8")
    others = [variable for name in settings.NAMES for variable in settings.environment(name)[1:]]
    assert not [variable for variable in (*others, *sources.SKY) if f"`{variable}`" not in text]


def test_every_refusal_of_the_client() -> None:
    text = CLIENT.read_text(encoding="utf-8")
    assert not [kind.__name__ for kind in client.ClientError.__subclasses__() if f"| `{kind.__name__}` |" not in text]


@pytest.mark.parametrize("guide", ["client.md", "consumers.md"])
def test_a_type_checker_is_content_with_the_examples(guide: str, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / guide).read_text(encoding="utf-8"), re.DOTALL)
    program = tmp_path / "example.py"
    program.write_text("\n".join(blocks), encoding="utf-8")
    check = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-incremental", str(program)]
    done = subprocess.run(check, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout


def main() -> None:
    text = RUNNING.read_text(encoding="utf-8")
    RUNNING.write_text(TABLE.sub(lambda found: f"{found[1]}{table()}{found[2]}", text), encoding="utf-8")


if __name__ == "__main__":
    main()
