"""Errors as application/problem+json (RFC 9457): the field, the value and what is allowed; never a payload or a token.

    {"type": "about:blank", "title": "Unprocessable Content", "status": 422, "detail": "limit '0': must be 1 to 1000",
     "field": "limit", "value": "0", "allowed": "must be 1 to 1000 (API_MAX_PAGE)"}

Where several fields are wrong, `errors` has them all and the first is told above.
"""

from __future__ import annotations

import logging
import traceback
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from almanac import desk, errors, live, ports

log = logging.getLogger("almanac.api")

TYPE = "application/problem+json"
_HIDDEN = frozenset(("value", "value_base64", "headers", "body"))  # what may hold a payload is never shown


class Problem(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, detail: str, headers: dict[str, str] | None = None, **more: Any) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers, self.more = status, detail, headers or {}, more


def answer(status: int, detail: str, headers: dict[str, str] | None = None, **more: Any) -> Response:
    """The response."""
    title = HTTPStatus(status).phrase
    content = {"type": "about:blank", "title": title, "status": status, "detail": detail, **more}
    return JSONResponse(content, status, headers, TYPE)


def handle(app: FastAPI) -> None:
    """Has every error of this app answered so."""

    def known(_: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)
        return answer(error.status, error.detail, error.headers, **error.more)

    def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, desk.Refused)
        return answer(error.status, str(error), field=error.field, value=error.value, allowed=error.allowed)

    def time_refused(_: Request, error: Exception) -> Response:
        return answer(422, str(error))

    def away(_: Request, error: Exception) -> Response:
        return answer(503, errors.brief(error), {"Retry-After": "2"})

    def http(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        headers = dict(error.headers) if error.headers else None
        return answer(error.status_code, str(error.detail), headers)

    app.add_exception_handler(Problem, known)
    app.add_exception_handler(desk.Refused, refused)
    app.add_exception_handler(errors.UsageError, time_refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    for kind in (errors.Unreachable, ports.Unavailable, live.Behind):
        app.add_exception_handler(kind, away)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(Exception, _unexpected)


def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = [_wrong(each) for each in error.errors()]
    first = found[0]
    shown = f" {first['value']!r}" if "value" in first else ""
    return answer(422, f"{first['field']}{shown}: {first['allowed']}", **first, errors=found)


def _wrong(error: Any) -> dict[str, Any]:
    # where it was (query, body, path) comes first; in a union the member's name stands between
    place = [str(part) for part in error["loc"][1:]] or [str(error["loc"][0])]
    named = place[0] if place[0] in _HIDDEN else ".".join(place)
    found: dict[str, Any] = {"field": named, "allowed": _allowed(error)}
    given = error.get("input")
    if place[0] not in _HIDDEN and isinstance(given, str | int | float | bool):
        found["value"] = str(given)[:200]
    return found


def _allowed(error: Any) -> str:
    kind, context = error["type"], error.get("ctx") or {}
    if kind == "missing":
        return "is required"
    if kind == "extra_forbidden":
        return "is not known here; see /docs"
    if kind == "literal_error":
        return f"must be {context.get('expected')}"
    if kind == "json_invalid":
        return "the body must be JSON"
    text = str(error["msg"])
    return text[:1].lower() + text[1:]


def _unexpected(request: Request, error: Exception) -> Response:
    """What went wrong is ours to find: where is logged, and not what was in the request."""
    where = "".join(traceback.format_tb(error.__traceback__))
    log.error("%s %s failed with %s\n%s", request.method, request.url.path, type(error).__name__, where)
    return answer(500, f"something went wrong here ({type(error).__name__}); the scheduler's log says where")
