"""Who may see the page, and who may act on it.

    API_TOKEN set                  the page asks for it once; the session that follows is a signed cookie
    none, on the own machine       everybody there may see and act
    none, on another address       everybody may see, nobody may act: the page says so

The cookie holds when it ends and a signature with the token as its key: another token ends all sessions.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from urllib.parse import urlsplit

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from almanac.api import guard
from almanac.settings import Settings
from almanac.ui import payloads

COOKIE = "almanac-session"
SESSION_S = 12 * 3600
SIGN_IN = "/ui/sign-in"
SESSION = "/ui/session"  # takes the form; a page would remove other routes of its path

READ_ONLY = (
    "The scheduler listens on an address that others reach, and no API_TOKEN is set: everything can be seen and "
    "nothing can be changed. Set API_TOKEN, or SERVER_ADDR=127.0.0.1:8000."
)
FOREIGN = (
    "This page was asked for under a name that is not this machine's own, and no API_TOKEN is set: nothing can be "
    "changed. Open it as http://127.0.0.1, or set API_TOKEN."
)


def _signature(secret: str, ends: int) -> str:
    return hmac.new(secret.encode(), f"almanac page until {ends}".encode(), hashlib.sha256).hexdigest()


def _signed_in(request: Request, secret: str) -> bool:
    ends, _, signature = request.cookies.get(COOKIE, "").partition(".")
    if not ends.isdecimal() or not ends.isascii() or len(ends) > 12 or int(ends) < time.time():
        return False
    return hmac.compare_digest(signature.encode(), _signature(secret, int(ends)).encode())


def turned_away(request: Request, settings: Settings) -> Response | None:
    """Where to go first; None if the page may be seen."""
    secret = settings.api_token
    if not secret or _signed_in(request, secret):
        return None
    asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(payloads.address(SIGN_IN, to=asked), 303)


def sign_in(request: Request, settings: Settings, given: str, to: str) -> Response:
    """The answer to a token: on to the page with a session, or back with a word about it."""
    secret = settings.api_token
    onward = to if to.startswith("/") and not to.startswith(("//", "/\\")) else "/"
    if not secret:
        return RedirectResponse(onward, 303)
    if not hmac.compare_digest(given.strip().encode(), secret.encode()):
        return RedirectResponse(payloads.address(SIGN_IN, to=onward, wrong="1"), 303)
    ends = int(time.time()) + SESSION_S
    answer = RedirectResponse(onward, 303)
    secure = request.url.scheme == "https"
    # Strict: a link or a form of another site never comes with the session.
    answer.set_cookie(COOKIE, f"{ends}.{_signature(secret, ends)}", httponly=True, samesite="strict", secure=secure)
    return answer


def sign_out() -> Response:
    answer = RedirectResponse(SIGN_IN, 303)
    answer.delete_cookie(COOKIE)
    return answer


def why_not(request: Request, settings: Settings) -> str | None:
    """Why nothing may be changed; None if it may."""
    if settings.api_token:
        return None  # `turned_away` has let them in
    if settings.server_address is not None and not guard.own(settings.server_address.host):
        return READ_ONLY
    # A name of somebody else that leads to 127.0.0.1 is how a foreign page would act through the viewer's browser.
    asked = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    return None if guard.own(asked) else FOREIGN


def who(request: Request, settings: Settings) -> str:
    """For the audit log."""
    host = request.client.host if request.client else "?"
    return f"page {host}" + (" with token" if settings.api_token else "")
