"""The admin page: NiceGUI on the same FastAPI app as the REST interface. See docs/page.md.

    from almanac import ui

    ui.mount(app, desk, settings)      # the overview at /, everything else below /ui

No build, and nothing from elsewhere: scripts, fonts and styles come with the packages and are served from here, which
the content security policy makes sure of.

    gate       who may see it, and who may act
    site       the desk it is about, and what it said over the last minutes
    frame      header, navigation, theme; how a page is filled, waits and fails
    tags       plain HTML elements; dialogs: an action and its answer; times, payloads: for people
    overview, timeline, schedules, schedule, fired, dead_letters, limits: the pages
"""

from __future__ import annotations

import asyncio

import nicegui
from fastapi import FastAPI, Request
from fastapi.responses import Response
from nicegui import core, ui
from starlette.routing import Match, Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from almanac import desk
from almanac.settings import Settings

# Each of these makes its pages known when it is imported.
from almanac.ui import (
    dead_letters,
    fired,
    frame,
    gate,
    limits,
    overview,
    payloads,
    schedule,
    schedules,
    site,
    tags,
    timeline,
)

__all__ = ["dead_letters", "fired", "limits", "mount", "overview", "schedule", "schedules", "timeline"]

_OURS = ("/ui/", "/_nicegui/", "/_nicegui_ws/")
_LARGEST = 16_384  # bytes of the form with the token
_WRONG_S = 0.5  # a wrong token costs that long
# Vue compiles its templates in the browser, so eval it must be; nothing is fetched from anywhere else, ever.
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; form-action 'self'"
)
_HEADERS = {
    b"content-security-policy": _POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"same-origin",
}
_FAVICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><circle cx="16" cy="16" r="14" fill="#1f5c8a"/>'
    '<path d="M16 8v8l6 4" fill="none" stroke="#fff" stroke-width="3" stroke-linecap="round"/></svg>'
)


class _Guarded:
    """Says with every answer that the browser must not load anything from elsewhere."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def said(message: Message) -> None:
            if message["type"] == "http.response.start":
                named = {name for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *((name, value) for name, value in _HEADERS.items() if name not in named),
                ]
            await send(message)

        await self._app(scope, receive, said)


class _Ours(Mount):
    """The page's own paths and no other: what else is unknown stays an error of the REST interface."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        path = scope.get("path", "")
        if path in ("/", "/favicon.ico") or path.startswith(_OURS):
            return super().matches(scope)
        return Match.NONE, {}


def mount(app: FastAPI, at: desk.Desk, settings: Settings) -> None:
    """Puts the page onto the app; what was put there before it comes first."""
    site.open_on(at, settings)
    # NiceGUI's own app is one for the whole process, and adds its middleware each time: a second server begins anew.
    core.app.user_middleware.clear()
    core.app.middleware_stack = None
    ui.run_with(
        app,
        title="Almanac",
        favicon=_FAVICON,
        dark=None,
        language="en-US",
        tailwind=False,
        binding_refresh_interval=None,
        reconnect_timeout=10.0,
        show_welcome_message=False,
    )
    app.router.routes[:] = [
        _Ours("/", app=_Guarded(core.app)) if isinstance(route, Mount) and route.app is core.app else route
        for route in app.router.routes
    ]


@nicegui.app.post(gate.SESSION, include_in_schema=False)
async def _given(request: Request) -> Response:
    length = request.headers.get("content-length", "")
    if not length.isdecimal() or int(length) > _LARGEST:
        return Response("The form is too large.", 413)
    form = await request.form(max_fields=4, max_files=0)
    answer = gate.sign_in(request, site.current().settings, str(form.get("token", "")), str(form.get("to", "/")))
    if "set-cookie" not in answer.headers:
        await asyncio.sleep(_WRONG_S)
    return answer


@nicegui.app.post("/ui/sign-out", include_in_schema=False)
def _out() -> Response:
    return gate.sign_out()


@ui.page(gate.SIGN_IN, title="Sign in · Almanac")
def _sign_in(request: Request) -> None:
    frame.head()
    asked = payloads.parameters(request.url.query)
    wrong = "wrong" in asked
    with tags.tag("main", classes="al-main al-alone"), tags.sheet():
        tags.tag("h1", "Almanac", "al-h1")
        tags.tag("p", "This scheduler asks for its API token.", "al-lead")
        if wrong:
            tags.notice("bad", "That is not the token", "It is what API_TOKEN was set to.", role="alert")
        with tags.tag("form", method="post", action=gate.SESSION, classes="al-body"):
            tags.tag("input", type="hidden", name="to", value=asked.get("to", b"/").decode(errors="replace"))
            tags.Field(
                "API token",
                name="token",
                kind="password",
                autocomplete="current-password",
                autofocus=True,
                required=True,
            )
            tags.button("Sign in", kind="submit", classes="al-main-button")
