"""The command line where no Kafka is needed."""

import json
import logging
import sys
import types
from pathlib import Path

import pytest
from typer.testing import CliRunner

from almanac import errors, log
from almanac.cli import app
from almanac.settings import Settings

run = CliRunner().invoke


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BOOTSTRAP_SERVERS", "GROUP_ID", "CONFIGURATION_FILE", "SCHEDULES_TOPICS", "LOG_LEVEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.mark.parametrize(
    "command",
    [
        ["up"],
        ["run"],
        ["mini"],
        ["schedule"],
        ["reschedule"],
        ["cancel"],
        ["ls"],
        ["show"],
        ["explain"],
        ["stats"],
        ["history"],
        ["dead-letters"],
        ["top"],
        ["pause"],
        ["resume"],
        ["cap"],
        ["migrate"],
        ["export"],
        ["import"],
        ["topics", "apply"],
        ["doctor"],
        ["config"],
        ["schema"],
        ["version"],
    ],
)
def test_help_shows_an_example(command: list[str]) -> None:
    result = run(app, [*command, "--help"])
    assert result.exit_code == 0
    assert "Example:" in result.stdout
    assert "--bootstrap-servers" in result.stdout


def test_config_shows_values_origins_and_no_secrets(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(
        "kafka.common.configuration: {sasl.password: hunter2, bootstrap.servers: 'far:1'}\nshards: 2\n",
        encoding="utf-8",
    )
    result = run(app, ["config", "--config", str(file), "--json"], env={"GROUP_ID": "billing"})
    assert result.exit_code == 0
    shown = json.loads(result.stdout)
    assert shown["settings"]["group_id"] == {"value": "billing", "origin": "environment GROUP_ID"}
    assert shown["settings"]["shards"] == {"value": 2, "origin": f"file {file}"}
    assert shown["derived"]["shard topic"] == "billing-shards"
    assert "bootstrap.servers" in shown["notes"][0]
    table = run(app, ["config", "--config", str(file)], env={"GROUP_ID": "billing"})
    assert "environment GROUP_ID" in table.stdout
    assert "hunter2" not in result.output + table.output


def test_an_option_is_checked_as_a_variable_is() -> None:
    result = run(app, ["config", "--shards", "none"], env={"GROUP_ID": "a b"})
    assert result.exit_code == 2
    assert "--shards='none': must be 1 to 1000" in result.stderr
    assert "GROUP_ID='a b'" in result.stderr
    assert "Traceback" not in result.output


def test_debug_shows_where_an_error_comes_from() -> None:
    result = run(app, ["config", "--shards", "none", "--debug"])
    assert isinstance(result.exception, errors.SettingsError)


def test_version() -> None:
    assert json.loads(run(app, ["version", "--json"]).stdout)["pyspark"]
    assert "librdkafka" in run(app, ["version"]).stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--at", "+1h", "--topic", "t"], "either --value or --value-file"),
        (["--at", "+1h", "--topic", "t", "--value", "x", "--value-file", "y"], "either --value or --value-file"),
        (["--at", "+1h", "--topic", "t", "--value-file", "/does/not/exist"], "cannot be read"),
        (["--at", "1000", "--topic", "t", "--value", "x"], "has passed"),
        (["--at", "soon", "--topic", "t", "--value", "x"], "not understood"),
        (["--at", "+1h", "--topic", "t t", "--value", "x"], "no topic's name"),
        (["--at", "+1h", "--topic", "t", "--value", "x", "--id", ""], "is empty"),
        (["--at", "+1h", "--topic", "t", "--value", "x", "--header", "a"], "name=value"),
        (["--at", "+1h", "--topic", "t", "--value", "x", "--header", "scheduler-epoch=1"], "reserved"),
        (["--at", "+1h", "--topic", "t", "--value", "x", "--schedules-topic", "other"], "is not read"),
        (["--at", "+1h", "--topic", "t", "--value", "x", "--tz", "Mars/Base"], "no time zone"),
    ],
)
def test_schedule_refuses(arguments: list[str], says: str) -> None:
    result = run(app, ["schedule", *arguments])
    assert result.exit_code == 2
    assert says in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize("command", ["up", "run"])
def test_the_scheduler_gets_the_settings(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Settings] = []
    service = types.ModuleType("almanac.service")
    vars(service).update(up=seen.append, run=seen.append)
    monkeypatch.setitem(sys.modules, "almanac.service", service)
    monkeypatch.setattr("almanac.service", service, raising=False)
    assert run(app, [command, "--shards", "3", "--schedules-topics", "a,b"]).exit_code == 0
    assert (seen[0].shards, seen[0].topics) == (3, ("a", "b"))


@pytest.mark.parametrize(
    ("error", "code"), [(errors.PortTaken("port 1 is taken"), 4), (errors.Unreachable(), 7), (ValueError("oops"), 1)]
)
def test_an_error_is_a_message_and_an_exit_code(error: Exception, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(settings: Settings) -> None:
        raise error

    service = types.ModuleType("almanac.service")
    vars(service).update(run=fail)
    monkeypatch.setitem(sys.modules, "almanac.service", service)
    monkeypatch.setattr("almanac.service", service, raising=False)
    result = run(app, ["run"])
    assert result.exit_code == code
    assert str(error) in result.stderr
    assert "Traceback" not in result.output


def test_json_logs() -> None:
    record = logging.makeLogRecord(
        {"name": "almanac", "levelname": "INFO", "msg": "fired %d", "args": (3,), "shard": 1}
    )
    line = json.loads(log.JsonLines().format(record))
    assert (line["message"], line["shard"], line["level"]) == ("fired 3", 1, "INFO")


def test_schema_prints_what_the_peers_need() -> None:
    avro = run(app, ["schema", "sky-avro"])
    assert [field["name"] for field in json.loads(avro.stdout)["fields"]] == [
        "time",
        "topic",
        "key",
        "value",
        "headers",
    ]
    assert "message Future" in run(app, ["schema", "timers"]).stdout
    refused = run(app, ["schema", "etf1"])
    assert refused.exit_code == 2
    assert "sky-avro, timers" in refused.output
