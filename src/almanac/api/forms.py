"""What requests and answers look like as JSON. Bytes are told as text where they are UTF-8, and always as base64."""

from __future__ import annotations

import base64
import binascii
import dataclasses
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from almanac import desk, errors, when
from almanac.record import Headers


def _moment(given: object) -> object:
    if isinstance(given, bool) or not isinstance(given, str | int):
        raise ValueError("must be a time: 2030-01-01T09:00:00Z, an epoch (s or ms), +90s, tomorrow 09:00 (UTC)")
    try:
        return when.parse(str(given), datetime.now(UTC), UTC)
    except errors.TimeRefused as error:
        raise ValueError(str(error)) from None


def _base64(given: object) -> object:
    if not isinstance(given, str):
        raise ValueError("must be base64")
    try:
        return base64.b64decode(given, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("must be base64") from None


Moment = Annotated[int, BeforeValidator(_moment, json_schema_input_type=int | str)]
Base64 = Annotated[bytes, BeforeValidator(_base64, json_schema_input_type=str)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Header(_Strict):
    """A header of a message: `value` (text) or `value_base64`; neither: null."""

    name: str
    value: str | None = None
    value_base64: Base64 | None = None

    def pair(self) -> tuple[str, bytes | None]:
        return self.name, self.value.encode() if self.value is not None else self.value_base64


class _Content(_Strict):
    """What may be said of a message."""

    value: str | None = Field(None, description="the message as text")
    value_base64: Base64 | None = Field(None, description="the message as base64")
    target_key: str | None = Field(None, description="the message's key as text")
    target_key_base64: Base64 | None = None
    headers: dict[str, str] | list[Header] | None = Field(None, description="name: text, or a list with base64")

    @model_validator(mode="after")
    def _one_of(self) -> _Content:
        for name in ("value", "target_key"):
            if getattr(self, name) is not None and getattr(self, f"{name}_base64") is not None:
                raise ValueError(f"give {name} or {name}_base64, not both")
        return self

    def payload(self) -> bytes | None:
        return self.value.encode() if self.value is not None else self.value_base64

    def key(self) -> bytes | None:
        return self.target_key.encode() if self.target_key is not None else self.target_key_base64

    def pairs(self) -> Headers | None:
        if isinstance(self.headers, dict):
            return [(name, value.encode()) for name, value in self.headers.items()]
        return None if self.headers is None else [header.pair() for header in self.headers]


class NewSchedule(_Content):
    """A schedule to be made."""

    id: str | None = Field(None, description="none: a new one is made up", min_length=1, max_length=10_000)
    due: Moment = Field(description="epoch (s or ms), ISO 8601, +90s, tomorrow 09:00 (UTC)")
    target: str = Field(description="the topic to deliver to")
    topic: str | None = Field(None, description="the schedules topic; none: the first one")

    def new(self, id: bytes | None, if_absent: bool) -> desk.New:
        chosen = id if id is not None else self.id.encode() if self.id is not None else None
        value = self.payload()
        if value is None:
            raise desk.Refused("value", "null", "must be given: value (text) or value_base64")
        return desk.New(
            id=chosen, target=self.target, due=self.due, value=value, target_key=self.key(), headers=self.pairs() or [],
            topic=self.topic, if_absent=if_absent,
        )  # fmt: skip


class ChangedSchedule(_Content):
    """What is to be different; what is left out stays."""

    due: Moment | None = None
    target: str | None = None

    def change(self) -> desk.Change:
        change = desk.Change(
            due=self.due, target=self.target, target_key=self.key(), value=self.payload(), headers=self.pairs()
        )
        if all(value is None for value in vars(change).values()):
            raise desk.Refused("body", "{}", "must name what to change: due, target, target_key, value or headers")
        return change


class Again(_Strict):
    """When a dead letter's message is to be delivered."""

    due: Moment | None = Field(None, description="none: now")


class Target(_Strict):
    """Which target; none: all."""

    target: str | None = None


class Cap(_Strict):
    """Fires a second; null: no limit."""

    per_second: int | None = Field(ge=0, le=1_000_000)


# Questions


class Schedules(_Strict):
    id_part: str | None = Field(None, description="anywhere in the id")
    target: str | None = None
    topic: str | None = None
    due_from: Moment | None = Field(None, description="included")
    due_to: Moment | None = Field(None, description="not included")
    state: Literal["waiting", "overdue"] | None = None
    sort: Literal["due", "-due", "id"] = "due"
    limit: int = 50
    cursor: str | None = None
    total: bool = Field(False, description="also count all that match")


class Counts(_Strict):
    by: Literal["hour", "day"] = "hour"
    target: str | None = None
    due_from: Moment | None = None
    due_to: Moment | None = None


class Fired(_Strict):
    id_part: str | None = None
    target: str | None = None
    since: Moment | None = None
    until: Moment | None = None
    outcome: str | None = Field(None, description="fired, or a dead letter's reason")
    limit: int = 50
    cursor: str | None = None


class FiredCounts(_Strict):
    by: Literal["hour", "day"] = "hour"
    target: str | None = None
    since: Moment | None = None
    until: Moment | None = None


class DeadLetters(_Strict):
    id_part: str | None = None
    reason: str | None = None
    since: Moment | None = None
    until: Moment | None = None
    limit: int = 50
    cursor: str | None = None


class Place(_Strict):
    """Where an id is meant, if it is pending in several places."""

    topic: str | None = None
    partition: int | None = None


class Certain(Place):
    timeout: float = Field(desk.CERTAIN_S, gt=0, le=30, description="seconds to wait for a certain answer")


# Answers


def told(name: str, value: bytes | None) -> dict[str, Any]:
    """Bytes under two names."""
    if value is None:
        return {name: None, f"{name}_base64": None}
    try:
        text: str | None = value.decode()
    except UnicodeDecodeError:
        text = None
    return {name: text, f"{name}_base64": base64.b64encode(value).decode()}


def _moments(**moments: int | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, at in moments.items():
        found |= {name: at, f"{name}_utc": None if at is None else when.render(at, UTC)}
    return found


def row(row: desk.Row) -> dict[str, Any]:
    return {
        **told("id", row.id), "topic": row.topic, "partition": row.partition, "version": row.version,
        **_moments(due=row.due, timestamp=row.timestamp), "state": row.state, "target": row.target,
        **told("target_key", row.target_key), **told("value", row.value), "size": row.size, "hidden": row.hidden,
        "headers": [{"name": name, **told("value", value)} for name, value in row.headers],
    }  # fmt: skip


def fired(row: desk.FiredRow) -> dict[str, Any]:
    return {
        **told("id", row.id), "topic": row.topic, "partition": row.partition, "version": row.version,
        "target": row.target, **_moments(due=row.due, fired_at=row.fired_at), "lateness": row.lateness,
        "outcome": row.outcome,
    }  # fmt: skip


def letter(row: desk.DeadLetter) -> dict[str, Any]:
    return {
        "partition": row.partition, "offset": row.offset, **_moments(at=row.at), **told("id", row.id),
        "reason": row.reason, "detail": row.detail, "source": row.source, "target": row.target,
        **_moments(due=row.due), **told("value", row.value), "size": row.size, "hidden": row.hidden,
        "headers": [{"name": name, **told("value", value)} for name, value in row.headers], "sendable": row.sendable,
    }  # fmt: skip


def outcome(answer: desk.Outcome) -> dict[str, Any]:
    return {"outcome": answer.answer, **told("id", answer.id), **_without(answer, "answer", "id")}


def firing(answer: desk.Firing) -> dict[str, Any]:
    return {
        "outcome": answer.answer, **_moments(fired_at=answer.fired_at), "detail": answer.detail,
        "schedule": row(answer.row),
    }  # fmt: skip


def count(each: desk.Count) -> dict[str, Any]:
    return {**_moments(start=each.start), "target": each.target, "number": each.number}


def overview(view: desk.Overview) -> dict[str, Any]:
    return {
        "group": view.group, **_moments(now=view.now), **vars(view.board), "controls": view.controls.fields(),
        "partitions": [vars(each) for each in view.partitions], "shards": [vars(each) for each in view.shards],
        "duties": view.duties,
    }  # fmt: skip


def story(told_of: desk.Story) -> dict[str, Any]:
    return {"verdicts": told_of.verdicts, "events": [vars(event) for event in told_of.events]}


def _without(answer: Any, *names: str) -> dict[str, Any]:
    return {field.name: getattr(answer, field.name) for field in dataclasses.fields(answer) if field.name not in names}
