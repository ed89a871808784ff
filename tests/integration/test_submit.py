"""The scheduler as an application of spark-submit."""

import signal
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

import applications
import pytest
from applications import Application, received, schedule
from conftest import MakeTopic
from waiting import until

from almanac.book import read
from almanac.broker import Broker
from almanac.java import find

BIN = Path(sys.executable).parent


def told(option: str) -> str:
    """What `python -m almanac.submit` says."""
    asked = subprocess.run([sys.executable, "-m", "almanac.submit", option], capture_output=True, text=True, check=True)
    return asked.stdout.strip()


@pytest.fixture
def environ(broker: Broker, tmp_path: Path) -> dict[str, str]:
    name = f"u{uuid.uuid4().hex[:8]}"
    (tmp_path / "events").mkdir()
    return {
        "BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "GROUP_ID": name,
        "SCHEDULES_TOPICS": f"{name}-schedules",
        "HISTORY_TOPIC": f"{name}-history",
        "DEAD_LETTERS_TOPIC": f"{name}-dead",
        "BOOK_LOCATION": str(tmp_path / "book"),
        "SPARK_EVENT_LOG": str(tmp_path / "events"),
        "PYSPARK_PYTHON": sys.executable,
        "JAVA_HOME": str(find().home),
    }


def submitted(environ: dict[str, str], folder: Path, master: str, arguments: Sequence[str] = ()) -> Application:
    command = [str(BIN / "spark-submit"), "--master", master, "--jars", told("--jars"), told("--path"), *arguments]
    return Application(command, environ, folder)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_it_fires_stops_in_order_and_names_its_jobs(
    broker: Broker, environ: dict[str, str], make_topic: MakeTopic, tmp_path: Path
) -> None:
    target = make_topic("target", 1)
    arguments = ["--shards", "1", "--page-length", "2"]
    with submitted(environ, tmp_path, "local[3,8]", arguments) as application:
        application.says("Up:")
        schedule(broker, environ["SCHEDULES_TOPICS"], target, "fired", 0.5)
        assert received(broker, target, 1, 1, 30)[0].value() == b"fired"
        until(lambda: any((tmp_path / "book").glob("*/pages/2-*")), 60, "a page was turned")
        folder = str(tmp_path / "book" / environ["GROUP_ID"])
        until(lambda: any(read.Reader(folder).position().offsets.values()), 60, "the book has read something")
        assert application.end(pid=application.child("python", told("--path")).pid) == 0
    assert "Stopped" in application.text

    groups, descriptions, master = set(), set(), None
    for event in applications.events(applications.event_log(tmp_path / "events")):
        if event["Event"] == "SparkListenerJobStart":
            groups.add(event["Properties"].get("spark.jobGroup.id"))
            descriptions.add(event["Properties"].get("spark.job.description"))
        elif event["Event"] == "SparkListenerEnvironmentUpdate":
            master = dict(event["Spark Properties"])["spark.master"]
    assert master == "local[3,8]"
    assert any(group.startswith("almanac wheel 0, claim ") for group in groups if group)
    assert {"almanac wheel 0", "almanac page 1", "almanac page 2"} <= descriptions
    assert any(text.startswith("almanac book, batch") for text in descriptions if text)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_nothing_is_left_when_spark_submit_itself_is_told_to_end(
    broker: Broker, environ: dict[str, str], make_topic: MakeTopic, tmp_path: Path
) -> None:
    target = make_topic("target", 1)
    with submitted(environ, tmp_path, "local[3,8]", ["--shards", "1"]) as application:
        application.says("Up:")
        assert application.end(signal.SIGTERM) == 128 + signal.SIGTERM
    schedule(broker, environ["SCHEDULES_TOPICS"], target, "fired", 0.5)
    with submitted(environ, tmp_path, "local[3,8]", ["--shards", "1"]) as successor:
        assert received(broker, target, 1, 1, applications.START_S)[0].value() == b"fired"
        successor.says("Up:")
        successor.end()


def test_too_few_slots_are_refused(environ: dict[str, str], tmp_path: Path) -> None:
    with submitted(environ, tmp_path, "local[2]", ["--shards", "1"]) as application:
        assert application.ended() == 2
    assert "Take local[3,8]" in application.text


def test_the_jars_and_the_application_are_there() -> None:
    assert all(Path(jar).is_file() for jar in told("--jars").split(","))
    assert Path(told("--path")).is_file()
    wrong = subprocess.run([sys.executable, "-m", "almanac.submit"], capture_output=True, text=True)
    assert wrong.returncode == 1
    assert "spark-submit --master" in wrong.stderr
    assert wrong.stdout == ""
