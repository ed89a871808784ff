"""Records for a schedules topic in the topic's own format: a new schedule, a changed one, a cancel."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from almanac import client, formats, native, words
from almanac.desk.refusals import Refused
from almanac.desk.shapes import Change, New
from almanac.formats import etf1, karafka
from almanac.record import Headers, Record, first

RESERVED = ("scheduler-", "almanac-", "schedule_")
PAST_MS = 1_500  # a due time may lie that far back: a request takes its time, the format's tolerance is 2 s
_ANY = "any"  # the schedules topic: who sends the draft knows it
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Draft:
    """What is to be written under an id."""

    value: bytes | None
    headers: Headers
    due: int
    target: str


def new(form: str, wish: New) -> Draft:
    """A new schedule. Raises Refused."""
    check_due(wish.due)
    check_headers(wish.headers)
    content = client.Message(checked_target(wish.target), wish.target_key, wish.value, list(wish.headers))
    return _built(form, wish.id or b"-", wish.due, content)


def revised(form: str, record: Record, schedule: formats.Schedule, change: Change) -> Draft:
    """The record of a pending schedule, changed; what is not named stays byte by byte. Raises Refused."""
    if change.due is not None:
        check_due(change.due)
    if change.headers is not None:
        check_headers(change.headers)
    due = schedule.due if change.due is None else change.due
    target = checked_target(schedule.target if change.target is None else change.target)
    key = schedule.key if change.target_key is None else change.target_key
    value = schedule.value if change.value is None else change.value
    own = native.wish(words.Word(record.offset, record, schedule, False)).headers
    headers = own if change.headers is None else list(change.headers)
    if form == "auto":  # record by record: karafka's names are its own
        form = "karafka" if any(name in (karafka.VERSION, karafka.TYPE) for name, _ in record.headers) else "etf1"
    named = first(record.headers)
    partition = schedule.partition if form == "karafka" and schedule.partition >= 0 else None
    by = named.get(karafka.PARTITION_KEY) if form == "karafka" else None
    content = client.Message(target, key, value, headers, partition, by)
    draft = _built(form, record.key or b"-", due, content)
    if etf1.REQUEST in named:  # a bridged timer request stays one
        request: Headers = [(etf1.REQUEST, named[etf1.REQUEST])]
        kept = [header for header in draft.headers if header[0] != etf1.REQUEST]
        return Draft(draft.value, request + kept, draft.due, draft.target)
    return draft


def cancel(form: formats.Format, record: Record) -> Headers:
    """The headers of the null value that cancels this record."""
    if any(name in (karafka.VERSION, karafka.TYPE) for name, _ in record.headers):
        return karafka.Karafka().null()
    return [] if form.name == "auto" else form.null()


def _built(form: str, id: bytes, due: int, content: client.Message) -> Draft:
    try:
        if form == "karafka":
            due = client.message.seconds(due) * 1000  # it knows whole seconds only
            if due > formats.LAST_DUE:
                raise Refused("due", str(due), "must be before the year 10000")
            built = client.karafka.record(content, _moment(due), _ANY, id, now=_moment(due))
        elif form in ("sky-avro", "sky-json"):
            kind: Literal["avro", "json"] = "avro" if form == "sky-avro" else "json"
            built = client.sky.record(content, id, _moment(due), _ANY, kind)
        else:
            asked = native.Wish(id, due, content.topic, content.key, content.value, list(content.headers), max(1, due))
            made = native.record(asked)
            return Draft(made.value, made.headers, due, content.topic)
    except (client.ClientError, native.Unfit) as error:
        raise Refused("schedule", "", str(error)) from None
    return Draft(built.value, list(built.headers), due, content.topic)


def checked_target(topic: str) -> str:
    """Raises Refused if that is no topic's name."""
    if formats.legal_topic(topic.encode()) is None:
        raise Refused("target", topic, "must be a topic's name: 1 to 249 of a-z A-Z 0-9 . _ -")
    return topic


def check_due(due: int) -> None:
    """Raises Refused for a moment that has passed or does not exist."""
    if due < time.time() * 1000 - PAST_MS:
        raise Refused("due", str(due), "must not have passed: a moment from now on, epoch ms")
    if due > formats.LAST_DUE:
        raise Refused("due", str(due), "must be before the year 10000")


def check_headers(headers: Headers) -> None:
    """Raises Refused for names that are the scheduler's."""
    for name, _ in headers:
        if not name or name.lower().startswith(RESERVED):
            raise Refused("headers", name, f"names must not be empty or begin with {', '.join(RESERVED)}")
        try:
            formats.header_name(name)
        except formats.Invalid as error:
            raise Refused("headers", ascii(name), str(error)) from None


def _moment(due: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=due)
