"""Every page at both widths, light and dark: nothing sticks out, axe has nothing serious to say; and pictures of it.

The pictures of docs/page.md: pytest tests/ui/test_look.py --screenshots docs
"""

from __future__ import annotations

import re
from pathlib import Path

import desks
import pytest
from axe_playwright_python.sync_playwright import Axe
from browsers import PAGES, Open, loaded
from playwright.sync_api import Page, expect

TALLEST = 1_700  # px of a picture


def too_wide(page: Page) -> list[str]:
    """What sticks out sideways."""
    found: list[str] = page.evaluate(
        """() => {
          const width = document.documentElement.clientWidth;
          const out = [...document.querySelectorAll('body *')].filter((e) => {
            const box = e.getBoundingClientRect();
            return box.width && box.right > width + 1 && !e.closest('.nicegui-skip-link, .nicegui-error-popup');
          });
          const wide = document.documentElement.scrollWidth > width ? ['the page scrolls sideways'] : [];
          return [...wide, ...out.map((e) => e.tagName + '.' + e.className)].slice(0, 5);
        }"""
    )
    return found


def serious(page: Page) -> list[str]:
    """What axe holds against the page, but for small matters."""
    violations = Axe().run(page).response["violations"]
    return [
        f"{each['id']} ({each['impact']}): {node['html'][:160]}"
        for each in violations
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


def picture(page: Page, place: Path) -> None:
    height = min(TALLEST, page.evaluate("document.documentElement.scrollHeight"))
    size = page.viewport_size or {"width": 1440, "height": 900}
    page.set_viewport_size({"width": size["width"], "height": height})
    expect(page.locator("main.al-main")).to_be_visible()
    page.screenshot(path=str(place))
    page.set_viewport_size(size)


@pytest.mark.parametrize(
    ("phone", "dark"),
    [
        pytest.param(False, False, id="1440-light"),
        pytest.param(True, True, id="390-dark"),
        pytest.param(False, True, id="1440-dark", marks=pytest.mark.long),
        pytest.param(True, False, id="390-light", marks=pytest.mark.long),
    ],
)
def test_every_page_is_tidy(tab: Open, desk: desks.Fake, pictures: Path | None, phone: bool, dark: bool) -> None:
    desk.pause(who="ada", target="calls")
    desk.cap_missed(2_000, who="ada")
    page = tab("/", phone=phone, dark=dark)
    problems = {}
    for name, (path, ready) in PAGES.items():
        page.goto(path)
        loaded(page, ready)
        expect(page.locator("body")).to_have_class(_theme(dark))
        if found := too_wide(page) + serious(page):
            problems[name] = found
        if pictures is not None:
            if name == "overview":  # a chart of a few seconds
                page.wait_for_timeout(8_000)
            picture(page, pictures / f"page-{name}-{390 if phone else 1440}-{'dark' if dark else 'light'}.png")
    assert not problems


def _theme(dark: bool) -> re.Pattern[str]:
    return re.compile("body--dark" if dark else "body--light")


@pytest.mark.parametrize("phone", [False, True], ids=["1440", "390"])
def test_dialogs_are_tidy(tab: Open, pictures: Path | None, phone: bool) -> None:
    page = tab("/ui/schedules", phone=phone, dark=phone)
    page.get_by_role("button", name="New schedule").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Payload", exact=True)).to_be_visible()
    page.wait_for_timeout(400)  # Quasar fades it in: half-way there, axe sees half the contrast
    problems = too_wide(page) + serious(page)
    if pictures is not None:
        page.screenshot(path=str(pictures / f"page-new-{390 if phone else 1440}-{'dark' if phone else 'light'}.png"))
    page.goto("/ui/schedule?id=vid17-online")
    page.get_by_role("button", name="Cancel it").click()
    page.get_by_role("button", name="Cancel the schedule").click()
    expect(dialog.locator("[data-answer]")).to_contain_text("Cancelled")
    page.wait_for_timeout(400)
    problems += too_wide(page) + serious(page)
    if pictures is not None:
        page.screenshot(path=str(pictures / f"page-cancel-{390 if phone else 1440}-{'dark' if phone else 'light'}.png"))
    assert not problems


def test_long_names_and_payloads_stay_inside(tab: Open, desk: desks.Fake) -> None:
    long = b"x" * 700
    desk.rows[long] = desks.row(long, desks.now() + 60_000, "t" * 249, b"y" * 5_000, headers=[("h" * 300, b"z" * 900)])
    page = tab("/ui/schedules", phone=True)
    assert not too_wide(page)
    page.get_by_role("link", name="x" * 700).click()
    expect(page.get_by_role("region", name="Contents")).to_be_visible()
    assert not too_wide(page)


def test_the_theme_can_be_switched_and_is_kept(tab: Open) -> None:
    page = tab("/")
    expect(page.locator("body")).to_have_class(_theme(False))
    page.get_by_role("button", name="Theme: system").click()
    page.get_by_role("button", name="Theme: light").click()
    expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
    expect(page.locator("body")).to_have_class(_theme(True))
    page.goto("/ui/controls")
    expect(page.locator("body")).to_have_class(_theme(True))


def test_the_keyboard_comes_to_the_content_first(tab: Open) -> None:
    page = tab("/")
    page.keyboard.press("Tab")
    focused = page.locator(":focus")
    expect(focused).to_have_text("Skip to the content")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.tagName") == "MAIN"
