"""The desk of a scheduler that runs elsewhere, over its REST interface: the same questions and answers as `desk.Desk`.

    remote.Remote("http://almanac:8000", token).schedules(desk.Query(target="mails"))

What is refused there is raised here as it would be by the desk itself.
"""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import fields
from http.client import HTTPException
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from almanac import board, desk, errors
from almanac.controls import Controls
from almanac.record import Headers

T = TypeVar("T")

PATIENCE = 30.0  # seconds for an answer, on top of what the question itself may take
LARGEST = 256 << 20  # bytes of an answer

_REFUSALS = {404: desk.NotFound, 409: desk.NotNow, 412: desk.Exists}


class Remote:
    """Any number of threads may ask; each question is a request of its own."""

    def __init__(self, url: str, token: str = "", seconds: float = PATIENCE) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise errors.UsageError(f"--api {url!r}: must be the address of a scheduler, such as http://localhost:8000")
        if parts.username or parts.password:
            raise errors.UsageError("--api must not hold a password: ALMANAC_API_TOKEN is for that")
        self._url, self._token, self._seconds = url.rstrip("/"), token, seconds
        self._opener = urllib.request.build_opener(_StayHere)

    # Questions about schedules

    def schedules(self, query: desk.Query) -> desk.Found[desk.Row]:
        """See Desk."""
        found = self._ask("GET", "schedules", vars(query))
        return desk.Found(rows=[_row(each) for each in found["rows"]], cursor=found["cursor"], total=found["total"])

    def schedule(self, id: bytes, topic: str | None = None, partition: int | None = None) -> list[desk.Row]:  # noqa: A002
        """See Desk."""
        try:
            found = self._ask("GET", _path("schedules", id), {"topic": topic, "partition": partition})
        except desk.NotFound:
            return []
        return [_row(each) for each in found["rows"]]

    def counts(
        self, by: desk.Step = "hour", target: str | None = None, due_from: int | None = None, due_to: int | None = None
    ) -> list[desk.Count]:
        """See Desk."""
        query = {"by": by, "target": target, "due_from": due_from, "due_to": due_to}
        return [_made(desk.Count, each) for each in self._ask("GET", "counts", query)["counts"]]

    # Questions about what is over

    def fired(self, query: desk.FiredQuery) -> desk.Found[desk.FiredRow]:
        """See Desk."""
        asked = {name: value for name, value in vars(query).items() if name != "total"}
        found = self._ask("GET", "fired", asked)
        rows = [_made(desk.FiredRow, each) for each in found["rows"]]
        return desk.Found(rows=rows, cursor=found["cursor"], total=found["total"])

    def fired_counts(
        self, by: desk.Step = "hour", target: str | None = None, since: int | None = None, until: int | None = None
    ) -> list[desk.Count]:
        """See Desk."""
        query = {"by": by, "target": target, "since": since, "until": until}
        return [_made(desk.Count, each) for each in self._ask("GET", "fired/counts", query)["counts"]]

    def dead_letters(self, query: desk.DeadQuery) -> desk.Found[desk.DeadLetter]:
        """See Desk."""
        found = self._ask("GET", "dead-letters", vars(query))
        rows = [_made(desk.DeadLetter, each) for each in found["rows"]]
        return desk.Found(rows=rows, cursor=found["cursor"], total=found["total"])

    # Questions about the scheduler

    def overview(self) -> desk.Overview:
        """See Desk."""
        found = self._ask("GET", "overview")
        states = {int(shard): state for shard, state in found["states"].items()}
        seen = {**found, "states": states, "halted": tuple(found["halted"])}
        return desk.Overview(
            board=_made(board.Overview, seen),
            controls=Controls.of(found["controls"]),
            partitions=[_made(desk.Partition, each) for each in found["partitions"]],
            shards=[_made(desk.Shard, each) for each in found["shards"]],
            duties=found["duties"],
            group=found["group"],
            now=found["now"],
        )

    def controls(self) -> Controls:
        """See Desk."""
        return Controls.of(self._ask("GET", "controls"))

    # Acts

    def move(
        self,
        id: bytes,  # noqa: A002
        due: int,
        who: str,
        topic: str | None = None,
        partition: int | None = None,
    ) -> desk.Row:
        """See Desk."""
        place = {"topic": topic, "partition": partition}
        return _row(self._ask("PATCH", _path("schedules", id), place, {"due": due}, who))

    def cancel(
        self,
        id: bytes,  # noqa: A002
        who: str,
        topic: str | None = None,
        partition: int | None = None,
        timeout: float = desk.CERTAIN_S,
    ) -> desk.Outcome:
        """See Desk."""
        how = {"topic": topic, "partition": partition, "timeout": timeout}
        try:
            found = self._ask("DELETE", _path("schedules", id), how, who=who, seconds=timeout)
        except desk.NotFound as error:
            return desk.Outcome(answer="not-found", id=id, topic=topic, partition=partition, detail=error.allowed)
        return _made(desk.Outcome, {**found, "answer": found["outcome"]})

    def send_again(self, partition: int, offset: int, who: str, due: int | None = None) -> desk.Row:
        """See Desk."""
        return _row(self._ask("POST", f"dead-letters/{partition}/{offset}/send-again", body={"due": due}, who=who))

    def pause(self, who: str, target: str | None = None) -> Controls:
        """See Desk."""
        return Controls.of(self._ask("POST", "controls/pause", body={"target": target}, who=who))

    def resume(self, who: str, target: str | None = None) -> Controls:
        """See Desk."""
        return Controls.of(self._ask("POST", "controls/resume", body={"target": target}, who=who))

    def cap_missed(self, per_second: int | None, who: str) -> Controls:
        """See Desk."""
        return Controls.of(self._ask("PUT", "controls/caps/missed", body={"per_second": per_second}, who=who))

    def cap_target(self, target: str, per_second: int | None, who: str) -> Controls:
        """See Desk."""
        path = f"controls/caps/targets/{quote(target, safe='')}"
        return Controls.of(self._ask("PUT", path, body={"per_second": per_second}, who=who))

    # Requests

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        who: str = "",
        seconds: float = 0.0,
    ) -> dict[str, Any]:
        given = {name: _plain(value) for name, value in (query or {}).items() if value is not None}
        url = f"{self._url}/api/v1/{path}" + (f"?{urlencode(given)}" if given else "")
        headers = {"Accept": "application/json", **({"X-Almanac-User": _ascii(who)} if who else {})}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with self._opener.open(request, timeout=self._seconds + seconds) as answer:
                found = json.loads(answer.read(LARGEST))
        except urllib.error.HTTPError as error:
            raise self._refused(error) from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise errors.Unreachable(
                f"no scheduler answers at {self._url}: {reason}. Does it run, and does --api (ALMANAC_API) name it?"
            ) from None
        except ValueError:
            raise errors.AlmanacError(f"what answers at {self._url} is no Almanac: no JSON") from None
        if not isinstance(found, dict):
            raise errors.AlmanacError(f"what answers at {self._url} is no Almanac")
        return found

    def _refused(self, error: urllib.error.HTTPError) -> errors.AlmanacError:
        try:
            told = json.loads(error.read(1 << 20))
            detail = str(told["detail"])
        except (ValueError, KeyError, TypeError, OSError):
            return errors.AlmanacError(f"what answers at {self._url} is no Almanac: {error.code} {error.reason}")
        if error.code == 401:
            return errors.AlmanacError(f"{self._url} asks for a token: set ALMANAC_API_TOKEN ({detail})")
        if error.code in (429, 503):
            return errors.Unreachable(f"{self._url}: {detail}")
        if error.code in (404, 409, 412, 422) and "field" in told:
            kind = _REFUSALS.get(error.code, desk.Refused)
            return kind(str(told["field"]), str(told.get("value", "")), str(told.get("allowed", detail)))
        return errors.AlmanacError(f"{self._url}: {detail}")


class _StayHere(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """The token is for this address alone."""


def _path(what: str, id: bytes) -> str:  # noqa: A002
    return f"{what}/{quote(id, safe='')}"


def _plain(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


def _ascii(text: str) -> str:
    return text.encode("ascii", errors="replace").decode()


def _bytes(told: Mapping[str, Any], name: str) -> bytes | None:
    value = told.get(f"{name}_base64")
    return None if value is None else base64.b64decode(value)


def _made(kind: type[T], told: Mapping[str, Any]) -> T:
    """One of the desk's shapes; what it does not know (times as text) is left out."""
    known = {field.name: told[field.name] for field in fields(kind) if field.name in told}  # type: ignore[arg-type]
    for name in ("id", "value"):
        if f"{name}_base64" in told:
            known[name] = _bytes(told, name)
    if "headers" in known:
        known["headers"] = _headers(told["headers"])
    return kind(**known)


def _headers(told: list[dict[str, Any]]) -> Headers:
    return [(each["name"], _bytes(each, "value")) for each in told]


def _row(told: Mapping[str, Any]) -> desk.Row:
    return _made(desk.Row, {**told, "target_key": _bytes(told, "target_key")})
