"""The page on a real broker and one scheduler, in a real browser: every action, and what Kafka says of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import browsers
import httpx
import pytest
from engine import Group, now
from playwright.sync_api import Browser, Page, expect
from waiting import until

from almanac.broker import Broker, ports

pytestmark = pytest.mark.long  # every action on a stand-in: test_acts
HOUR = 3_600_000


@pytest.fixture(scope="module")
def served(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Group, str]]:
    address = f"127.0.0.1:{ports.free()}"
    told = {"server_addr": address, "page_length": "10s"}
    with Group(broker.bootstrap_servers, tmp_path_factory.mktemp("page"), **told) as group:
        group.start().up()
        until(lambda: _answers(address), 30, "the page is served")
        yield group, f"http://{address}"


def _answers(address: str) -> bool:
    try:
        return httpx.get(f"http://{address}/").status_code == 200
    except httpx.HTTPError:
        return False


@pytest.fixture
def group(served: tuple[Group, str]) -> Group:
    return served[0]


@pytest.fixture
def page(served: tuple[Group, str], browser: Browser) -> Iterator[Page]:
    context = browser.new_context(
        base_url=served[1], timezone_id="Europe/Paris", viewport={"width": 1440, "height": 900}
    )
    problems: list[str] = []
    made = context.new_page()
    made.on("pageerror", lambda error: problems.append(str(error)))
    yield made
    context.close()
    assert not problems


def go(page: Page, path: str) -> None:
    page.goto(path)
    browsers.loaded(page)


def confirm(page: Page, button: str, sure: str, words: str) -> None:
    """Presses, confirms, reads the answer, closes."""
    page.get_by_role("button", name=button).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name=sure).click()
    expect(dialog.locator("[data-answer]")).to_contain_text(words)
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_have_count(0)


def create(page: Page, id: str, due: str, target: str, payload: str) -> None:  # noqa: A002
    go(page, "/ui/schedules")
    page.get_by_role("button", name="New schedule").click()
    dialog = page.get_by_role("dialog")
    for label, text in (("Due", due), ("Target topic", target), ("Id", id), ("Payload", payload)):
        dialog.get_by_label(label, exact=True).fill(text)
    dialog.get_by_role("button", name="Schedule it").click()
    expect(dialog.locator("[data-answer]")).to_contain_text("Kafka has it")
    dialog.get_by_role("button", name="Close").click()


def test_a_schedule_from_its_making_to_its_story(page: Page, group: Group) -> None:
    create(page, "made-1", "+1h", group.target, '{"n": 1}')
    page.get_by_role("link", name="made-1").click()
    expect(page.get_by_role("region", name="Contents")).to_contain_text('"n": 1')
    page.get_by_role("button", name="Move").click()
    page.get_by_label("New due time").fill("+2h")
    page.get_by_role("button", name="Move it").click()
    expect(page.locator("[data-answer]")).to_contain_text("Moved")
    page.get_by_role("button", name="Close").click()
    browsers.loaded(page)
    expect(page.get_by_text(re.compile("in 1h 59m|in 2h"))).to_be_visible()
    with group.read() as target:
        assert not [got for got in target.to_the_end() if got.value == b'{"n": 1}']
        confirm(page, "Fire now", "Fire it now", f"Delivered to {group.target}")
        target.until(lambda got: [each.value for each in got].count(b'{"n": 1}') == 1, 10, "the message")
    browsers.loaded(page)
    expect(page.get_by_text("It is not pending")).to_be_visible()
    page.get_by_role("button", name="Tell its story").click()
    expect(page.get_by_text(re.compile("fired 2"))).to_be_visible(timeout=30_000)
    expect(page.locator(".al-story")).to_contain_text("acknowledged")


def test_a_cancel_is_certain(page: Page, group: Group) -> None:
    create(page, "made-2", "+1h", group.target, "never")
    go(page, "/ui/schedule?id=made-2")
    confirm(page, "Cancel it", "Cancel the schedule", "never will be")
    browsers.loaded(page)
    expect(page.get_by_text("It is not pending")).to_be_visible()
    assert "made-2" not in group.ls()


def test_a_target_is_paused_and_resumed(page: Page, group: Group) -> None:
    go(page, "/ui/controls")
    page.get_by_label("Target topic").first.fill(group.target)
    confirm(page, "Pause this target", "Pause", f"Paused: {group.target}")
    go(page, "/")
    expect(page.get_by_role("region", name="Controls in force")).to_contain_text(group.target)
    create(page, "held-1", "+1s", group.target, "held")
    go(page, "/ui/schedules?state=overdue")
    expect(page.get_by_role("link", name="held-1").or_(page.get_by_text("Nothing matches"))).to_be_visible()
    until(lambda: "held-1" in group.ls(), 5, "it waits")
    with group.read() as target:
        assert b"held" not in [got.value for got in target.to_the_end()]
        go(page, "/ui/controls")
        confirm(page, f"Resume {group.target}", "Resume", "Nothing is paused, nothing is capped.")
        target.until(lambda got: b"held" in [each.value for each in got], 10, "what was held")


def test_everything_is_paused_and_capped_and_freed(page: Page, group: Group) -> None:
    go(page, "/ui/controls")
    confirm(page, "Pause everything", "Pause everything", "Everything is paused.")
    go(page, "/")
    expect(page.get_by_text("Everything is paused")).to_be_visible()
    expect(page.get_by_role("table", name="The wheels")).to_contain_text("paused")
    go(page, "/ui/controls")
    confirm(page, "Resume everything", "Resume everything", "Nothing is paused")
    go(page, "/ui/controls")  # not into a form that is just drawn again
    page.get_by_label("At most, a second").fill("700")
    confirm(page, "Set this cap", "Set the cap", "Missed schedules: at most 700 a second.")
    confirm(page, "Remove the cap of missed schedules", "Remove the cap", "nothing is capped")
    go(page, "/")
    expect(page.locator(".al-figure", has_text="Shards")).to_contain_text("2 of 2", timeout=30_000)


def test_a_dead_letter_is_sent_again(page: Page, group: Group) -> None:
    group.schedule(b"dead-1", now() - HOUR, b"too late")
    group.flush()
    with group.dead_letters() as dead:
        dead.until(lambda got: any(each.key == b"dead-1" for each in got), 20, "a dead letter")
    go(page, "/ui/dead-letters")
    expect(page.get_by_role("article", name="Dead letter dead-1")).to_contain_text("outdated")
    confirm(page, "Send dead-1 again", "Send it again", "Scheduled again")
    with group.read() as target:
        target.until(lambda got: b"too late" in [each.value for each in got], 10, "its message")


def test_the_timeline_and_what_fired(page: Page, group: Group) -> None:
    for number in range(30):
        group.schedule(f"hour-{number}".encode(), now() + number * HOUR + HOUR, b"later")
    group.schedule(b"soon-1", now() + 500, b"soon")
    group.flush()
    go(page, "/ui/timeline")
    expect(page.get_by_role("heading", name=re.compile(r"3\d pending"))).to_be_visible()
    expect(page.locator("canvas").first).to_be_visible()

    def listed() -> bool:
        go(page, "/ui/fired?id=soon-1")
        return page.get_by_role("link", name="soon-1").count() == 1

    until(listed, 60, "what fired is in the table")
    expect(page.get_by_role("table")).to_contain_text("fired")
    expect(page.get_by_role("table")).to_contain_text(re.compile(r"\d+ ms|\d\.\d s"))
