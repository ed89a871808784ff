"""What all pages share: header, navigation, theme, the viewer, and how a page waits and fails."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import tzinfo
from importlib import resources

from fastapi import Request
from fastapi.responses import Response
from nicegui import ui

from almanac.ui import gate, payloads, site, tags, times

THEME = "almanac-theme"
_THEMES = {"system": ("brightness_auto", None), "light": ("light_mode", False), "dark": ("dark_mode", True)}
_PAGES = (
    ("/", "Overview", "Overview", "insights"),
    ("/ui/timeline", "Timeline", "Timeline", "bar_chart"),
    ("/ui/schedules", "Schedules", "Schedules", "event"),
    ("/ui/fired", "Fired", "Fired", "done_all"),
    ("/ui/dead-letters", "Dead letters", "Dead", "report"),
    ("/ui/controls", "Controls", "Controls", "tune"),
)
_CSS = (resources.files("almanac.ui") / "almanac.css").read_text("utf-8")
_HEAD = (
    '<meta name="description" content="Almanac: scheduled messages for Kafka"><style>' + _CSS + "</style>"
    # Without it a dark page would flash white until NiceGUI has started.
    "<style>@media (prefers-color-scheme: dark) { html { background: #12161b } }</style>"
)


@dataclass
class Viewer:
    """Who looks, and from where."""

    site: site.Site
    who: str
    why_not: str | None  # why nothing may be changed; None if it may
    parameters: dict[str, bytes]
    zone: tzinfo
    zone_name: str
    dark: bool
    themed: list[Callable[[], object]] = field(default_factory=list)  # called when the theme changes

    def text(self, name: str) -> str:
        """A parameter of the address."""
        return self.parameters.get(name, b"").decode(errors="replace").strip()

    @property
    def now(self) -> int:
        return int(time.time() * 1000)

    def guard(self, button: ui.element) -> ui.element:
        """A button that acts: it does nothing where that is refused."""
        if self.why_not is not None:
            tags.enable(button, False, self.why_not)
        return button


Build = Callable[[Viewer], Awaitable[object]]


def page(path: str, title: str) -> Callable[[Build], Build]:
    """Makes a page of a function that fills it."""

    def decorate(build: Build) -> Build:
        @ui.page(path, title=f"{title} · Almanac", response_timeout=10)
        async def shown(request: Request) -> Response | None:
            here = site.current()
            if (elsewhere := gate.turned_away(request, here.settings)) is not None:
                return elsewhere
            body, themed = _shell(request, path, title, here)
            await ui.context.client.connected(timeout=30)
            zone_name, dark = await _browser()
            viewer = Viewer(
                site=here,
                who=gate.who(request, here.settings),
                why_not=gate.why_not(request, here.settings),
                parameters=payloads.parameters(request.url.query),
                zone=times.zone(zone_name),
                zone_name=zone_name,
                dark=dark,
            )
            themed.append(lambda dark: _retheme(viewer, dark))
            body.clear()
            with body:
                await filled(build, viewer)
            body.props["aria-busy"] = "false"
            body.update()
            return None

        return build

    return decorate


async def filled(build: Build, viewer: Viewer) -> None:
    """Fills the place it is called in; says what went wrong where it cannot be filled."""
    try:
        await build(viewer)
    except Exception as error:
        with tags.notice("bad", "This could not be shown", site.told(error), role="alert"):
            tags.button("Try again", ui.navigate.reload, icon="refresh").classes("self-start")


async def _browser() -> tuple[str, bool]:
    """The browser's time zone, and whether it shows the page dark."""
    script = "return [Intl.DateTimeFormat().resolvedOptions().timeZone, document.body.classList.contains('body--dark')]"
    try:
        zone_name, dark = await ui.run_javascript(script, timeout=5)
    except (TimeoutError, TypeError, ValueError):
        return "UTC", False
    return str(zone_name or "UTC"), bool(dark)


def _retheme(viewer: Viewer, dark: bool) -> None:
    viewer.dark = dark
    for each in viewer.themed:
        each()


def head() -> None:
    """Styles, for every page."""
    ui.add_head_html(_HEAD)


def _shell(
    request: Request, path: str, title: str, here: site.Site
) -> tuple[ui.element, list[Callable[[bool], object]]]:
    head()
    themed: list[Callable[[bool], object]] = []
    with tags.tag("div", classes="al-shell"):
        with tags.tag("header", classes="al-head"):
            with tags.tag("a", classes="al-brand", href="/"):
                ui.icon("schedule")
                tags.tag("span", "Almanac")
            tags.tag("span", here.settings.group_id, "al-group", title="The scheduler's group")
            with tags.tag("div", classes="al-head-end"):
                _theme(request, themed)
                if here.settings.api_token:
                    with tags.tag("form", method="post", action="/ui/sign-out"):
                        tags.button("", icon="logout", classes="al-quiet", label="Sign out", kind="submit")
        _navigation(path)
        with tags.tag("main", classes="al-main") as main:
            tags.tag("h1", title, "al-h1")
            if (why_not := gate.why_not(request, here.settings)) is not None:
                tags.notice("warn", "Read only", why_not, role="note")
            with tags.tag("div", classes="al-body", aria_busy="true") as body:
                tags.tag("p", "Loading …", "al-lead", role="status")
    ui.skip_link("Skip to the content", target=main)
    return body, themed


def _navigation(path: str) -> None:
    with tags.tag("nav", classes="al-nav", aria_label="Pages"):
        for address, name, short, icon in _PAGES:
            with tags.tag("a", href=address) as link:
                ui.icon(icon)
                tags.tag("span", name, "al-long" if short != name else "")
                if short != name:
                    tags.tag("span", short, "al-short")
            link.props["aria-label"] = name
            if path == address or (address == "/ui/schedules" and path == "/ui/schedule"):
                link.props["aria-current"] = "page"


def _theme(request: Request, themed: list[Callable[[bool], object]]) -> None:
    """System, light, dark, and round again; a cookie keeps it."""
    chosen = request.cookies.get(THEME, "system")
    chosen = chosen if chosen in _THEMES else "system"
    mode = ui.dark_mode(_THEMES[chosen][1])
    names = list(_THEMES)

    def look() -> None:
        icon.name = _THEMES[chosen][0]
        button.props["aria-label"] = f"Theme: {chosen}"
        button.props["title"] = f"Theme: {chosen}"
        button.update()

    async def turn() -> None:
        nonlocal chosen
        chosen = names[(names.index(chosen) + 1) % len(names)]
        mode.value = _THEMES[chosen][1]
        look()
        ui.run_javascript(f"document.cookie = '{THEME}={chosen}; path=/; max-age=31536000; samesite=lax'")
        await asyncio.sleep(0)
        _, dark = await _browser()
        for each in themed:
            each(dark)

    with tags.tag("button", classes="al-button al-quiet", type="button") as button:
        icon = ui.icon("brightness_auto")
    button.on("click", turn, args=[])
    look()
