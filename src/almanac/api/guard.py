"""Who may ask, and how much: the token, read-only where there is none, sizes and rates. Stands before everything else.

    API_TOKEN set                 every request needs it (Authorization: Bearer ...), but those of `OPEN`
    none, 127.0.0.1               everybody on the machine may ask and act
    none, any other address       everybody may ask, nobody may act

A browser sends what foreign pages tell it to. So no request that acts is taken from another origin, and without a token
none under a name that is not the machine's own (a foreign name may lead to 127.0.0.1). A browser may send the token as
the password of Basic authentication, to read (/docs): it would send that along with foreign pages' requests too.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import threading
import time
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from almanac.api import problems
from almanac.settings import Settings

OPEN = ("/liveness", "/readiness", "/metrics")
OURS = ("/api/", "/info", "/schedules", "/docs", "/redoc", "/openapi.json")  # the page guards itself
READS = ("GET", "HEAD", "OPTIONS")
READ_ONLY = (
    "nothing can be changed: the scheduler listens on an address that others reach, and no API_TOKEN is set. Set "
    "API_TOKEN, or SERVER_ADDR=127.0.0.1:8000"
)
BURST = 2  # seconds' worth of requests that may come at once


class Guard:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, settings: Settings, page: bool = False) -> None:
        self._app, self._page = app, page
        self._token = settings.api_token.encode()
        self._most = settings.api_max_body
        self._rates = Rates(settings.api_rate)
        address = settings.server_address
        self._private = address is None or own(address.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if scope["type"] != "http" or path in OPEN or (self._page and not ours(path)):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        client = scope["client"][0] if scope.get("client") else "?"
        refused = self._refused(scope["method"], headers, client)
        if refused is not None:
            status, detail, more = refused
            await problems.answer(status, detail, more)(scope, receive, send)
            return
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self._most:
            await self._too_large()(scope, receive, send)
            return
        if scope["method"] not in READS:
            body = await self._body(receive)
            if body is None:
                await self._too_large()(scope, receive, send)
                return
            receive = _replayed(body, receive)
        await self._app(scope, receive, send)

    def _refused(self, method: str, headers: Headers, client: str) -> tuple[int, str, dict[str, str]] | None:
        if not self._rates.allow(client):
            return 429, "too many requests from this address: slow down (API_RATE)", {"Retry-After": "1"}
        if self._token and not self._knows_token(headers.get("authorization", ""), method):
            # a browser that is sent here may ask its user
            return 401, "send the token: Authorization: Bearer API_TOKEN", {"WWW-Authenticate": 'Basic realm="Almanac"'}
        if method in READS:
            return None
        if not self._token and not self._private:
            return 403, READ_ONLY, {}
        host = urlsplit(f"//{headers.get('host', '')}").hostname or ""
        if not self._token and not own(host):
            return 403, "nothing can be changed under a foreign name: ask http://127.0.0.1, or set API_TOKEN", {}
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != headers.get("host"):
            return 403, "nothing can be changed by pages of another origin", {}
        return None

    def _knows_token(self, given: str, method: str) -> bool:
        kind, _, text = given.partition(" ")
        secret = text.strip().encode(errors="replace")
        if kind.lower() == "basic" and method in READS:
            try:
                secret = base64.b64decode(secret).partition(b":")[2]
            except binascii.Error:
                return False
        elif kind.lower() != "bearer":
            return False
        return hmac.compare_digest(secret, self._token)

    def _too_large(self) -> ASGIApp:
        return problems.answer(
            413, f"the body is larger than {self._most} bytes", field="body", allowed=f"{self._most} (API_MAX_BODY)"
        )

    async def _body(self, receive: Receive) -> bytes | None:
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return b"".join(parts)
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._most:
                return None
            if not message.get("more_body", False):
                return b"".join(parts)


def _replayed(body: bytes, receive: Receive) -> Receive:
    told = False

    async def again() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


class Rates:
    """A bucket of requests for each address; thread-safe."""

    def __init__(self, per_second: int) -> None:
        self._rate = per_second
        self._lock = threading.Lock()
        self._buckets: dict[str, tuple[float, float]] = {}  # what is left, as of when

    def allow(self, client: str, now: float | None = None) -> bool:
        """Takes one out, if there is one."""
        if not self._rate:
            return True
        moment = time.monotonic() if now is None else now
        with self._lock:
            if len(self._buckets) > 10_000:  # full ones need not be remembered
                self._buckets = {c: b for c, b in self._buckets.items() if moment - b[1] < BURST}
            left, at = self._buckets.get(client, (float(self._rate * BURST), moment))
            left = min(self._rate * BURST, left + (moment - at) * self._rate)
            self._buckets[client] = (left - 1 if left >= 1 else left, moment)
            return left >= 1


def ours(path: str) -> bool:
    """Whether the REST interface answers it."""
    return any(path == name.rstrip("/") or path.startswith(name.rstrip("/") + "/") for name in OURS)


def own(host: str) -> bool:
    """Whether only this machine is reached under it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
