"""A real Chromium for the tests of the page, and the server that it looks at."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator

import uvicorn
from fastapi import FastAPI
from playwright.sync_api import Browser, Page, Playwright
from waiting import until

Open = Callable[..., Page]
PAGES = {  # path, and what is there when it is filled
    "overview": ("/", "table"),
    "timeline": ("/ui/timeline", "canvas"),
    "schedules": ("/ui/schedules", "table"),
    "schedule": ("/ui/schedule?id=vid17-online", ".al-text"),
    "fired": ("/ui/fired", "table"),
    "dead-letters": ("/ui/dead-letters", "article"),
    "controls": ("/ui/controls", "form"),
}
FILLED = "main [aria-busy=false]"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
# The sandbox needs rights that root in a container has not; the rest keeps Chromium from calling home.
ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
MISSING = (
    "no Chromium and no Chrome was found on PATH, and the tests of the admin page need one. `make browser` installs "
    "Debian's package where it may (as root); elsewhere install Chromium or Chrome, or set BROWSER_PATH to its program"
)


def path() -> str:
    """The browser's program. Raises AssertionError with what to do where there is none: these tests are not skipped."""
    if told := os.environ.get("BROWSER_PATH"):
        return told
    found = next((place for name in NAMES if (place := shutil.which(name))), None)
    found = found or next((place for place in PLACES if os.access(place, os.X_OK)), None)
    assert found is not None, MISSING
    return found


@contextlib.contextmanager
def launched(playwright: Playwright) -> Iterator[Browser]:
    browser = playwright.chromium.launch(executable_path=path(), args=list(ARGUMENTS))
    try:
        yield browser
    finally:
        browser.close()


@contextlib.contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """The app on a free port of this machine; its address."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, name="page under test", daemon=True)
    thread.start()
    try:
        until(lambda: server.started or not thread.is_alive(), 30, "the server is up")
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20)


def loaded(page: Page, ready: str = FILLED) -> None:
    """Waits until the page is filled."""
    page.wait_for_selector(ready)


if __name__ == "__main__":
    try:
        print(path())
    except AssertionError as error:
        sys.exit(f"Chromium: {error}.")
