"""The command line on a real Kafka, plain and with SASL_SSL."""

import base64
import json
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable, write_deltalake
from typer.testing import CliRunner

from almanac import formats, kafka, scan, topics, words
from almanac.book import trust
from almanac.broker import Broker
from almanac.cli import app
from almanac.record import Record
from almanac.settings import Settings

run = CliRunner().invoke


@pytest.fixture
def environment(broker: Broker) -> dict[str, str]:
    """Of a group with its own topics, which exist."""
    name = f"c{uuid.uuid4().hex[:8]}"
    environ = {
        "BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "GROUP_ID": name,
        "SCHEDULES_TOPICS": f"{name}-schedules",
        "HISTORY_TOPIC": f"{name}-history",
        "DEAD_LETTERS_TOPIC": f"{name}-dead",
    }
    assert run(app, ["topics", "apply", "--yes"], env=environ).exit_code == 0
    return environ


def written(broker: Broker, place: dict[str, Any]) -> Record:
    """The record that a command says it wrote."""
    consumer = Consumer({**broker.client_settings(), "group.id": "test"})
    consumer.assign([TopicPartition(place["topic"], place["partition"], place["offset"])])
    try:
        message = consumer.poll(10)
    finally:
        consumer.close()
    assert message is not None
    assert message.error() is None
    return record(message)


def record(message: Any) -> Record:
    place = (message.topic(), message.partition(), message.offset())
    return Record(*place, message.timestamp()[1], message.key(), message.value(), message.headers() or [])


def test_a_schedule_is_a_record_that_the_format_reads(broker: Broker, environment: dict[str, str]) -> None:
    arguments = ["--at", "2030-01-01 00:00:00.250", "--tz", "Europe/Paris", "--topic", "never-made", "--key", "42"]
    more = ["--value", "hé", "--header", "a=b=c", "--header", "a=", "--id", "vid1"]
    result = run(app, ["schedule", *arguments, *more, "--json"], env=environment)
    assert result.exit_code == 0
    shown = json.loads(result.stdout)
    assert (shown["id"], shown["due_ms"]) == ("vid1", 1893452400250)
    assert (shown["due"], shown["due_utc"]) == ("2030-01-01 00:00:00.250+01:00", "2029-12-31 23:00:00.250+00:00")
    found = written(broker, shown)
    read = formats.schedule(found, formats.named("etf1"))
    assert found.key == b"vid1"
    assert (read.due, read.target, read.key, read.value) == (1893452400250, "never-made", b"42", "hé".encode())
    assert [header for header in found.headers if header[0] == "a"] == [("a", b"b=c"), ("a", b"")]
    assert "never-made does not exist yet" in result.stderr


def test_whole_seconds_are_written_as_the_peer_does(
    broker: Broker, environment: dict[str, str], tmp_path: Path
) -> None:
    payload = tmp_path / "payload"
    payload.write_bytes(b"\x00\xff")
    arguments = ["--at", "1893456000", "--topic", "mails", "--value-file", str(payload)]
    shown = json.loads(run(app, ["schedule", *arguments, "--json"], env=environment).stdout)
    found = written(broker, shown)
    assert found.headers == [("scheduler-epoch", b"1893456000"), ("scheduler-target-topic", b"mails")]
    assert found.value == b"\x00\xff"
    assert uuid.UUID(shown["id"])


def test_a_cancel_meets_its_schedule(broker: Broker, environment: dict[str, str]) -> None:
    arguments = ["--at", "+1h", "--topic", "mails", "--value", "x", "--id", "vid1"]
    scheduled = json.loads(run(app, ["schedule", *arguments, "--json"], env=environment).stdout)
    cancelled = json.loads(run(app, ["cancel", "vid1", "--no-wait", "--json"], env=environment).stdout)
    assert cancelled["partition"] == scheduled["partition"]
    found = written(broker, cancelled)
    assert (found.key, found.value, found.headers) == (b"vid1", None, [])
    assert "partition" in run(app, ["cancel", "vid1", "--no-wait"], env=environment).stdout


def test_a_cancel_that_no_scheduler_answers_is_unknown(broker: Broker, environment: dict[str, str]) -> None:
    arguments = ["--at", "+1h", "--topic", "mails", "--value", "x", "--id", "vid1"]
    run(app, ["schedule", *arguments], env=environment)
    result = run(app, ["cancel", "vid1", "--timeout", "0.3", "--json"], env=environment)
    assert result.exit_code == 7
    answer = json.loads(result.stdout)
    assert answer["answer"] == "unknown"
    assert (written(broker, answer).key, written(broker, answer).value) == (b"vid1", None)


def test_the_time_from_now_is_from_now(environment: dict[str, str]) -> None:
    before = time.time() * 1000
    shown = run(app, ["schedule", "--at", "+90s", "--topic", "t", "--value", "", "--json"], env=environment).stdout
    assert before + 89_999 <= json.loads(shown)["due_ms"] <= time.time() * 1000 + 90_001


def test_the_past_is_written_only_when_it_is_asked_for(environment: dict[str, str]) -> None:
    arguments = ["schedule", "--at", "2020-01-01 00:00Z", "--topic", "t", "--value", "x"]
    assert run(app, arguments, env=environment).exit_code == 2
    assert run(app, [*arguments, "--past"], env=environment).exit_code == 0


def test_people_see_the_due_time_in_both_zones(environment: dict[str, str]) -> None:
    today = datetime.now(UTC).year
    arguments = ["--at", f"{today + 1}-07-01 09:00", "--tz", "Asia/Tokyo", "--topic", "t", "--value", "x"]
    shown = run(app, ["schedule", *arguments], env=environment).stdout
    assert f"{today + 1}-07-01 09:00:00+09:00 ({today + 1}-07-01 00:00:00+00:00)" in shown


def test_no_schedules_topic_is_made_by_accident(environment: dict[str, str]) -> None:
    environ = environment | {"SCHEDULES_TOPICS": "nobody-made-this"}
    result = run(app, ["cancel", "x"], env=environ)
    assert result.exit_code == 2
    assert "almanac topics apply" in result.stderr


def test_topics_apply_asks_shows_and_applies(environment: dict[str, str]) -> None:
    environ = environment | {"RETENTION_DAYS": "1"}
    refused = run(app, ["topics", "apply"], env=environ)
    assert refused.exit_code == 2
    assert "--yes" in refused.stderr
    dry = json.loads(run(app, ["topics", "apply", "--dry-run", "--json"], env=environ).stdout)
    assert dry["applied"] is False
    assert [each["change"] for each in dry["topics"]] == ["none", "none", "alter", "alter"]
    assert dry["topics"][2]["configs"] == {"retention.ms": {"from": "604800000", "to": "86400000"}}
    applied = run(app, ["topics", "apply", "--yes"], env=environ)
    assert "retention.ms 604800000 -> 86400000" in applied.stdout
    again = json.loads(run(app, ["topics", "apply", "--json"], env=environ).stdout)
    assert (again["applied"], {each["change"] for each in again["topics"]}) == (False, {"none"})


def test_doctor_ends_with_one_if_something_fails(environment: dict[str, str]) -> None:
    healthy = run(app, ["doctor", "--json"], env=environment)
    assert healthy.exit_code == 0, healthy.stdout
    assert {check["status"] for check in json.loads(healthy.stdout)} <= {"ok", "warn"}
    sick = run(app, ["doctor"], env=environment | {"PARTITIONER": "random"})
    assert sick.exit_code == 1
    assert "murmur2_random" in sick.stdout


@pytest.mark.parametrize("command", [["cancel", "x"], ["topics", "apply", "--yes"]])
def test_a_kafka_that_is_away_ends_with_seven(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "ANSWER_SECONDS", 1.0)
    result = run(app, command, env={"BOOTSTRAP_SERVERS": "localhost:1"})
    assert result.exit_code == 7
    assert "BOOTSTRAP_SERVERS" in result.stderr
    assert "Traceback" not in result.output


def test_sasl_and_tls_from_the_yaml_file(sasl_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client: dict[str, Any] = {**sasl_broker.client_settings()}
    servers = str(client.pop("bootstrap.servers"))
    file = tmp_path / "kafka.yaml"
    file.write_text(yaml.safe_dump({"kafka.common.configuration": client}), encoding="utf-8")
    environ = {"BOOTSTRAP_SERVERS": servers, "CONFIGURATION_FILE": str(file)}
    assert run(app, ["topics", "apply", "--yes"], env=environ).exit_code == 0
    arguments = ["--at", "+1h", "--topic", "mails", "--value", "x", "--json"]
    shown = json.loads(run(app, ["schedule", *arguments], env=environ).stdout)
    assert written(sasl_broker, shown).value == b"x"
    monkeypatch.setattr(kafka, "ANSWER_SECONDS", 3.0)
    wrong = client | {"sasl.password": "wrong"}
    file.write_text(yaml.safe_dump({"kafka.common.configuration": wrong}), encoding="utf-8")
    refused = run(app, ["cancel", "x"], env=environ)
    assert refused.exit_code == 7
    assert "wrong" not in refused.output.replace("wrong setting", "")


def scheduled(environ: dict[str, str], id: str, at: str) -> dict[str, Any]:  # noqa: A002
    arguments = ["--at", at, "--topic", "mails", "--value", id, "--id", id, "--json"]
    shown: dict[str, Any] = json.loads(run(app, ["schedule", *arguments], env=environ).stdout)
    return shown


def listed(environ: dict[str, str], *arguments: str) -> list[dict[str, Any]]:
    result = run(app, ["ls", "--json", *arguments], env=environ)
    assert result.exit_code == 0, result.output
    rows: list[dict[str, Any]] = json.loads(result.stdout)
    return rows


def told(environ: dict[str, str], id: str) -> tuple[list[str], list[str]]:  # noqa: A002
    """What happened to the id, and the verdicts."""
    result = run(app, ["explain", id, "--json"], env=environ)
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    return [event["what"] for event in shown["events"]], shown["verdicts"]


def append(broker: Broker, topic: str, partition: int, key: str, value: bytes | None, /, **headers: str) -> int:
    """A record as the scheduler, or a careless user, would write it; its offset."""
    offsets: list[int] = []
    producer = Producer(broker.client_settings())
    pairs: list[Any] = [(name.replace("_", "-"), text.encode()) for name, text in headers.items()]
    delivered = lambda _, message: offsets.append(message.offset())  # noqa: E731
    producer.produce(topic, value, key.encode(), partition, delivered, headers=pairs)
    producer.flush(10)
    return offsets[0]


def test_ls_knows_what_was_said_a_moment_ago(environment: dict[str, str], tmp_path: Path) -> None:
    environ = environment | {"BOOK_LOCATION": str(tmp_path)}
    assert listed(environ) == []
    for number in range(5):
        scheduled(environ, f"id{number}", f"+{number + 1}h")
    scheduled(environ, "id0", "+9h")
    assert run(app, ["cancel", "id2", "--no-wait"], env=environ).exit_code == 0
    assert [row["id"] for row in listed(environ)] == ["id1", "id3", "id4", "id0"]
    assert [row["id"] for row in listed(environ, "--limit", "2")] == ["id1", "id3"]
    table = run(app, ["ls"], env=environ).stdout
    assert "id4" in table
    assert "id2" not in table


def write_book(
    folder: str, rows: list[dict[str, Any]], offsets: dict[tuple[str, int], int], topic_ids: dict[str, str]
) -> None:
    """A book as the scheduler would leave it, speaking up to these offsets."""
    header = pa.struct([("name", pa.string()), ("value", pa.binary())])
    schema = pa.schema(
        [("topic", pa.string()), ("partition", pa.int32()), ("key", pa.binary()), ("slot", pa.int64())]
        + [(name, pa.int64()) for name in ("version", "kill", "due", "wake", "timestamp", "last_offset")]
        + [("value", pa.binary()), ("target", pa.string()), ("pending", pa.bool_()), ("headers", pa.list_(header))]
        + [("topic_id", pa.string())]
    )
    words = [
        {"topic": row["topic"], "partition": row["partition"], "key": row["id"].encode(), "slot": -1, "pending": True}
        | {
            "version": row["offset"],
            "due": row["due_ms"],
            "wake": row["due_ms"],
            "timestamp": 0,
            "target": "mails",
            "value": b"from the book",
        }
        for row in rows
    ]
    places = [
        {"topic": topic, "partition": partition, "key": b"", "slot": -2, "version": offset, "pending": False}
        | {"timestamp": int(time.time() * 1000), "last_offset": offset, "topic_id": topic_ids[topic]}
        for (topic, partition), offset in offsets.items()
    ]
    write_deltalake(f"{folder}/book", pa.Table.from_pylist(words + places, schema))
    schema_version = {"almanac.schema": trust.SCHEMA_VERSION}
    DeltaTable(f"{folder}/book").alter.set_table_properties(schema_version, raise_if_not_exists=False)


def test_ls_puts_the_log_on_top_of_the_book(
    broker: Broker, environment: dict[str, str], tmp_path: Path, admin: AdminClient
) -> None:
    environ = environment | {"BOOK_LOCATION": str(tmp_path)}
    rows = [scheduled(environ, f"id{number}", f"+{number + 1}h") for number in range(5)]
    over = scheduled(environ, "over", "+1m")
    sources = scan.partitions(admin, [environ["SCHEDULES_TOPICS"]])
    # The book has read that `over` is over; that tombstone is not needed here.
    ids = topics.topic_ids(admin, [environ["SCHEDULES_TOPICS"]])
    write_book(Settings.load({}, environ).book_folder, rows, scan.ends(admin, sources), ids)
    assert [row["id"] for row in listed(environ)] == ["id0", "id1", "id2", "id3", "id4"]
    assert base64.b64decode(listed(environ)[0]["value"]) == b"from the book"
    run(app, ["cancel", "id0", "--no-wait"], env=environ)
    scheduled(environ, "id1", "+9h")
    scheduled(environ, "new", "+1s")
    place = (str(over["topic"]), int(over["partition"]), "over")
    said = {"scheduler_epoch": "1893456000", "scheduler_target_topic": "mails"}
    ours = {"almanac_version": str(over["offset"]), "almanac_timestamp": "0"}
    ours["almanac_topic_id"] = topics.topic_ids(admin, [place[0]])[place[0]]
    append(broker, *place, b"x", **said, **ours)  # an old repeat raises no dead
    assert [row["id"] for row in listed(environ)] == ["new", "id2", "id3", "id4", "id1"]
    assert [row["id"] for row in listed(environ, "--limit", "3")] == ["new", "id2", "id3"]


def test_ls_takes_our_acknowledgements_and_no_garbage(
    broker: Broker, environment: dict[str, str], tmp_path: Path
) -> None:
    environ = environment | {"BOOK_LOCATION": str(tmp_path)}
    first, second = (scheduled(environ, "a", "+1h") for _ in range(2))
    place = (str(first["topic"]), int(first["partition"]), "a")
    append(broker, *place, None, almanac_acks=str(first["offset"]))  # rule 3: the second is not acknowledged
    append(broker, *place, b"x", scheduler_epoch="soon")  # rule 5: neither update nor cancel
    assert [row["offset"] for row in listed(environ)] == [second["offset"]]
    append(broker, *place, None, almanac_acks=str(second["offset"]))
    assert listed(environ) == []


def test_explain_tells_the_whole_story(broker: Broker, environment: dict[str, str]) -> None:
    assert "nothing is known of a" in told(environment, "a")[1][0]
    first = scheduled(environment, "a", "+1h")
    topic, partition = str(first["topic"]), int(first["partition"])
    assert told(environment, "a")[0] == ["scheduled"]
    assert "waits, due" in told(environment, "a")[1][0]
    run(app, ["cancel", "a", "--no-wait"], env=environment)
    assert told(environment, "a")[0] == ["scheduled", "cancelled"]
    assert "cancelled" in told(environment, "a")[1][0]
    now = int(time.time() * 1000)
    soon = append(broker, topic, partition, "a", b"x", scheduler_epoch_ms=str(now), scheduler_target_topic="mails")
    assert "Does the scheduler run?" in told(environment, "a")[1][0]
    append(broker, topic, partition, "a", None, almanac_acks=str(soon))
    source = f"{topic}/{partition}/{soon}"
    append(
        broker,
        environment["HISTORY_TOPIC"],
        0,
        "k",
        b"x",
        almanac_id="a",
        almanac_source=source,
        almanac_target="mails",
    )
    events, verdicts = told(environment, "a")
    assert sorted(events) == sorted(["scheduled", "cancelled", "updated", "acknowledged", "delivered"])
    assert "fired" in verdicts[0]
    assert "ms after it was due" in verdicts[0]
    assert "mails" in run(app, ["explain", "a"], env=environment).stdout


def test_explain_says_why_it_did_not_fire(broker: Broker, environment: dict[str, str]) -> None:
    late = scheduled(environment, "b", "+1h")
    topic, partition, version = str(late["topic"]), int(late["partition"]), str(late["offset"])
    append(broker, topic, partition, "b", None, almanac_acks=version)
    notes = {"almanac_reason": "undeliverable", "almanac_detail": "no such topic"}
    source = f"{topic}/{partition}/{version}"
    append(broker, environment["DEAD_LETTERS_TOPIC"], 0, "b", b"x", **notes, almanac_source=source)
    events, verdicts = told(environment, "b")
    assert "dead letter" in events
    assert verdicts == [f"{topic}/{partition}: not delivered, a dead letter: undeliverable: no such topic"]


def test_explain_finds_a_cancel_that_went_astray(broker: Broker, environment: dict[str, str]) -> None:
    kept = scheduled(environment, "c", "+1h")
    elsewhere = (int(kept["partition"]) + 1) % 3
    append(broker, str(kept["topic"]), elsewhere, "c", None)
    verdicts = told(environment, "c")[1]
    assert any("waits, due" in text for text in verdicts)
    assert "one partitioner" in verdicts[-1]


@pytest.mark.parametrize("form", ["etf1", "karafka", "sky-avro", "sky-json"])
def test_schedule_and_cancel_speak_the_format_of_the_topic(
    broker: Broker, environment: dict[str, str], form: str
) -> None:
    environment = environment | {"SCHEDULES_TOPICS": f"{environment['SCHEDULES_TOPICS']}={form}"}
    told = ["schedule", "--at", "2097-01-01T00:00:00Z", "--topic", "t", "--key", "k", "--value", "v", "--header", "h=1"]
    place = json.loads(run(app, [*told, "--id", "x", "--json"], env=environment).stdout)
    said = formats.schedule(written(broker, place), formats.named(form))
    assert (said.due, said.target, said.key, said.value) == (place["due_ms"], "t", b"k", b"v")
    assert ("h", b"1") in said.headers
    cancelled = json.loads(run(app, ["cancel", "x", "--no-wait", "--json"], env=environment).stdout)
    assert isinstance(words.read(written(broker, cancelled), formats.named(form), "id"), words.Kill)
