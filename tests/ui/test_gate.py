"""Who may see the page, who may act, and what it loads."""

from __future__ import annotations

import re

import desks
import httpx
import pytest
from browsers import PAGES, Open
from playwright.sync_api import expect

from almanac.settings import Settings

TOKEN = "sesame-sesame-sesame"


class TestToken:
    @pytest.fixture
    def settings(self) -> Settings:
        return Settings(server_addr=":8000", api_token=TOKEN)

    def test_it_is_asked_for_once(self, tab: Open, desk: desks.Fake) -> None:
        page = tab("/ui/schedule?id=vid17-online", ready="form")
        expect(page).to_have_url(re.compile("/ui/sign-in"))
        assert "online-videos" not in page.content()
        page.get_by_label("API token").fill("guess")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("That is not the token")
        page.get_by_label("API token").fill(TOKEN)
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="Cancel it")).to_be_enabled()
        expect(page).to_have_url(re.compile(r"/ui/schedule\?id=vid17-online"))
        page.goto("/")
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        (cookie,) = [each for each in page.context.cookies() if each.get("name") == "almanac-session"]
        assert cookie.get("httpOnly")
        assert cookie.get("sameSite") == "Strict"
        assert TOKEN not in cookie.get("value", "")
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_label("API token")).to_be_visible()
        page.goto("/")
        expect(page.get_by_label("API token")).to_be_visible()

    def test_who_acts_is_told_apart(self, tab: Open, desk: desks.Fake) -> None:
        page = tab("/ui/controls", ready="form")
        page.get_by_label("API token").fill(TOKEN)
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Pause everything").click()
        page.get_by_role("dialog").get_by_role("button", name="Pause everything").click()
        expect(page.locator("[data-answer]")).to_be_visible()
        assert desk.controls().by == "page 127.0.0.1 with token"

    @pytest.mark.parametrize("path", [path for path, _ in PAGES.values()])
    def test_no_page_without_it(self, address: str, desk: desks.Fake, path: str) -> None:
        for cookie in ("", "9999999999.0000", "9999999999", "x.y"):
            answer = httpx.get(address + path, headers={"Cookie": f"almanac-session={cookie}"})
            assert answer.status_code == 303
            assert answer.headers["location"].startswith("/ui/sign-in?to=%2F")

    def test_it_leads_to_no_other_site(self, address: str, desk: desks.Fake) -> None:
        for to in ("//evil.example", "https://evil.example", "/\\evil.example"):
            answer = httpx.post(f"{address}/ui/session", data={"token": TOKEN, "to": to})
            assert (answer.status_code, answer.headers["location"]) == (303, "/")


class TestOtherAddress:
    @pytest.fixture
    def settings(self) -> Settings:
        return Settings(server_addr=":8000")

    def test_everything_is_seen_and_nothing_done(self, tab: Open, desk: desks.Fake) -> None:
        page = tab("/ui/schedule?id=vid17-online")
        expect(page.get_by_role("note").first).to_contain_text("no API_TOKEN is set")
        for name in ("Move", "Fire now", "Cancel it"):
            button = page.get_by_role("button", name=name)
            expect(button).to_be_disabled()
            button.dispatch_event("click")
        page.goto("/ui/schedules")
        expect(page.get_by_role("button", name="New schedule")).to_be_disabled()
        page.goto("/ui/dead-letters")
        expect(page.get_by_role("button", name="Send invoice-77 again")).to_be_disabled()
        page.goto("/ui/controls")
        expect(page.get_by_role("button", name="Pause everything")).to_be_disabled()
        page.get_by_label("Target topic").first.fill("mails")
        page.keyboard.press("Enter")
        page.locator("form").last.dispatch_event("submit")
        page.goto("/")
        expect(page.locator(".al-figure").first).to_contain_text("126")
        assert not desk.acts


def test_a_foreign_name_for_this_machine_may_not_act(address: str, desk: desks.Fake) -> None:
    """A site of somebody else whose name leads to 127.0.0.1."""
    assert "Read only" not in httpx.get(f"{address}/ui/controls").text
    for name in ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", ""):
        assert "Read only" in httpx.get(f"{address}/ui/controls", headers={"Host": name}).text


def test_nothing_is_loaded_from_elsewhere(tab: Open, address: str) -> None:
    """The fixture fails for each request to another host; the policy makes browsers refuse them."""
    page = tab("/ui/timeline")
    expect(page.locator("canvas").first).to_be_visible()
    assert page.evaluate("document.fonts.ready.then((fonts) => fonts.size > 0)")
    policy = httpx.get(f"{address}/ui/timeline").headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "http" not in policy


def test_other_paths_stay_the_rest_interfaces(address: str, desk: desks.Fake) -> None:
    answer = httpx.get(f"{address}/api/v1/none-such")
    assert (answer.status_code, answer.json()) == (404, {"detail": "Not Found"})
    assert httpx.get(f"{address}/schedules").json() == {"detail": "Not Found"}
