"""What the tests of the page share: one server, one browser, and for each test a new desk and a new tab."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import browsers
import desks
import pytest
from browsers import Open
from fastapi import FastAPI
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from almanac import ui
from almanac.settings import Settings
from almanac.ui import site

ZONE = "Europe/Paris"
WIDE, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}

expect.set_options(timeout=15_000)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright, browsers.launched(playwright) as launched:
        yield launched


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    app = FastAPI()
    settings = Settings(server_addr="127.0.0.1:8000")
    ui.mount(app, desks.Fake(settings), settings)
    with browsers.served(app) as where:
        yield where


@pytest.fixture
def settings() -> Settings:
    """Of the desk; a test may have others."""
    return Settings(server_addr="127.0.0.1:8000")


@pytest.fixture
def desk(settings: Settings, address: str) -> desks.Fake:
    """A new desk, which the pages are about from now on."""
    fake = desks.Fake(settings)
    site.open_on(fake, settings)
    return fake


@pytest.fixture
def tab(browser: Browser, address: str, desk: desks.Fake) -> Iterator[Open]:
    """`tab("/ui/fired", phone=True, dark=True)`: a page in a browser of its own, loaded."""
    contexts: list[BrowserContext] = []
    problems: list[str] = []

    def open_page(path: str = "/", *, phone: bool = False, dark: bool = False, ready: str = browsers.FILLED) -> Page:
        scheme: Literal["dark", "light"] = "dark" if dark else "light"
        size: Any = PHONE if phone else WIDE
        context = browser.new_context(viewport=size, color_scheme=scheme, timezone_id=ZONE, base_url=address)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(f"{page.url}: {error}"))
        page.on("request", lambda request: problems.append(f"asks {request.url}") if _foreign(request.url) else None)
        page.goto(path)
        browsers.loaded(page, ready)
        return page

    def _foreign(url: str) -> bool:
        return not url.startswith((address, address.replace("http:", "ws:"), "data:", "blob:"))

    yield open_page
    for context in contexts:
        context.close()
    assert not problems, problems


@pytest.fixture
def pictures(request: pytest.FixtureRequest) -> Path | None:
    folder = request.config.getoption("--screenshots")
    return Path(folder) if folder else None
