"""The client's messages mean to the formats what they were meant to, and what cannot be meant is refused."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from almanac import client, formats
from almanac.client import Message, etf1, karafka, sky, timers
from almanac.formats import timers as timers_format
from almanac.record import Headers, Record, first

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
CONTENT = Message("videos", b"vid1", b"online", [("mine", b"\xff"), ("scheduler-key", b"an earlier delivery's")])

contents = st.builds(
    Message,
    topic=st.from_regex(r"[a-zA-Z0-9_-]{1,20}", fullmatch=True),
    key=st.binary(max_size=20),
    value=st.binary(min_size=1, max_size=50),
    headers=st.dictionaries(
        st.text(st.characters(codec="utf-8"), max_size=9).map("x{}".format), st.binary(max_size=9)
    ).map(lambda found: list(found.items())),
)
ids = st.binary(min_size=1, max_size=20)
times = st.integers(0, 10**9).map(lambda ms: NOW + timedelta(milliseconds=ms))


def record(message: Message) -> Record:
    return Record(message.topic, 0, 7, int(NOW.timestamp() * 1000), message.key, message.value, list(message.headers))


def ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


@given(content=contents, id=ids, at=times)
def test_etf1(content: Message, id: bytes, at: datetime) -> None:
    said = formats.named("etf1").decode(record(etf1.schedule(content, id, at, now=NOW)))
    assert (said.due, said.target, said.key, said.value) == (ms(at), content.topic, content.key, content.value)
    assert [header for header in said.headers if not header[0].startswith("scheduler-")] == content.headers


@given(content=contents, id=ids, at=times, form=st.sampled_from(["avro", "json"]), null=st.booleans())
def test_sky(content: Message, id: bytes, at: datetime, form: str, null: bool) -> None:
    content = content._replace(value=None) if null else content
    built = sky.schedule(content, id, at, "expiry", form)  # type: ignore[arg-type]
    said = formats.named(f"sky-{form}").decode(record(built))
    found = (said.due, said.target, said.key, said.value, said.headers)
    assert found == (ms(at), content.topic, content.key, content.value, content.headers)


@given(content=contents, at=times, partition=st.none() | st.integers(0, 99))
def test_karafka(content: Message, at: datetime, partition: int | None) -> None:
    built = karafka.schedule(content._replace(partition=partition), at, "rails", now=NOW)
    assert (built.key or b"").startswith(content.topic.encode() + b"-")
    said = formats.named("karafka").decode(record(built))
    assert (said.due, said.target, said.key) == (ms(at) // 1000 * 1000, content.topic, content.key)
    assert said.partition == (-1 if partition is None else partition)


@given(content=contents, at=times)
def test_timers(content: Message, at: datetime) -> None:
    content = content._replace(key=(content.key or b"").hex().encode())
    said = timers_format.read(record(timers.request(content, at)))
    found = (said.due, said.target, said.key, said.value)
    assert found == (ms(at) // 1000 * 1000, content.topic, content.key, content.value)


def test_cancels_are_null_values_of_the_id() -> None:
    for built in (etf1.cancel("x"), sky.cancel("x", "t"), karafka.cancel("x", "t"), timers.cancel("x")):
        assert (built.key, built.value) == (b"x", None)


@pytest.mark.parametrize(
    ("content", "id", "at", "refusal"),
    [
        (CONTENT, "", NOW, client.NoId),
        (CONTENT._replace(topic=""), "x", NOW, client.NoTarget),
        (CONTENT._replace(value=b""), "x", NOW, client.NoValue),
        (CONTENT._replace(value=None), "x", NOW, client.NoValue),
        (CONTENT, "x", NOW - timedelta(seconds=1), client.InThePast),
        (CONTENT, "x", datetime(2031, 1, 1), client.NotAware),  # noqa: DTZ001 (that is the point)
    ],
)
def test_etf1_refuses(content: Message, id: str, at: datetime, refusal: type[Exception]) -> None:
    with pytest.raises(refusal):
        etf1.schedule(content, id, at, now=NOW)


def test_karafka_refuses_what_is_long_over_or_a_century_away() -> None:
    karafka.schedule(CONTENT, NOW - timedelta(seconds=9), "rails", now=NOW)
    with pytest.raises(client.InThePast):
        karafka.schedule(CONTENT, NOW - timedelta(seconds=11), "rails", now=NOW)
    with pytest.raises(client.TooFarAhead):
        karafka.schedule(CONTENT, NOW.replace(year=2131), "rails", now=NOW)


def test_retries_wait_longer_each_time_and_end() -> None:
    content = CONTENT
    delays = []
    for _ in range(client.Backoff().attempts):
        built = etf1.again(content, "x", now=NOW)
        named = first(built.headers)
        delays.append(int(named["scheduler-epoch"] or b"") - int(NOW.timestamp()))
        assert named["retry-original-timestamp"] == b"%d" % NOW.timestamp()
        content = content._replace(headers=built.headers)
        assert client.is_retried(content.headers)
    assert delays[:5] == [5, 10, 20, 40, 80]
    assert delays[-1] == 3600
    with pytest.raises(client.TooManyAttempts):
        etf1.again(content, "x", now=NOW)


def test_jitter_only_shortens() -> None:
    assert client.Backoff(jitter=0.5, chance=lambda: 1.0).delay(1) == 2.5
    assert client.Backoff(jitter=0.5, chance=lambda: 0.0).delay(1) == 5.0


def test_a_deliverys_identity() -> None:
    etf: Headers = [("scheduler-key", b"k"), ("scheduler-timestamp", b"5"), ("scheduler-topic", b"t")]
    rails: Headers = [("schedule_source_topic", b"t"), ("schedule_source_key", b"k"), ("schedule_source_offset", b"9")]
    assert client.identity(etf) == (b"t", b"k", b"5")
    assert client.identity(rails) == (b"t", b"k", b"9")
    assert client.identity([("other", b"")]) is None
    assert not client.is_scheduled([])
