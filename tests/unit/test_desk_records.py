"""Records that the desk writes: in the topic's format, and read back as they were meant."""

from __future__ import annotations

import json
import time

import pytest

from almanac import desk, formats, words
from almanac.desk import records
from almanac.record import Headers, Record

FAR = int(time.time() * 1000) + 86_400_000


def read(form: str, draft: records.Draft) -> formats.Schedule:
    record = Record("schedules", 2, 7, int(time.time() * 1000), b"id", draft.value, draft.headers)
    said = words.read(record, formats.named(form), "")
    assert isinstance(said, words.Word), said
    return said.schedule


@pytest.mark.parametrize("form", formats.NAMES)
def test_new_and_revised_in_every_format(form: str) -> None:
    headers: Headers = [("lang", b"en")]
    new = desk.New(target="mails", due=FAR, value=b"hello", id=b"id", target_key=b"k", headers=headers)
    draft = records.new(form, new)
    was = read(form, draft)
    exact = FAR if form != "karafka" else -(-FAR // 1000) * 1000
    assert (was.due, was.target, was.key, was.value) == (exact, "mails", b"k", b"hello")
    assert ("lang", b"en") in was.headers

    record = Record("schedules", 2, 7, int(time.time() * 1000), b"id", draft.value, draft.headers)
    moved = read(form, records.revised(form, record, was, desk.Change(due=exact + 5000)))
    assert (moved.due, moved.target, moved.key, moved.value) == (exact + 5000, "mails", b"k", b"hello")
    assert ("lang", b"en") in moved.headers
    other = desk.Change(target="other", target_key=b"", value=b"\xff", headers=[("a", b"b")])
    changed = read(form, records.revised(form, record, was, other))
    assert (changed.due, changed.target, changed.key, changed.value) == (exact, "other", b"", b"\xff")
    assert ("lang", b"en") not in changed.headers


def test_what_karafka_says_of_partitions_stays() -> None:
    headers: Headers = [
        ("schedule_schema_version", b"1.0.0"), ("schedule_source_type", b"schedule"),
        ("schedule_target_epoch", b"%d" % (FAR // 1000)), ("schedule_target_topic", b"events"),
        ("schedule_target_partition", b"3"),
    ]  # fmt: skip
    record = Record("schedules", 0, 1, 1, b"id", b"x", headers)
    schedule = formats.schedule(record, formats.named("auto"))
    moved = read("auto", records.revised("auto", record, schedule, desk.Change(due=FAR + 10_000)))
    assert (moved.partition, moved.due) == (3, -(-(FAR + 10_000) // 1000) * 1000)


@pytest.mark.parametrize("name", ["scheduler-key", "schedule_source_key", "schedule_target_epoch"])
def test_headers_of_an_inner_message_stay_whatever_their_names(name: str) -> None:
    value = json.dumps({"time": FAR, "topic": "mails", "key": "aw==", "value": "dg==", "headers": {name: "AQ=="}})
    record = Record("schedules", 0, 1, 1, b"id", value.encode(), [])
    schedule = formats.schedule(record, formats.named("sky-json"))
    moved = read("sky-json", records.revised("sky-json", record, schedule, desk.Change(due=FAR + 10_000)))
    assert (moved.headers, moved.due) == ([(name, b"\x01")], FAR + 10_000)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"target": "no topic"}, "target"),
        ({"due": 1}, "due"),
        ({"due": 1 << 60}, "due"),
        ({"headers": [("scheduler-epoch", b"1")]}, "headers"),
        ({"headers": [("", b"1")]}, "headers"),
        ({"headers": [("a\0", b"1")]}, "headers"),
    ],
)
def test_refused(change: dict[str, object], field: str) -> None:
    fields: dict[str, object] = {"target": "mails", "due": FAR, "value": b"secret payload", "id": b"id"}
    with pytest.raises(desk.Refused) as refused:
        records.new("etf1", desk.New(**{**fields, **change}))  # type: ignore[arg-type]
    assert refused.value.field == field
    assert "secret payload" not in str(refused.value)


def test_an_overdue_schedule_can_be_changed_and_none_is_due_in_the_year_10000() -> None:
    hour_ago = FAR - 25 * 3_600_000
    headers: Headers = [
        ("schedule_schema_version", b"1.0.0"), ("schedule_source_type", b"schedule"),
        ("schedule_target_epoch", b"%d" % (hour_ago // 1000)), ("schedule_target_topic", b"events"),
    ]  # fmt: skip
    record = Record("rails", 0, 1, 1, b"id", b"x", headers)
    schedule = formats.schedule(record, formats.named("karafka"))
    changed = read("karafka", records.revised("karafka", record, schedule, desk.Change(value=b"y")))
    assert (changed.due, changed.value) == (hour_ago // 1000 * 1000, b"y")
    late = desk.New(target="mails", due=formats.LAST_DUE, value=b"v", id=b"id")
    with pytest.raises(desk.Refused, match="year 10000"):
        records.new("karafka", late)
    assert records.new("etf1", late).due == formats.LAST_DUE
