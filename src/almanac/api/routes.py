"""Our own endpoints, below /api/v1. Each asks the desk, in a thread: what it does may wait for Kafka.

An id is a part of the path, slashes and all; percent-encoded it may be any bytes.
"""

from __future__ import annotations

import threading
from typing import Annotated, Any
from urllib.parse import unquote_to_bytes

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response

from almanac import desk
from almanac.api import forms, problems

router = APIRouter(prefix="/api/v1")

_STORIES = threading.Semaphore(2)  # each reads the topics whole


def _desk(request: Request) -> desk.Desk:
    at: desk.Desk = request.app.state.desk
    return at


def _who(request: Request, x_almanac_user: Annotated[str | None, Header()] = None) -> str:
    """For the audit log; the name is what they say of themselves."""
    host = request.client.host if request.client else "?"
    name = "".join(char for char in x_almanac_user or "" if char.isprintable())[:80]
    return f"api {host}" + (f" ({name})" if name else "")


def _id(request: Request, id: Annotated[str, Path(description="the schedule's id")]) -> bytes:
    """The id as it stands in the path, byte by byte; `id` is text, in which what is no UTF-8 is lost."""
    raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    raw = raw.partition(b"?")[0].partition(b"/api/v1/")[2].partition(b"/")[2]
    whole = unquote_to_bytes(raw.removesuffix(b"/fire") if request.method == "POST" else raw)
    if not whole:
        raise desk.Refused("id", id, "must not be empty")
    return whole


At = Annotated[desk.Desk, Depends(_desk)]
Who = Annotated[str, Depends(_who)]
Id = Annotated[bytes, Depends(_id)]
IfNoneMatch = Annotated[str | None, Header(alias="If-None-Match")]


def _absent(given: str | None) -> bool:
    if given is not None and given.strip() != "*":
        raise problems.Problem(400, f"If-None-Match {given[:80]!r}: only * is understood", field="If-None-Match")
    return given is not None


def _page(found: desk.Found[Any], shape: Any) -> dict[str, Any]:
    return {"rows": [shape(row) for row in found.rows], "cursor": found.cursor, "total": found.total}


# Schedules


@router.get("/schedules", tags=["schedules"])
def list_schedules(at: At, query: Annotated[forms.Schedules, Query()]) -> dict[str, Any]:
    """List and search what is pending."""
    return _page(at.schedules(desk.Query(**query.model_dump())), forms.row)


@router.post("/schedules", tags=["schedules"], status_code=201)
def create_schedule(
    at: At, who: Who, body: forms.NewSchedule, response: Response, if_none_match: IfNoneMatch = None
) -> dict[str, Any]:
    """Schedule a message. A pending id is replaced, unless `If-None-Match: *` is sent."""
    return _created(at.create(body.new(None, _absent(if_none_match)), who), response)


@router.put("/schedules/{id:path}", tags=["schedules"], status_code=201)
def put_schedule(
    at: At, who: Who, id: Id, body: forms.NewSchedule, response: Response, if_none_match: IfNoneMatch = None
) -> dict[str, Any]:
    """Schedule a message under that id."""
    return _created(at.create(body.new(id, _absent(if_none_match)), who), response)


def _created(row: desk.Row, response: Response) -> dict[str, Any]:
    response.headers["ETag"] = f'"{row.topic}/{row.partition}/{row.version}"'
    return forms.row(row)


@router.get("/schedules/{id:path}", tags=["schedules"])
def get_schedule(at: At, id: Id, place: Annotated[forms.Place, Query()]) -> dict[str, Any]:
    """What is pending under the id; one at most in each partition of each schedules topic."""
    rows = at.schedule(id, place.topic, place.partition)
    if not rows:
        raise desk.NotFound("id", id.decode(errors="backslashreplace"), "nothing is pending under it")
    return {"rows": [forms.row(row) for row in rows]}


@router.patch("/schedules/{id:path}", tags=["schedules"])
def update_schedule(
    at: At, who: Who, id: Id, body: forms.ChangedSchedule, place: Annotated[forms.Place, Query()]
) -> dict[str, Any]:
    """Change a pending schedule: its time, target, key, value or headers."""
    return forms.row(at.update(id, body.change(), who, place.topic, place.partition))


@router.delete("/schedules/{id:path}", tags=["schedules"])
def cancel_schedule(
    at: At, who: Who, id: Id, how: Annotated[forms.Certain, Query()], response: Response
) -> dict[str, Any]:
    """Cancel with certainty: `cancelled` or `already-fired` (never wrong), or `unknown` (202)."""
    outcome = at.cancel(id, who, how.topic, how.partition, how.timeout)
    if outcome.answer == "not-found":
        raise desk.NotFound("id", id.decode(errors="backslashreplace"), outcome.detail)
    response.status_code = 202 if outcome.answer == "unknown" else 200
    return forms.outcome(outcome)


@router.post("/schedules/{id:path}/fire", tags=["schedules"])
def fire_schedule(
    at: At, who: Who, id: Id, how: Annotated[forms.Certain, Query()], response: Response
) -> dict[str, Any]:
    """Fire now: `fired`, `buried` (a dead letter), or `waiting` (202)."""
    firing = at.fire_now(id, who, how.topic, how.partition, how.timeout)
    response.status_code = 202 if firing.answer == "waiting" else 200
    return forms.firing(firing)


@router.get("/stories/{id:path}", tags=["schedules"])
def tell_story(at: At, id: Id) -> dict[str, Any]:
    """All that the topics still say of the id. Reads them whole: may take long."""
    if not _STORIES.acquire(timeout=5):
        raise problems.Problem(503, "other stories are being read: ask again later", {"Retry-After": "5"})
    try:
        return forms.story(at.story(id))
    finally:
        _STORIES.release()


@router.get("/counts", tags=["schedules"])
def count_schedules(at: At, query: Annotated[forms.Counts, Query()]) -> dict[str, Any]:
    """How many are due in each hour or day (UTC), by target; exact. The range is widened to whole hours or days."""
    return {"counts": [forms.count(each) for each in at.counts(**query.model_dump())]}


# What is over


@router.get("/fired", tags=["over"])
def list_fired(at: At, query: Annotated[forms.Fired, Query()]) -> dict[str, Any]:
    """What fired and how late, the newest first."""
    return _page(at.fired(desk.FiredQuery(**query.model_dump())), forms.fired)


@router.get("/fired/counts", tags=["over"])
def count_fired(at: At, query: Annotated[forms.FiredCounts, Query()]) -> dict[str, Any]:
    """How many fired in each hour or day (UTC), by target, as far as the book has read."""
    return {"counts": [forms.count(each) for each in at.fired_counts(**query.model_dump())]}


@router.get("/dead-letters", tags=["over"])
def list_dead_letters(at: At, query: Annotated[forms.DeadLetters, Query()]) -> dict[str, Any]:
    """What could not be delivered, and why, the newest first."""
    return _page(at.dead_letters(desk.DeadQuery(**query.model_dump())), forms.letter)


@router.get("/dead-letters/{partition}/{offset}", tags=["over"])
def get_dead_letter(at: At, partition: int, offset: int) -> dict[str, Any]:
    """One dead letter."""
    return forms.letter(at.dead_letter(partition, offset))


@router.post("/dead-letters/{partition}/{offset}/send-again", tags=["over"], status_code=201)
def send_again(at: At, who: Who, partition: int, offset: int, body: forms.Again | None = None) -> dict[str, Any]:
    """Schedule a dead letter's message once more: now, or at `due`."""
    return forms.row(at.send_again(partition, offset, who, body.due if body is not None else None))


# The scheduler


@router.get("/overview", tags=["scheduler"])
def overview(at: At) -> dict[str, Any]:
    """The whole scheduler at one glance."""
    return forms.overview(at.overview())


@router.get("/partitions", tags=["scheduler"])
def partitions(at: At) -> dict[str, Any]:
    """Each partition: its wheel, its state, how far it is read."""
    return {"partitions": [vars(each) for each in at.partitions()]}


@router.get("/shards", tags=["scheduler"])
def shards(at: At) -> dict[str, Any]:
    """Each wheel's last report."""
    return {"shards": [vars(each) for each in at.shards()]}


@router.get("/config", tags=["scheduler"])
def config(at: At) -> dict[str, Any]:
    """The settings in force; secrets are masked."""
    return {"settings": [vars(each) for each in at.config()]}


@router.get("/controls", tags=["controls"])
def controls(at: At) -> dict[str, Any]:
    """What is paused and capped."""
    return at.controls().fields()


@router.post("/controls/pause", tags=["controls"])
def pause(at: At, who: Who, body: forms.Target | None = None) -> dict[str, Any]:
    """Nothing fires, of one target or at all. What falls due meanwhile fires after `resume`."""
    return at.pause(who, body.target if body is not None else None).fields()


@router.post("/controls/resume", tags=["controls"])
def resume(at: At, who: Who, body: forms.Target | None = None) -> dict[str, Any]:
    """Goes on, of one target or all that `pause` without one held back."""
    return at.resume(who, body.target if body is not None else None).fields()


@router.put("/controls/caps/missed", tags=["controls"])
def cap_missed(at: At, who: Who, body: forms.Cap) -> dict[str, Any]:
    """At most so many fires of missed schedules a second."""
    return at.cap_missed(body.per_second, who).fields()


@router.put("/controls/caps/targets/{target}", tags=["controls"])
def cap_target(at: At, who: Who, target: str, body: forms.Cap) -> dict[str, Any]:
    """At most so many fires a second for that target."""
    return at.cap_target(target, body.per_second, who).fields()
