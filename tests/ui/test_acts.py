"""What can be done on the page: each by keyboard alone, with a confirmation and the answer."""

from __future__ import annotations

import re
from typing import Any

import desks
import pytest
from browsers import Open
from playwright.sync_api import Locator, Page, expect

from almanac import desk as desk_
from almanac import errors
from almanac.ui import creation

WHO = "page 127.0.0.1"


def press(page: Page, button: Locator) -> None:
    """As a keyboard does it."""
    expect(button).to_be_enabled()
    button.focus()
    page.keyboard.press("Enter")


def tab_to(page: Page, name: str) -> None:
    """Goes on by Tab until the button (or link) of that name has the focus."""
    for _ in range(60):
        page.keyboard.press("Tab")
        text = page.evaluate("document.activeElement.ariaLabel || document.activeElement.innerText || ''")
        if name in text:
            return
    raise AssertionError(f"{name} cannot be reached by Tab")


def answer(page: Page) -> Locator:
    return page.get_by_role("dialog").locator("[data-answer]")


def close(page: Page) -> None:
    """The answer was read."""
    expect(page.get_by_role("button", name="Close")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_schedule_is_made_by_keyboard_alone(tab: Open, desk: desks.Fake) -> None:
    page = tab("/ui/schedules")
    tab_to(page, "New schedule")
    page.keyboard.press("Enter")
    due = page.get_by_label("Due", exact=True)
    expect(due).to_be_focused()
    page.keyboard.type("+90s")
    expect(page.get_by_text("here, 2")).to_be_visible()
    for _ in range(len(creation.QUICK) + 1):
        page.keyboard.press("Tab")
    expect(page.get_by_label("Target topic").last).to_be_focused()
    page.keyboard.type("mails")
    page.keyboard.press("Tab")
    page.keyboard.type("ada")
    page.keyboard.press("Tab")
    page.keyboard.type("hello-1")
    tab_to(page, "Hex")
    page.keyboard.press("Tab")
    page.keyboard.type("good morning")
    page.keyboard.press("Tab")
    page.keyboard.type("trace: 17")
    tab_to(page, "Schedule it")
    page.keyboard.press("Enter")
    expect(answer(page)).to_contain_text("Kafka has it: schedules/1, offset 99.")
    ((_, new, who),) = desk.acts
    assert who == WHO
    assert (new.target, new.target_key, new.id, new.value) == ("mails", b"ada", b"hello-1", b"good morning")
    assert (new.headers, new.if_absent, new.topic) == ([("trace", b"17")], True, None)
    assert abs(new.due - desks.now() - 90_000) < 30_000
    close(page)
    expect(page.get_by_role("link", name="hello-1")).to_be_visible()


def test_what_is_wrong_with_a_new_schedule_is_told_at_its_field(tab: Open, desk: desks.Fake) -> None:
    page = tab("/ui/schedules")
    press(page, page.get_by_role("button", name="New schedule"))
    dialog = page.get_by_role("dialog")
    schedule = dialog.get_by_role("button", name="Schedule it")
    press(page, schedule)
    expect(dialog.get_by_text("When is it due?")).to_be_visible()
    expect(dialog.get_by_label("Due", exact=True)).to_be_focused()
    expect(dialog.get_by_text("Which topic is it for?")).to_be_visible()
    dialog.get_by_label("Due", exact=True).fill("2027-03-01")
    press(page, schedule)
    expect(dialog.get_by_text("needs a time of day")).to_be_visible()
    expect(dialog.get_by_label("Due", exact=True)).to_be_focused()  # else that takes the next key
    expect(dialog.get_by_label("Due", exact=True)).to_have_attribute("aria-invalid", "true")
    press(page, dialog.get_by_role("button", name="+1h"))
    expect(dialog.get_by_label("Due", exact=True)).to_have_value("+1h")
    dialog.get_by_label("Target topic").fill("forbidden")
    press(page, dialog.get_by_role("button", name="JSON"))
    dialog.get_by_label("Payload", exact=True).fill("{")
    dialog.get_by_label("Headers").fill("no colon")
    press(page, schedule)
    expect(dialog.get_by_text("this is no JSON")).to_be_visible()
    expect(dialog.get_by_text("write each as name: value")).to_be_visible()
    dialog.get_by_label("Payload", exact=True).fill("{}")
    dialog.get_by_label("Headers").fill("")
    press(page, schedule)
    expect(dialog.get_by_text("TARGETS_DENY forbids it")).to_be_visible()
    dialog.get_by_label("Target topic").fill("mails")
    dialog.get_by_label("Id", exact=True).fill("vid17-online")
    press(page, schedule)
    expect(dialog.get_by_text("This id is pending already.")).to_be_visible()
    dialog.get_by_role("checkbox").uncheck()
    press(page, schedule)
    expect(answer(page)).to_contain_text("Scheduled")
    assert desk.acts[-1][1].if_absent is False


def test_a_dialog_can_be_left_and_gives_the_focus_back(tab: Open, desk: desks.Fake) -> None:
    page = tab("/ui/schedule?id=vid17-online")
    cancel = page.get_by_role("button", name="Cancel it")
    press(page, cancel)
    expect(page.get_by_role("button", name="Back")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(cancel).to_be_focused()
    press(page, cancel)
    press(page, cancel)  # impatient: there is one dialog all the same
    expect(page.get_by_role("button", name="Back")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert not desk.acts


@pytest.mark.parametrize(
    ("outcome", "mood", "words"),
    [
        ("cancelled", "good", "never will be"),
        ("already-fired", "warn", "Too late: it had already fired"),
        ("unknown", "warn", "No wheel has answered in time"),
        ("not-found", "warn", "It is not pending"),
        (errors.Unreachable("Kafka is away."), "bad", "It may not have been done"),
        (desk_.Ambiguous("id", "x", "name the topic"), "bad", "Refused"),
    ],
    ids=["cancelled", "already-fired", "unknown", "not-found", "error", "refused"],
)
def test_a_cancel_is_answered_for_certain(tab: Open, desk: desks.Fake, outcome: Any, mood: str, words: str) -> None:
    desk.answer = outcome
    page = tab("/ui/schedule?id=vid17-online&topic=schedules&partition=1")
    press(page, page.get_by_role("button", name="Cancel it"))
    press(page, page.get_by_role("button", name="Cancel the schedule"))
    expect(answer(page)).to_contain_text(words)
    expect(answer(page)).to_have_attribute("data-answer", mood)
    assert desk.acts == [("cancel", b"vid17-online", WHO, "schedules", 1)]
    close(page)
    gone = page.get_by_text("It fired, was cancelled, or never was.")
    expect(gone if isinstance(outcome, str) else page.get_by_role("button", name="Move")).to_be_visible()


def test_a_schedule_is_moved(tab: Open, desk: desks.Fake) -> None:
    page = tab("/ui/schedule?id=vid17-online")
    press(page, page.get_by_role("button", name="Move"))
    expect(page.get_by_label("New due time")).to_be_focused()
    page.keyboard.type("2031-07-01 09:00")
    expect(page.get_by_text("2031-07-01 07:00:00 UTC")).to_be_visible()
    page.keyboard.press("Enter")
    expect(answer(page)).to_contain_text("2031-07-01 09:00:00 (Europe/Paris), 2031-07-01 07:00:00 UTC")
    assert desk.acts == [("move", b"vid17-online", 1_940_655_600_000, WHO, "schedules", 1)]
    close(page)
    expect(page.get_by_text("2031-07-01 09:00:00, Europe/Paris")).to_be_visible()


@pytest.mark.parametrize(
    ("fires", "words"),
    [("fired", "Delivered to online-videos"), ("waiting", "Not fired yet"), ("buried", "It is a dead letter now")],
)
def test_a_schedule_is_fired_now(tab: Open, desk: desks.Fake, fires: str, words: str) -> None:
    desk.fires = fires
    page = tab("/ui/schedule?id=vid17-online")
    press(page, page.get_by_role("button", name="Fire now"))
    press(page, page.get_by_role("button", name="Fire it now"))
    expect(answer(page)).to_contain_text(words)
    assert desk.acts == [("fire", b"vid17-online", WHO, "schedules", 1)]


def test_a_dead_letter_is_sent_again(tab: Open, desk: desks.Fake) -> None:
    page = tab("/ui/dead-letters")
    press(page, page.get_by_role("button", name="Send invoice-77 again"))
    press(page, page.get_by_role("button", name="Send it again"))
    expect(answer(page)).to_contain_text("Scheduled again")
    assert desk.acts == [("again", 0, 12, WHO, None)]
    with page.expect_navigation():
        close(page)
    press(page, page.get_by_role("button", name="Send invoice-77 again"))
    page.get_by_label("Due", exact=True).fill("2031-07-01 09:00")
    press(page, page.get_by_role("button", name="Send it again"))
    expect(answer(page)).to_contain_text("is pending: it would be lost")
    assert desk.acts[1] == ("again", 0, 12, WHO, 1_940_655_600_000)


def test_everything_is_paused_and_resumed(tab: Open, desk: desks.Fake) -> None:
    page = tab("/ui/controls")
    press(page, page.get_by_role("button", name="Pause everything"))
    press(page, page.get_by_role("dialog").get_by_role("button", name="Pause everything"))
    expect(answer(page)).to_contain_text("Everything is paused.")
    close(page)
    expect(page.get_by_text("Paused", exact=True)).to_be_visible()
    assert desk.controls().paused
    press(page, page.get_by_role("button", name="Resume everything"))
    press(page, page.get_by_role("dialog").get_by_role("button", name="Resume everything"))
    expect(answer(page)).to_contain_text("Nothing is paused, nothing is capped.")
    close(page)
    expect(page.get_by_text("Running", exact=True)).to_be_visible()
    assert [(act, who) for act, _, who in desk.acts] == [("pause", WHO), ("resume", WHO)]


def test_one_target_is_paused_and_resumed(tab: Open, desk: desks.Fake) -> None:
    page = tab("/ui/controls")
    press(page, page.get_by_role("button", name="Pause this target"))
    expect(page.get_by_text("Name the target topic that is to wait.")).to_be_visible()
    page.get_by_label("Target topic").first.fill("mails")
    page.keyboard.press("Enter")
    press(page, page.get_by_role("dialog").get_by_role("button", name="Pause"))
    expect(answer(page)).to_contain_text("Paused: mails.")
    close(page)
    press(page, page.get_by_role("button", name="Resume mails"))
    press(page, page.get_by_role("dialog").get_by_role("button", name="Resume"))
    expect(answer(page)).to_contain_text("Nothing is paused")
    assert desk.controls().paused_targets == ()


def test_caps_are_set_and_removed(tab: Open, desk: desks.Fake) -> None:
    page = tab("/ui/controls")
    most = page.get_by_label("At most, a second")
    most.fill("0")
    press(page, page.get_by_role("button", name="Set this cap"))
    expect(page.get_by_text("A whole number from 1 on")).to_be_visible()
    for target, number in (("", "500"), ("mails", "20")):
        page.get_by_label("Target topic").last.fill(target)
        most.fill(number)
        page.keyboard.press("Enter")
        press(page, page.get_by_role("button", name="Set the cap"))
        expect(answer(page)).to_contain_text(f"at most {number} a second")
        close(page)
        expect(page.get_by_role("table", name="Caps in force")).to_contain_text(number)
    assert (desk.controls().missed_per_second, desk.controls().target_per_second) == (500, {"mails": 20})
    for name in ("missed schedules", "mails"):
        press(page, page.get_by_role("button", name=f"Remove the cap of {name}"))
        press(page, page.get_by_role("dialog").get_by_role("button", name="Remove the cap"))
        close(page)
        expect(page.get_by_role("button", name=f"Remove the cap of {name}")).to_have_count(0)
    assert desk.controls().target_per_second == {}
    assert desk.controls().missed_per_second is None
    assert {who for *_, who in desk.acts} == {WHO}
    expect(page.get_by_text(re.compile("Last changed .* by page 127.0.0.1"))).to_be_visible()
