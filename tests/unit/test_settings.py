"""Settings: where values come from, what is refused, and how they reach other processes."""

import json
import pickle
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from almanac import errors, kafka, passthrough, settings, sink, sources
from almanac.settings import Settings, TopicFormat

README_FILE = """
kafka.common.configuration:
    sasl.mechanisms: PLAIN
    sasl.username: cluster username
    sasl.password: cluster password
    security.protocol: SASL_SSL
kafka.producer.configuration:
    compression.codec: zstd
    partitioner: murmur2_random
kafka.consumer.configuration:
    allow.auto.create.topics: true
"""


def written(folder: Path, text: str) -> dict[str, str]:
    """An environment that names a file with that text."""
    path = folder / "almanac.yaml"
    path.write_text(text, encoding="utf-8")
    return {"CONFIGURATION_FILE": str(path)}


def problems(arguments: dict[str, object], environ: dict[str, str]) -> dict[str, tuple[str, str]]:
    with pytest.raises(errors.SettingsError) as caught:
        sources.load(arguments, environ)
    assert caught.value.exit_code == 2
    return {name: (value, allowed) for name, value, allowed in caught.value.problems}


def test_defaults_are_the_peers() -> None:
    loaded = sources.load({}, {})
    assert loaded == Settings.model_validate({"origins": loaded.origins})
    assert loaded.bootstrap_servers == "localhost:9092"
    assert loaded.schedules_topics == (TopicFormat("schedules", "auto"),)
    assert loaded.since_delta is None
    assert loaded.group_id == "scheduler-cg"
    assert (loaded.metrics_http_addr, loaded.server_addr) == ("127.0.0.1:8001", "127.0.0.1:8000")
    assert (loaded.history_topic, loaded.dead_letters_topic) == ("history", "dead-letters")
    assert set(loaded.origins.values()) == {"default"}


def test_every_setting_has_an_explanation_and_a_rule() -> None:
    for name in settings.NAMES:
        assert Settings.model_fields[name].description
        assert settings.allowed(name)


def test_an_argument_wins_over_the_environment_over_the_file_over_the_default(tmp_path: Path) -> None:
    environ = written(tmp_path, "shards: 1\npage_length: 1m\nstage_ahead: 100\n") | {"SHARDS": "2", "PAGE_LENGTH": "2m"}
    loaded = sources.load({"shards": "3"}, environ)
    assert (loaded.shards, loaded.page_length, loaded.stage_ahead, loaded.transaction_timeout) == (3, 120, 100, 15)
    file = environ["CONFIGURATION_FILE"]
    assert loaded.origin("shards") == "argument --shards"
    assert loaded.origin("page_length") == "environment PAGE_LENGTH"
    assert loaded.origin("stage_ahead") == f"file {file}"
    assert loaded.origin("transaction_timeout") == "default"


def test_metrics_address_has_two_names() -> None:
    assert sources.load({}, {"METRICS_ADDR": ":9"}).metrics_address == ("", 9)
    assert sources.load({}, {"METRICS_ADDR": ":9", "METRICS_HTTP_ADDR": "[::1]:8"}).metrics_address == ("::1", 8)


def test_an_empty_address_serves_nothing() -> None:
    loaded = sources.load({}, {"SERVER_ADDR": "", "METRICS_HTTP_ADDR": ""})
    assert (loaded.server_address, loaded.metrics_address) == (None, None)
    assert sources.load({}, {"METRICS_HTTP_ADDR": "", "METRICS_ADDR": ":9"}).metrics_http_addr == ":9"


@pytest.mark.parametrize(("said", "meant"), [("warn", "WARNING"), ("Trace", "DEBUG"), ("fatal", "ERROR")])
def test_the_peers_names_of_levels(said: str, meant: str) -> None:
    assert sources.load({}, {"LOG_LEVEL": said}).log_level == meant


def test_an_empty_variable_is_an_unset_one_but_an_empty_history_topic_means_none() -> None:
    loaded = sources.load({}, {"GROUP_ID": "", "HISTORY_TOPIC": ""})
    assert (loaded.group_id, loaded.history_topic) == ("scheduler-cg", "")


def test_the_highest_port_leaves_one_for_the_controller() -> None:
    assert sources.load({}, {"ALMANAC_KAFKA_PORT": "65534"}).kafka_port == 65_534
    assert "controller" in problems({}, {"ALMANAC_KAFKA_PORT": "65535"})["ALMANAC_KAFKA_PORT"][1]


def test_kubernetes_own_kafka_port_is_not_ours() -> None:
    assert sources.load({}, {"KAFKA_PORT": "tcp://10.0.0.1:9092"}).kafka_port == 9092


def test_topics_with_formats() -> None:
    loaded = sources.load({}, {"SCHEDULES_TOPICS": "a, b=etf1 ,"})
    assert loaded.schedules_topics == (TopicFormat("a", "auto"), TopicFormat("b", "etf1"))
    assert loaded.topics == ("a", "b")


def test_units() -> None:
    loaded = Settings.model_validate({"page_length": "5m", "stage_ahead": "1s", "transaction_bytes": "2MiB"})
    assert (loaded.page_length_ms, loaded.stage_ahead, loaded.transaction_bytes) == (300_000, 1000, 2 << 20)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BOOTSTRAP_SERVERS", "kafka"),
        ("BOOTSTRAP_SERVERS", ":9092"),
        ("BOOTSTRAP_SERVERS", "a:1,b"),
        ("SCHEDULES_TOPICS", ","),
        ("SCHEDULES_TOPICS", "a,a=etf1"),
        ("SCHEDULES_TOPICS", "a=cron"),
        ("SCHEDULES_TOPICS", "sch edules"),
        ("SINCE_DELTA", "1"),
        ("GROUP_ID", "a/b"),
        ("GROUP_ID", "g" * 201),
        ("METRICS_ADDR", "eight"),
        ("METRICS_ADDR", ":80010"),
        ("SERVER_ADDR", "::1:80"),
        ("HISTORY_TOPIC", ".."),
        ("SCHEDULE_GRACE_INTERVAL", "-1"),
        ("SCHEDULE_GRACE_INTERVAL", "3 fortnights"),
        ("TRANSACTION_TIMEOUT", "5m"),
        ("TRANSACTION_BYTES", "1KiB"),
        ("RETENTION_DAYS", "0"),
        ("PARTITIONER", "murmur3"),
        ("LOG_LEVEL", "LOUD"),
        ("LOG_JSON", "perhaps"),
        ("SPARK_DRIVER_MEMORY", "1 elephant"),
        ("ALMANAC_KAFKA_PORT", "0"),
        ("ALMANAC_KAFKA_PORT", "65535"),  # Kafka's controller takes the next
        ("BOOK_LOCATION", "s3a://bucket/book?region=x"),
        ("BOOK_LOCATION", "s3a://bucket/book#1"),
        ("BOOK_LOCATION", "file:/data/book#1"),
    ],
)
def test_a_wrong_value_is_refused_with_name_value_and_what_is_allowed(name: str, value: str) -> None:
    ((refused, (shown, allowed)),) = problems({}, {name: value}).items()
    assert (refused, shown) == (name, value)
    assert allowed


@pytest.mark.parametrize(
    "environ",
    [
        {"HISTORY_TOPIC": "dead-letters"},
        {"HISTORY_TOPIC": "schedules"},
        {"DEAD_LETTERS_TOPIC": "schedules"},
        {"DEAD_LETTERS_TOPIC": "scheduler-cg-shards"},
        {"SCHEDULES_TOPICS": "a,history"},
        {"GROUP_ID": "my", "SCHEDULES_TOPICS": "my-shards"},
    ],
)
def test_a_topic_has_one_purpose(environ: dict[str, str]) -> None:
    ((_, allowed),) = problems({}, environ).values()
    assert "one purpose only" in allowed


def test_all_wrong_ones_are_named_at_once_as_the_user_wrote_them(tmp_path: Path) -> None:
    environ = written(tmp_path, "transaction_timeout: 5m\nkafka.common.configuration: {acks: 1}\ngrop_id: x\n")
    file = environ["CONFIGURATION_FILE"]
    found = problems({"shards": "0"}, environ | {"METRICS_ADDR": "here"})
    assert found["--shards"][0] == "0"
    assert found["METRICS_ADDR"][0] == "here"
    assert found[f"transaction_timeout in {file}"][0] == "5m"
    assert found["kafka.common.configuration: acks"][0] == "1"
    assert "did you mean group_id?" in found[f"grop_id in {file}"][1]
    assert len(found) == 5


def test_python_callers_get_the_same_error() -> None:
    with pytest.raises(errors.SettingsError, match=r"shards='0': must be 1 to 1000"):
        Settings(shards=0)
    with pytest.raises(errors.SettingsError, match="is no setting"):
        Settings.model_validate({"shard": 1})


def test_an_error_survives_pickling() -> None:
    error = errors.SettingsError([("a", "b", "c")])
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("text", ["a: [", "- a\n- b\n", "a: \t b: c"])
def test_a_file_that_is_no_settings_file(tmp_path: Path, text: str) -> None:
    environ = written(tmp_path, text)
    assert problems({}, environ)["CONFIGURATION_FILE"][0] == environ["CONFIGURATION_FILE"]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    missing = str(tmp_path / "nothing.yaml")
    assert "No such file" in problems({"configuration_file": missing}, {})["--configuration-file"][1]


def test_a_broken_file_does_not_show_its_secrets(tmp_path: Path) -> None:
    with pytest.raises(errors.SettingsError) as caught:
        sources.load({}, written(tmp_path, "kafka.common.configuration:\n  sasl.password: 'hunter2\n  a: b"))
    assert "hunter2" not in str(caught.value)


def test_the_readmes_file(tmp_path: Path) -> None:
    loaded = sources.load({}, written(tmp_path, README_FILE))
    assert loaded.partitioner == "murmur2_random"
    assert loaded.origin("partitioner").startswith("file ")
    assert kafka.producer(loaded)["compression.codec"] == "zstd"
    assert kafka.consumer(loaded)["allow.auto.create.topics"] == "true"
    assert "compression.codec" not in kafka.consumer(loaded)
    assert "cluster password" not in repr(loaded)


def test_bootstrap_servers_in_the_file_are_ignored_and_this_is_said(tmp_path: Path) -> None:
    loaded = sources.load({}, written(tmp_path, "kafka.common.configuration: {bootstrap.servers: 'far:1'}"))
    assert kafka.admin(loaded)["bootstrap.servers"] == "localhost:9092"
    assert "bootstrap.servers" in loaded.notes[0]


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("common", "transactional.id", "x"),
        ("producer", "enable.idempotence", "false"),
        ("producer", "acks", "1"),
        ("producer", "transaction.timeout.ms", "1000"),
        ("consumer", "isolation.level", "read_uncommitted"),
        ("consumer", "enable.auto.commit", "true"),
        ("consumer", "auto.offset.reset", "earliest"),
        ("consumer", "group.id", "other"),
    ],
)
def test_what_would_break_the_protocol_is_refused(tmp_path: Path, section: str, key: str, value: str) -> None:
    found = problems({}, written(tmp_path, f"kafka.{section}.configuration: {{{key}: {value}}}"))
    assert found[f"kafka.{section}.configuration: {key}"][0] == value


@pytest.mark.parametrize(
    "section",
    [
        """{sasl.jaas.config: 'ScramLoginModule required username="u" password="hunter2";'}""",
        "'sasl.password=hunter2'",
        "[{sasl.password: hunter2}]",
    ],
)
def test_what_is_refused_shows_no_secrets(tmp_path: Path, section: str) -> None:
    with pytest.raises(errors.SettingsError) as caught:
        sources.load({}, written(tmp_path, f"kafka.common.configuration: {section}"))
    assert "kafka.common.configuration" in str(caught.value)
    assert passthrough.MASK in str(caught.value)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(errors.SettingsError) as caught:
        Settings.model_validate({"kafka_common": yaml.safe_load(section)})
    assert "hunter2" not in str(caught.value)


def test_librdkafka_itself_looks_at_what_is_passed_through(tmp_path: Path) -> None:
    found = problems({}, written(tmp_path, "kafka.common.configuration: {sasl.mechnisms: PLAIN}"))
    assert "sasl.mechnisms" in found["kafka.common.configuration"][1]


def test_secrets_are_masked() -> None:
    shown = passthrough.masked("kafka_common", {"sasl.password": "p", "sasl.username": "u", "ssl.key.pem": "k"})
    assert shown == {"sasl.password": passthrough.MASK, "sasl.username": "u", "ssl.key.pem": passthrough.MASK}
    assert passthrough.masked("book_location", "s3a://me:key@bucket/x") == f"s3a://{passthrough.MASK}@bucket/x"


def test_names_derive_from_the_group(tmp_path: Path) -> None:
    loaded = Settings(group_id="billing", book_location=str(tmp_path))
    assert loaded.shard_topic == "billing-shards"
    assert loaded.transactional_id(3) == "billing-shard-3"
    assert loaded.book_folder == f"{tmp_path}/billing"
    assert loaded.checkpoint_folder.startswith(loaded.book_folder)
    assert Settings(book_location="s3a://bucket/x/").book_folder == "s3a://bucket/x/scheduler-cg"
    assert Settings(book_location="file:///data/my%20books").book_folder == "/data/my books/scheduler-cg"
    assert Path(Settings().book_folder).is_absolute()
    assert Settings(book_location="/data/book #1?").book_folder == "/data/book #1?/scheduler-cg"


def test_targets_committed_ahead_are_patterns() -> None:
    loaded = sources.load({}, {"COMMIT_AHEAD_TARGETS": "alerts-*, mails"})
    assert [loaded.commits_ahead(topic) for topic in ("alerts-1", "mails", "Mails", "x")] == [True, True, False, False]


def test_settings_reach_another_process_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = sources.load({"shards": 2}, {"GROUP_ID": "g", "SCHEDULES_TOPICS": "a,b=etf1"})
    monkeypatch.setenv("GROUP_ID", "other")
    for copy in (Settings.from_json(loaded.to_json()), pickle.loads(pickle.dumps(loaded))):
        assert copy == loaded
        assert copy.origin("group_id") == "environment GROUP_ID"
    assert json.loads(loaded.to_json())["group_id"] == "g"


def test_a_changed_copy_is_checked() -> None:
    loaded = sources.load({}, {"GROUP_ID": "g"})
    changed = loaded.replaced(kafka_port=1234)
    assert (changed.kafka_port, changed.group_id) == (1234, "g")
    assert (changed.origin("kafka_port"), changed.origin("group_id")) == ("argument", "environment GROUP_ID")
    with pytest.raises(errors.SettingsError):
        loaded.replaced(kafka_port=0)


def test_java_gets_the_same_security(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("-----BEGIN PRIVATE KEY-----", encoding="ascii")
    common = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": 'a"b',
        "sasl.password": "c\\d",
        "ssl.ca.location": "/ca.pem",
        "ssl.key.location": str(tmp_path / "key.pem"),
        "ssl.certificate.location": str(tmp_path / "key.pem"),
        "ssl.endpoint.identification.algorithm": "none",
        "fetch.wait.max.ms": "7",
        "statistics.interval.ms": "1000",
    }
    loaded = Settings(kafka_common=common)
    options = kafka.java(loaded)
    assert options["kafka.security.protocol"] == "SASL_SSL"
    assert options["kafka.sasl.mechanism"] == "SCRAM-SHA-512"
    assert options["kafka.sasl.jaas.config"] == (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="a\\"b" password="c\\\\d";'
    )
    assert (options["kafka.ssl.truststore.type"], options["kafka.ssl.truststore.location"]) == ("PEM", "/ca.pem")
    assert options["kafka.ssl.keystore.type"] == "PEM"
    assert "BEGIN PRIVATE KEY" in options["kafka.ssl.keystore.key"]
    assert options["kafka.ssl.endpoint.identification.algorithm"] == ""
    assert options["kafka.fetch.max.wait.ms"] == "7"
    assert options["kafka.isolation.level"] == "read_committed"
    assert kafka.untranslated(loaded) == ["statistics.interval.ms"]


def test_a_mechanism_that_spark_is_not_set_up_for_is_refused() -> None:
    with pytest.raises(errors.SettingsError, match="SCRAM-SHA-512"):
        kafka.java(Settings(kafka_common={"security.protocol": "SASL_SSL", "sasl.mechanisms": "OAUTHBEARER"}))


def test_what_the_protocol_decides_wins_over_what_is_passed_through() -> None:
    config = kafka.producer(Settings(kafka_producer={"linger.ms": "5"}), transactional_id="x", linger_ms=0)
    assert (config["transactional.id"], config["linger.ms"], config["acks"]) == ("x", 0, "all")


@given(st.text(alphabet="abcXYZ019._-", min_size=1, max_size=60).filter(lambda name: name not in (".", "..")))
def test_every_legal_topic_is_accepted(name: str) -> None:
    loaded = Settings.model_validate({"schedules_topics": name, "history_topic": "", "dead_letters_topic": f"{name}-d"})
    assert loaded.topics == (name,)


def test_a_peers_own_names_are_understood() -> None:
    environ = {
        "KAFKA_BROKERS": "kafka:9092", "SCHEDULE_TOPICS": "expiry, later", "JSON_SCHEDULE_TOPICS": "web",
        "CONSUMER_GROUP_ID": "kms", "PROMETHEUS_SCRAPING_ENDPOINT_PORT": "9095",
    }  # fmt: skip
    loaded = Settings.load({}, environ)
    assert loaded.bootstrap_servers == "kafka:9092"
    assert loaded.schedules_topics == (("expiry", "sky-avro"), ("later", "sky-avro"), ("web", "sky-json"))
    assert loaded.origins["schedules_topics"] == "environment SCHEDULE_TOPICS and JSON_SCHEDULE_TOPICS"
    assert loaded.metrics_address is not None
    assert (loaded.group_id, loaded.metrics_address.port) == ("kms", 9095)
    assert Settings.load({}, {**environ, "SCHEDULES_TOPICS": "mine"}).topics == ("mine",)


def test_topics_of_timer_requests_are_no_schedules_topics() -> None:
    told = {"SCHEDULES_TOPICS": "expiry=sky-json, schedules, timer-request=timers", "GROUP_ID": "g"}
    loaded = sources.load({}, told)
    assert (loaded.topics, loaded.request_topics) == (("expiry", "schedules"), ("timer-request",))
    assert loaded.bridge_target == "schedules", "the first native one"
    assert loaded.duties == ("bridge",)
    assert (loaded.bridge_group, loaded.transactional_id("bridge"), loaded.transactional_id(0)) == (
        "g-bridge", "g-bridge", "g-shard-0",
    )  # fmt: skip
    more = sources.load({}, told | {"OSCILLATOR_TOPIC": "oscillator", "BRIDGE_TOPIC": "schedules"})
    assert more.duties == ("bridge", "oscillator")
    assert more.own_topics == ("expiry", "schedules", "timer-request", "oscillator")
    assert sources.load({}, {}).duties == ()


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({"SCHEDULES_TOPICS": "timer-request=timers"}, "SCHEDULES_TOPICS"),
        ({"SCHEDULES_TOPICS": "expiry=sky-json,timer-request=timers"}, "SCHEDULES_TOPICS"),
        ({"SCHEDULES_TOPICS": "schedules,expiry=sky-json,t=timers", "BRIDGE_TOPIC": "expiry"}, "BRIDGE_TOPIC"),
        ({"BRIDGE_TOPIC": "elsewhere"}, "BRIDGE_TOPIC"),
        ({"BRIDGE_FROM": "yesterday"}, "BRIDGE_FROM"),
        ({"OSCILLATOR_TOPIC": "schedules"}, "OSCILLATOR_TOPIC"),
        ({"SCHEDULES_TOPICS": "schedules,history=timers"}, "history_topic"),
    ],
)
def test_timers_that_nobody_would_fire_are_refused(environ: dict[str, str], name: str) -> None:
    assert list(problems({}, environ)) == [name]


def test_the_token_of_the_rest_interface_stays_with_the_driver() -> None:
    secret = "a-token-of-thirty-two-characters"
    text = sink.Job(Settings(api_token=secret), 0, 1, [("schedules", 0)], {}, 1 << 20).to_json()
    assert secret not in text
    assert sink.Job.from_json(text).partitions == [("schedules", 0)]
