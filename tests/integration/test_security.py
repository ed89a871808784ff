"""The scheduler on a Kafka with SASL_SSL and SCRAM, configured with the README's YAML."""

import re
import uuid
from pathlib import Path

import applications
import pytest
import yaml
from applications import almanac, received, schedule
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from waiting import until

from almanac.book import read
from almanac.broker import Broker
from almanac.settings import Settings

README = Path(__file__).parents[2] / "README.md"


def configuration(broker: Broker, folder: Path, password: str | None = None) -> Path:
    """The YAML of the README, with the values of this broker in it."""
    block = re.search(r"```yaml\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    told = yaml.safe_load(block[1])
    sasl = broker.config.sasl
    assert sasl is not None
    ours = {
        "sasl.username": sasl.user,
        "sasl.password": sasl.password if password is None else password,
        "ssl.ca.location": str(sasl.authority),
    }
    assert set(ours) <= set(told["kafka.common.configuration"])
    told["kafka.common.configuration"] |= ours
    file = folder / "kafka.yaml"
    file.write_text(yaml.safe_dump(told), encoding="utf-8")
    return file


@pytest.fixture
def environ(sasl_broker: Broker, tmp_path: Path) -> dict[str, str]:
    """Of a group with topics, a book and an event log of its own."""
    name = f"s{uuid.uuid4().hex[:8]}"
    (tmp_path / "events").mkdir()
    return {
        "BOOTSTRAP_SERVERS": sasl_broker.bootstrap_servers,
        "CONFIGURATION_FILE": str(configuration(sasl_broker, tmp_path)),
        "GROUP_ID": name,
        "SCHEDULES_TOPICS": f"{name}-schedules",
        "HISTORY_TOPIC": f"{name}-history",
        "DEAD_LETTERS_TOPIC": f"{name}-dead",
        "SHARDS": "1",
        "PAGE_LENGTH": "2",
        "BOOK_LOCATION": str(tmp_path / "book"),
        "SPARK_EVENT_LOG": str(tmp_path / "events"),
    }


@pytest.fixture
def target(sasl_broker: Broker, environ: dict[str, str]) -> str:
    name = f"{environ['GROUP_ID']}-target"
    admin = AdminClient(sasl_broker.client_settings())
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    return name


def shows(text: str, password: str) -> bool:
    """Is the password in it, quoted in whatever way?"""
    bare = re.compile(r'[\\"]')
    return bare.sub("", password) in bare.sub("", text)


@pytest.mark.long  # the command line reads the same file: test_cli
@pytest.mark.timeout(300)
def test_wheels_and_book_work_and_nothing_tells_the_password(
    sasl_broker: Broker, environ: dict[str, str], target: str, tmp_path: Path
) -> None:
    topic = environ["SCHEDULES_TOPICS"]
    settings = Settings.load({}, environ)
    with almanac(environ, tmp_path) as first:
        first.says("Up:")
        schedule(sasl_broker, topic, target, "live", 0.5)
        assert received(sasl_broker, target, 1, 1, 30)[0].value() == b"live"
        place, offset = schedule(sasl_broker, topic, target, "from the book", 45)

        def read_and_turned() -> bool:
            known = read.Reader(settings.book_folder).position().offsets.get((topic, place), 0)
            pages = [int(page.name.split("-")[0]) for page in Path(settings.book_folder, "pages").iterdir()]
            return known > offset and max(pages, default=0) >= 2

        until(read_and_turned, 60, "the book has read the schedule and a page was turned")
        assert first.end() == 0
    with almanac(environ, tmp_path) as second:
        second.says("Up:")
        assert [message.value() for message in received(sasl_broker, target, 1, 2, 60)] == [b"live", b"from the book"]
        assert second.end() == 0
    with almanac(environ, tmp_path, "config") as config:
        assert config.ended() == 0
    assert "sasl.password" in config.text

    sasl = sasl_broker.config.sasl
    assert sasl is not None
    told = applications.event_log(tmp_path / "events")
    assert "SparkListenerApplicationEnd" in told
    assert shows(Path(environ["CONFIGURATION_FILE"]).read_text(encoding="utf-8"), sasl.password)  # shows() sees it
    for what, text in {"run": first.text + second.text, "config": config.text, "event log": told}.items():
        assert not shows(text, sasl.password), f"the password is in {what}"


def test_a_wrong_password_is_named(sasl_broker: Broker, environ: dict[str, str], tmp_path: Path) -> None:
    file = configuration(sasl_broker, tmp_path, password="not-the-right-one")
    with almanac({**environ, "CONFIGURATION_FILE": str(file)}, tmp_path) as refused:
        refused.says("Authentication failed", 60)
        refused.says("Kafka: waiting", 60)
        assert refused.end() == 0
    assert "not-the-right-one" not in refused.text
    assert "Traceback" not in refused.text
