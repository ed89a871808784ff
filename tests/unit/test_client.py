"""The client's messages mean to the formats what they were meant to, and what cannot be meant is refused."""

import doctest
import inspect
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from types import ModuleType
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from almanac import client, formats
from almanac.client import Message, backoff, delivery, etf1, karafka, message, sky, timers
from almanac.formats import timers as timers_format
from almanac.record import Headers, Record, first

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
CONTENT = Message("videos", b"vid1", b"online", [("mine", b"\xff"), ("scheduler-key", b"an earlier delivery's")])

names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=9).map("x{}".format)
contents = st.builds(
    Message,
    topic=st.from_regex(r"[a-zA-Z0-9_-]{1,20}", fullmatch=True),
    key=st.binary(max_size=20),
    value=st.binary(min_size=1, max_size=50),
    headers=st.dictionaries(names, st.binary(max_size=9)).map(lambda found: list(found.items())),
)
ids = st.binary(min_size=1, max_size=20)
times = st.integers(0, 10**9).map(lambda ms: NOW + timedelta(milliseconds=ms))


def record(built: Message) -> Record:
    return Record(built.topic, 0, 7, int(NOW.timestamp() * 1000), built.key, built.value, list(built.headers))


def ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def next_second(at: datetime) -> int:
    return (ms(at) + 999) // 1000 * 1000


@pytest.mark.parametrize("module", [backoff, delivery, etf1, karafka, message, sky, timers], ids=lambda m: m.__name__)
def test_the_examples_of_the_documentation(module: ModuleType) -> None:
    failed, run = doctest.testmod(module)
    assert run > 0
    assert failed == 0


def test_a_program_that_only_schedules_does_not_load_spark() -> None:
    program = "import sys, almanac.client; assert not {'pyspark', 'pyarrow', 'deltalake'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_refusal_is_an_error_of_its_own_that_says_what_to_do() -> None:
    refusals = [
        each for each in vars(client).values() if inspect.isclass(each) and issubclass(each, client.ClientError)
    ]
    assert len(refusals) == 11
    assert all(issubclass(each, ValueError) and str(each()) for each in refusals)


@given(content=contents, id=ids, at=times)
def test_etf1(content: Message, id: bytes, at: datetime) -> None:
    said = formats.schedule(record(etf1.schedule(content, id, at, now=NOW)), formats.named("etf1"))
    assert (said.due, said.target, said.key, said.value) == (ms(at), content.topic, content.key, content.value)
    assert [header for header in said.headers if not header[0].startswith("scheduler-")] == content.headers


@given(content=contents, id=ids, at=times, form=st.sampled_from(["avro", "json"]), null=st.booleans())
def test_sky(content: Message, id: bytes, at: datetime, form: str, null: bool) -> None:
    content = replace(content, value=None) if null else content
    built = sky.schedule(content, id, at, "expiry", form)  # type: ignore[arg-type]
    said = formats.schedule(record(built), formats.named(f"sky-{form}"))
    found = (said.due, said.target, said.key, said.value, said.headers)
    assert found == (ms(at), content.topic, content.key, content.value, content.headers)


@given(content=contents, at=times, partition=st.none() | st.integers(0, 99))
def test_karafka(content: Message, at: datetime, partition: int | None) -> None:
    built = karafka.schedule(replace(content, partition=partition), at, "rails", now=NOW)
    assert (built.key or b"").startswith(content.topic.encode() + b"-")
    said = formats.schedule(record(built), formats.named("karafka"))
    assert (said.due, said.target, said.key) == (next_second(at), content.topic, content.key)
    assert said.partition == (-1 if partition is None else partition)


@given(content=contents, at=times)
def test_timers(content: Message, at: datetime) -> None:
    content = replace(content, key=(content.key or b"").hex().encode(), headers=[])
    said = timers_format.read(record(timers.schedule(content, at)))
    found = (said.due, said.target, said.key, said.value)
    assert found == (next_second(at), content.topic, content.key, content.value)


@given(at=st.datetimes(min_value=datetime(1970, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001 (hypothesis wants it so)
def test_nothing_is_early_by_rounding(at: datetime) -> None:
    due = message.checked_due(at)
    exact = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert due * 1000 >= exact > due * 1000 - 1000
    assert message.seconds(due) * 1000 >= due > message.seconds(due) * 1000 - 1000


def test_cancels_are_null_values_of_the_id() -> None:
    for built in (etf1.cancel("x"), sky.cancel("x", "t"), karafka.cancel("x", "t"), timers.cancel("x")):
        assert (built.key, built.value) == (b"x", None)


@pytest.mark.parametrize(
    ("content", "id", "at", "refusal"),
    [
        (CONTENT, "", NOW, client.NoId),
        (replace(CONTENT, topic=""), "x", NOW, client.NoTarget),
        (replace(CONTENT, value=b""), "x", NOW, client.NoValue),
        (replace(CONTENT, value=None), "x", NOW, client.NoValue),
        (replace(CONTENT, topic="a/b"), "x", NOW, client.NoTarget),
        (replace(CONTENT, topic="\ud800"), "x", NOW, client.NoTarget),
        (replace(CONTENT, partition=3), "x", NOW, client.Inexpressible),
        (CONTENT, "\ud800", NOW, client.Inexpressible),
        (CONTENT, "x", datetime.max.replace(tzinfo=timezone(timedelta(hours=-2))), client.TooFarAhead),
        (CONTENT, "x", NOW - timedelta(seconds=1), client.InThePast),
        (CONTENT, "x", datetime(2031, 1, 1), client.NotAware),  # noqa: DTZ001 (that is the point)
    ],
)
def test_etf1_refuses(content: Message, id: str, at: datetime, refusal: type[Exception]) -> None:
    with pytest.raises(refusal):
        etf1.schedule(content, id, at, now=NOW)


ALL = [
    lambda content, topic: etf1.schedule(content, "x", NOW, topic, NOW),
    lambda content, topic: karafka.schedule(content, NOW, topic, "x", now=NOW),
    lambda content, topic: sky.schedule(content, "x", NOW, topic),
    lambda content, topic: timers.schedule(replace(content, headers=[]), NOW, topic),
]
in_each_format = pytest.mark.parametrize("build", ALL, ids=["etf1", "karafka", "sky", "timers"])


@in_each_format
@pytest.mark.parametrize("topic", ["", "a b", "\ud800"])
def test_no_topic_to_write_to(build: Callable[[Message, str], Message], topic: str) -> None:
    with pytest.raises(client.NoTopic):
        build(CONTENT, topic)


@pytest.mark.parametrize("build", ALL[:3], ids=["etf1", "karafka", "sky"])
@pytest.mark.parametrize("name", ["\ud800", "a\0b"])
def test_a_headers_name_that_kafkas_client_cannot_write(build: Callable[[Message, str], Message], name: str) -> None:
    with pytest.raises(client.Inexpressible, match="header"):
        build(replace(CONTENT, headers=[(name, b"1")]), "schedules")


def delivered(built: Message, form: str) -> Message:
    """As a consumer receives it."""
    said = formats.schedule(record(built), formats.named(form))
    return Message(said.target, said.key, said.value, said.headers)


def test_what_was_delivered_in_one_format_is_scheduled_again_in_any_other() -> None:
    content = replace(CONTENT, headers=[("mine", b"1")])
    later = NOW + timedelta(hours=10)
    builds: dict[str, Callable[[Message, datetime], Message]] = {
        "etf1": lambda content, at: etf1.schedule(content, "x", at, now=NOW),
        "karafka": lambda content, at: karafka.schedule(content, at, "rails", "x", now=NOW),
        "sky-avro": lambda content, at: sky.schedule(content, "x", at, "expiry"),
    }
    for form, build in builds.items():
        came = delivered(build(content, NOW), form)
        for other, again in builds.items():
            for reading in {other, "auto"} - ({"auto"} if other == "sky-avro" else set()):
                said = formats.schedule(record(again(came, later)), formats.named(reading))
                assert (said.due, said.target) == (ms(later), content.topic), f"{form}, then {other} read as {reading}"
            twice = delivered(again(came, later), other)
            same = client.identity(twice.headers) == client.identity(came.headers)
            assert same == (form == other == "karafka" or form == other == "sky-avro"), "of the same offset, or none"
    timer = timers.schedule(delivered(etf1.schedule(replace(content, headers=[]), "x", NOW, now=NOW), "etf1"), later)
    assert timers_format.read(record(timer)).due == ms(later)


def test_karafka_refuses_what_is_long_over_or_a_century_away() -> None:
    karafka.schedule(CONTENT, NOW - timedelta(seconds=9), "rails", now=NOW)
    with pytest.raises(client.InThePast):
        karafka.schedule(CONTENT, NOW - timedelta(seconds=11), "rails", now=NOW)
    with pytest.raises(client.TooFarAhead):
        karafka.schedule(CONTENT, NOW.replace(year=2131), "rails", now=NOW)


def test_karafka_takes_the_contents_partition_over_as_the_records_own_partition_key() -> None:
    with pytest.raises(client.Inexpressible, match="-1"):
        karafka.schedule(replace(CONTENT, partition=-1), NOW, "rails", now=NOW)
    for content, own, told in (
        (replace(CONTENT, partition=3), b"3", None),
        (replace(CONTENT, partition_key=b"p"), b"p", None),
        (CONTENT, None, None),
        (replace(CONTENT, partition=3), b"mine", b"mine"),
    ):
        assert karafka.schedule(content, NOW, "rails", partition_key=told, now=NOW).partition_key == own
    delivered = replace(CONTENT, headers=[("schedule_target_epoch", b"1"), ("schedule_source_type", b"schedule")])
    again = first(karafka.schedule(delivered, NOW, "rails", now=NOW).headers)
    assert again["schedule_target_epoch"] == b"%d" % NOW.timestamp(), "a delivered message can be scheduled as it is"


def test_a_partition_key_must_be_resolved_for_a_client_that_knows_none() -> None:
    built = karafka.cancel("x", "rails", partition_key=b"user-1")
    with pytest.raises(client.Inexpressible, match="placed"):
        built.arguments()
    assert built.placed(5).arguments()["partition"] == 4
    assert karafka.cancel("x", "rails").placed(5).partition is None
    with pytest.raises(client.Inexpressible, match="0 partitions"):
        built.placed(0)


def test_what_a_format_cannot_say_is_refused_not_dropped() -> None:
    impossible: list[Headers] = [[("a", None)], [("a", b"1"), ("a", b"2")]]
    for headers in impossible:
        with pytest.raises(client.Inexpressible, match="a"):
            sky.schedule(replace(CONTENT, headers=headers), "x", NOW, "expiry")
    plain = replace(CONTENT, headers=[])
    for content in (CONTENT, replace(plain, value=None), replace(plain, key=b"\xff"), replace(plain, partition=1)):
        with pytest.raises(client.Inexpressible):
            timers.schedule(content, NOW)


def test_a_retry_goes_with_every_format_that_carries_headers() -> None:
    content, due = client.retried(CONTENT, now=NOW)
    assert due == NOW + timedelta(seconds=5)
    built = karafka.schedule(content, due, "rails", now=NOW)
    assert client.is_retried(built.headers)
    said = formats.schedule(record(sky.schedule(content, "x", due, "t")), formats.named("sky-avro"))
    assert client.is_retried(said.headers)


def test_retries_wait_longer_each_time_and_end() -> None:
    content = CONTENT
    delays = []
    for _ in range(client.Backoff().attempts):
        built = etf1.retry(content, "x", now=NOW)
        named = first(built.headers)
        delays.append(int(named["scheduler-epoch"] or b"") - int(NOW.timestamp()))
        assert named["retry-original-timestamp"] == b"%d" % NOW.timestamp()
        content = replace(content, headers=built.headers)
        assert client.is_retried(content.headers)
    assert delays[:5] == [5, 10, 20, 40, 80]
    assert delays[-1] == 3600
    with pytest.raises(client.TooManyAttempts):
        etf1.retry(content, "x", now=NOW)


def test_a_zones_clock_may_jump_while_a_retry_waits() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    for now in (datetime(2030, 10, 27, 2, 59, 58, tzinfo=berlin), datetime(2030, 10, 27, 2, 30, tzinfo=berlin, fold=1)):
        built = etf1.retry(CONTENT, "x", now=now)
        assert first(built.headers)["scheduler-epoch"] == b"%d" % (now.timestamp() + 5)
    at = datetime(2030, 10, 27, 2, 20, tzinfo=berlin, fold=1)
    karafka.schedule(CONTENT, at, "rails", now=datetime(2030, 10, 27, 2, 30, tzinfo=berlin))
    with pytest.raises(client.NotAware):
        karafka.schedule(CONTENT, at, "rails", now=datetime(2030, 1, 1))  # noqa: DTZ001 (that is the point)


@pytest.mark.parametrize("wrong", [{"least": -5.0}, {"jitter": 2.0}, {"factor": 0.5}, {"most": -1.0}])
def test_a_backoff_that_makes_no_sense(wrong: dict[str, float]) -> None:
    with pytest.raises(client.ClientError, match="jitter"):
        client.Backoff(**wrong)  # type: ignore[arg-type]  # no chance is among them


def test_a_backoff_that_does_not_grow_stays() -> None:
    steady = client.Backoff(factor=1, attempts=10**6)
    assert {steady.delay(attempt) for attempt in (1, 1_000, 10**6)} == {5.0}
    assert client.Backoff(attempts=10**6).delay(10**6) == 3600
    assert client.Backoff(most=3.0).delay(1) == 3


def test_the_last_second_that_there_is() -> None:
    end = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    timers.schedule(replace(CONTENT, headers=[]), end)
    with pytest.raises(client.TooFarAhead):
        timers.schedule(replace(CONTENT, headers=[]), end.replace(microsecond=500_000))


def test_jitter_only_shortens() -> None:
    assert client.Backoff(jitter=0.5, chance=lambda: 1.0).delay(1) == 2.5
    assert client.Backoff(jitter=0.5, chance=lambda: 0.0).delay(1) == 5.0


def test_a_back_off_that_never_comes_is_refused() -> None:
    failed = replace(CONTENT, headers=[("retry-attempt", b"49")])
    for most in (1e12, float("inf")):
        with pytest.raises(client.TooFarAhead, match="attempt 50"):
            client.retried(failed, client.Backoff(most=most), NOW)
    nan = float("nan")
    for wrong in ({"least": nan}, {"most": nan}, {"factor": nan}, {"jitter": nan}, {"least": -1}, {"attempts": -1}):
        with pytest.raises(client.ClientError, match="attempts >= 0"):
            client.Backoff(**wrong)


@pytest.mark.parametrize("form", ["karafka", "sky"])
def test_what_another_scheduler_put_into_a_delivery_is_taken_out(form: str) -> None:
    by_etf1: Headers = [("mine", b"1"), ("scheduler-epoch", b"5"), ("scheduler-target-topic", b"t"),
                        ("scheduler-timestamp", b"4"), ("scheduler-key", b"k"), ("scheduler-topic", b"s")]  # fmt: skip
    by_karafka: Headers = [("mine", b"1"), ("schedule_schema_version", b"1.0.0"), ("schedule_target_epoch", b"5"),
                           ("schedule_source_key", b"k"), ("schedule_source_offset", b"7")]  # fmt: skip
    undelivered: Headers = [("scheduler-of-mine", b"1")]
    for headers, left in ((by_etf1, ["mine"]), (by_karafka, ["mine"]), (undelivered, ["scheduler-of-mine"])):
        content = replace(CONTENT, headers=headers)
        if form == "karafka":
            built = record(karafka.schedule(content, NOW, "rails", id="a", now=NOW))
            read = formats.named("karafka").decode(built, first(built.headers)).headers
            kept = [name for name, _ in read if not name.startswith(("schedule_target_", "schedule_s"))]
            assert sum(name == "schedule_target_epoch" for name, _ in read) == 1
        else:
            built = record(sky.schedule(content, "a", NOW, "expiry", "json"))
            kept = [name for name, _ in formats.named("sky-json").decode(built, {}).headers]
        assert kept == left


def test_a_message_takes_headers_as_a_map_and_bytes_only() -> None:
    assert Message("t", b"k", b"v", {"lang": b"fr", "text": "\u20ac"}) == Message(  # type: ignore[arg-type]
        "t", b"k", b"v", [("lang", b"fr"), ("text", "\u20ac".encode())]
    )
    for wrong in ({"key": "k"}, {"value": "v"}, {"value": 5}, {"partition_key": "p"}):
        with pytest.raises(TypeError, match=f"{next(iter(wrong))} must be bytes"):
            Message("t", **wrong)


def test_a_deliverys_identity() -> None:
    etf: Headers = [("scheduler-key", b"k"), ("scheduler-timestamp", b"5"), ("scheduler-topic", b"t")]
    rails: Headers = [("schedule_source_topic", b"t"), ("schedule_source_key", b"k"), ("schedule_source_offset", b"9")]
    other: Headers = [*rails, ("schedule_source_partition", b"2")]
    assert client.identity(other) != client.identity([*rails, ("schedule_source_partition", b"1")]), "another schedule"
    assert client.identity(etf) == (b"t", b"k", b"5")
    assert client.identity(rails) == (b"t", b"k", b"9")
    assert client.identity([("other", b"")]) is None
    assert not client.is_scheduled([])
    assert client.identity([*etf, *rails]) == client.identity(rails), "the last delivery's"
    assert client.identity([*rails, *etf, ("scheduler-timestamp", b"6")]) == (b"t", b"k", b"6")


def test_headers_as_a_client_may_have_them() -> None:
    shapes: list[client.Given | None] = [
        {"scheduler-key": "k", "scheduler-timestamp": b"5"}, None, [("retry-attempt", "1")],
    ]  # fmt: skip
    for shape in shapes:
        told = client.identity(shape), client.is_scheduled(shape), client.is_retried(shape)
        assert any(told) == (shape is not None)

    class Seen:
        def topic(self) -> str:
            return "videos"

        def key(self) -> bytes | None:
            return None

        def value(self) -> bytes:
            return b"v"

        def headers(self) -> client.Given | None:
            return {"text": "\u20ac", "none": None}

    assert Message.received(Seen()) == Message("videos", None, b"v", [("text", b"\xe2\x82\xac"), ("none", None)])


def test_the_scheduler_wants_one_time_and_says_when_nobody_answers() -> None:
    nowhere = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
    content = replace(CONTENT, headers=[])
    with client.Scheduler(nowhere, seconds=0.2) as scheduler:
        with pytest.raises(client.NoTime):
            scheduler.schedule(content, "x")
        with pytest.raises(client.NoTime):
            scheduler.schedule(content, "x", at=NOW, after=timedelta(1))
        with pytest.raises(client.NotAware):
            scheduler.schedule(content, "x", at=datetime(2097, 1, 1))  # noqa: DTZ001 (that is the point)
        for after in (timedelta(seconds=-1), timedelta.min):
            with pytest.raises(client.InThePast):
                scheduler.schedule(content, "x", after=after)
        with pytest.raises(client.TooFarAhead):
            scheduler.schedule(content, "x", after=timedelta.max)
        with pytest.raises(client.NotAcknowledged, match="schedules"):
            scheduler.schedule(content, "x", after=timedelta(0))
        with pytest.raises(client.NotAcknowledged, match="not sent"):
            scheduler.send(karafka.cancel("x", "rails", partition_key=b"p"))
    with pytest.raises(client.ClientError, match="closed"):
        scheduler.cancel("x")
    scheduler.close()
    with pytest.raises(client.ClientError, match="refused"):
        client.Scheduler({"bootstrap.server": "localhost"})
    with pytest.raises(client.NoTopic):
        client.Scheduler(nowhere, topic="")
    for wrong in ({"seconds": 0}, {"seconds": float("nan")}, {"configuration": {**nowhere, "transactional.id": "x"}}):
        with pytest.raises(client.ClientError, match=r"seconds|transactional"):
            client.Scheduler(**{"configuration": nowhere, **wrong})  # type: ignore[arg-type]
