"""What each page shows, on a desk in memory."""

from __future__ import annotations

import re

import desks
import pytest
from browsers import Open
from playwright.sync_api import Page, expect

from almanac import errors


def rows(page: Page, caption: str) -> list[str]:
    """The first cells of a table's rows."""
    table = page.get_by_role("table", name=caption)
    expect(table).to_be_visible()
    return table.locator("tbody tr td:first-child").all_inner_texts()


# Overview


def test_the_overview_is_live(tab: Open, desk: desks.Fake) -> None:
    page = tab("/")
    pending = page.locator(".al-figure", has_text="Pending").locator("dd").first
    expect(pending).to_have_text("126")
    desk.rows.pop(b"nasty")
    expect(pending).to_have_text("125")
    expect(page.get_by_role("table", name="The wheels").locator("tbody tr")).to_have_count(2)
    assert page.locator(".al-chart canvas").count() == 2
    expect(page.get_by_text("Nothing is paused, nothing is capped.")).to_be_visible()
    page.get_by_text("Partitions", exact=True).click()
    expect(page.get_by_role("table", name="The partitions of the schedules topics")).to_contain_text("91,204")


def test_the_overview_tells_of_trouble(tab: Open, desk: desks.Fake) -> None:
    desk.halted = ("schedules/3",)
    desk.shard_state = "silent"
    desk.pause(who="ada")
    page = tab("/")
    expect(page.get_by_text("Everything is paused")).to_be_visible()
    expect(page.get_by_text("Halted: schedules/3")).to_be_visible()
    expect(page.get_by_text("Shard 1: silent")).to_be_visible()
    expect(page.get_by_text("by ada")).to_be_visible()
    desk.broken = errors.Unreachable()
    expect(page.get_by_text("The numbers are old")).to_be_visible()
    desk.broken = None
    expect(page.get_by_text("The numbers are old")).to_be_hidden()


# Timeline


def test_the_timeline_counts_by_hour_and_by_day(tab: Open) -> None:
    page = tab("/ui/timeline")
    expect(page.get_by_role("heading", name="125 pending")).to_be_visible()
    expect(page.get_by_role("img", name="125 pending schedules by hour")).to_be_visible()
    page.get_by_role("link", name="A year").click()
    expect(page.get_by_role("heading", name="126 pending")).to_be_visible()
    expect(page.get_by_role("img", name="126 pending schedules by day")).to_be_visible()
    page.get_by_text("The same as a table").click()
    numbers = page.get_by_role("table", name="Pending by day").locator("td.al-number").all_inner_texts()
    assert sum(map(int, numbers)) == 126


def test_a_bar_of_the_timeline_leads_to_its_schedules(tab: Open) -> None:
    page = tab("/ui/timeline?target=online-videos&by=hour&range=24h")
    expect(page.get_by_role("heading", name="1 pending")).to_be_visible()
    page.get_by_text("The same as a table").click()
    page.get_by_role("table", name="Pending by hour").get_by_role("link").click()
    expect(page.get_by_role("link", name="vid17-online")).to_be_visible()
    page.go_back()
    chart = page.locator(".al-chart-tall")
    expect(chart.locator("canvas").first).to_be_visible()
    box = chart.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page).to_have_url(re.compile("/ui/schedules"))


def test_the_timeline_is_zoomed_by_keyboard(tab: Open) -> None:
    page = tab("/ui/timeline")
    shown = page.get_by_role("group", name="Zoom").locator("[aria-live]")
    whole = shown.inner_text()
    page.get_by_role("button", name="Zoom in").focus()
    page.keyboard.press("Enter")
    expect(shown).not_to_have_text(whole)
    middle = shown.inner_text()
    page.get_by_role("button", name="Later").focus()
    page.keyboard.press("Enter")
    expect(shown).not_to_have_text(middle)
    assert shown.inner_text().split(" to ")[1] == whole.split(" to ")[1]
    page.get_by_role("button", name="Zoom out").focus()
    page.keyboard.press("Enter")
    expect(shown).to_have_text(whole)


def test_a_range_that_is_not_understood_is_told(tab: Open) -> None:
    page = tab("/ui/timeline?from=whenever")
    expect(page.get_by_role("alert")).to_contain_text("the time 'whenever'")


# Schedules


def test_schedules_are_searched_by_keyboard(tab: Open) -> None:
    page = tab("/ui/schedules")
    expect(page.get_by_role("heading", name="126 pending")).to_be_visible()
    page.get_by_label("Id contains").focus()
    page.keyboard.type("vid")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="1 match")).to_be_visible()
    assert rows(page, "Pending schedules") == ["vid17-online"]


def test_schedules_are_searched_by_target_due_and_state(tab: Open) -> None:
    page = tab("/ui/schedules?target=mails&sort=id")
    expect(page.get_by_role("heading", name="3 match")).to_be_visible()
    page.goto("/ui/schedules?state=overdue")
    expect(page.get_by_role("heading", name="1 match")).to_be_visible()
    assert rows(page, "Pending schedules") == ["late-one"]
    page.goto("/ui/schedules?from=%2B1h&to=%2B150m")
    expect(page.get_by_role("heading", name="1 match")).to_be_visible()
    page.goto("/ui/schedules?id=none-such")
    expect(page.get_by_text("Nothing matches")).to_be_visible()
    page.goto("/ui/schedules?from=2027-03-01")
    expect(page.get_by_role("alert")).to_contain_text("That due time is not understood")


def test_schedules_come_in_pages(tab: Open) -> None:
    page = tab("/ui/schedules?target=reminders&sort=id")
    first = rows(page, "Pending schedules")
    page.get_by_role("link", name="Next page").click()
    expect(page.get_by_role("link", name="First page")).to_be_visible()
    expect(page.get_by_role("link", name="reminder-0050")).to_be_visible()
    second = rows(page, "Pending schedules")
    assert first + second == [f"reminder-{number:04}" for number in range(100)]
    page.get_by_role("link", name="First page").click()
    expect(page.get_by_role("link", name="reminder-0000")).to_be_visible()


def test_no_schedules_at_all(tab: Open, desk: desks.Fake) -> None:
    desk.rows.clear()
    page = tab("/ui/schedules")
    expect(page.get_by_text("No schedule is pending")).to_be_visible()
    page.goto("/ui/timeline")
    expect(page.get_by_text("Nothing is due in this range")).to_be_visible()


@pytest.mark.parametrize(
    "path", ["/ui/timeline", "/ui/schedules", "/ui/schedule?id=x", "/ui/fired", "/ui/dead-letters"]
)
def test_a_question_without_an_answer_says_so(tab: Open, desk: desks.Fake, path: str) -> None:
    desk.broken = errors.Unreachable("Kafka does not answer at kafka:9092.")
    page = tab(path)
    expect(page.get_by_role("alert")).to_contain_text("Kafka does not answer at kafka:9092.")
    desk.broken = None
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("alert")).to_be_hidden()


def test_an_error_of_others_is_told_without_its_text(tab: Open, desk: desks.Fake) -> None:
    desk.broken = RuntimeError("a payload, perhaps")
    page = tab("/ui/fired")
    expect(page.get_by_role("alert")).to_contain_text("RuntimeError")
    assert "perhaps" not in page.content()


# One schedule


def test_one_schedule_is_shown_whole(tab: Open, desk: desks.Fake) -> None:
    page = tab("/ui/schedules")
    page.get_by_role("link", name="vid17-online").click()
    payload = page.get_by_role("region", name="Contents")
    expect(payload).to_contain_text('"title": "The tide tables of 1851"')
    page.get_by_role("button", name="Hex").click()
    expect(payload).to_contain_text("000000  7b 22 76 69 64 65 6f 22  3a 20".replace("  3a", " 3a"))
    page.get_by_role("button", name="Text").click()
    expect(payload).to_contain_text('{"video": 17')
    text = page.locator(".al-facts").inner_text()
    paris, utc = re.findall(r"2\d{3}-\d\d-\d\d (\d\d):\d\d:\d\d", text)[:2]
    assert (int(paris) - int(utc)) % 24 in (1, 2)
    assert "Europe/Paris" in text
    expect(page.get_by_role("table", name="Headers")).to_contain_text("scheduler-target-topic")


def test_a_story_is_told(tab: Open) -> None:
    page = tab("/ui/schedule?id=vid17-online")
    page.get_by_role("button", name="Tell its story").click()
    expect(page.get_by_text("schedules/1: waits (vid17-online)")).to_be_visible()
    expect(page.locator(".al-story li")).to_have_count(2)


def test_what_others_wrote_is_never_html(tab: Open) -> None:
    page = tab("/ui/schedule?id=nasty")
    expect(page.get_by_role("region", name="Contents")).to_have_text(desks.NASTY)
    page.get_by_role("button", name="Tell its story").click()
    expect(page.locator(".al-story")).to_contain_text(desks.NASTY)
    assert page.locator("main img").count() == 0
    assert page.title() == "Schedule · Almanac"


def test_ids_of_any_bytes(tab: Open) -> None:
    page = tab("/ui/schedules?target=mails")
    page.get_by_role("link", name="0x00ff10").click()
    expect(page.get_by_role("region", name="Contents")).to_contain_text("000010  10 11 12")
    expect(page.get_by_role("button", name="Hex")).to_have_attribute("aria-pressed", "true")


def test_payloads_that_are_hidden_stay_so(tab: Open, desk: desks.Fake) -> None:
    desk.hidden = True
    page = tab("/ui/schedule?id=vid17-online")
    expect(
        page.get_by_text("65 bytes. Payloads and the values of headers are hidden here (HIDE_PAYLOADS).")
    ).to_be_visible()
    assert "tide" not in page.content()


def test_a_schedule_that_is_not_pending(tab: Open) -> None:
    page = tab("/ui/schedule?id=gone")
    expect(page.get_by_text("It is not pending")).to_be_visible()
    expect(page.get_by_role("button", name="Tell its story")).to_be_visible()
    expect(page.get_by_role("button", name="Move")).to_have_count(0)


# What is over


def test_what_fired_is_searched(tab: Open) -> None:
    page = tab("/ui/fired")
    expect(page.get_by_role("heading", name="59 found")).to_be_visible()
    late = page.get_by_role("table", name="What fired").locator("tbody tr").nth(1)
    expect(late).to_contain_text("1.4 s")
    page.get_by_role("link", name="Next page").click()
    expect(page.get_by_role("link", name="sent-51")).to_be_visible()
    page.goto("/ui/fired?outcome=no-topic&since=-10m")
    assert rows(page, "What fired") == ["sent-7"]
    page.goto("/ui/fired?id=none")
    expect(page.get_by_text("Nothing has fired")).to_be_visible()


def test_dead_letters_are_shown_with_their_reason(tab: Open, desk: desks.Fake) -> None:
    page = tab("/ui/dead-letters")
    letter = page.get_by_role("article", name="Dead letter invoice-77")
    expect(letter).to_contain_text("no-topic")
    expect(letter).to_contain_text("the target topic invoices-old does not exist")
    letter.get_by_text("Payload and headers").click()
    expect(letter.get_by_role("region", name="Contents")).to_contain_text('"invoice": 77')
    unreadable = page.get_by_role("article", name="Dead letter without an id")
    expect(unreadable.get_by_role("button", name="Send without an id again")).to_be_disabled()
    page.get_by_label("Reason").fill("unreadable")
    page.keyboard.press("Enter")
    expect(page.get_by_role("article")).to_have_count(1)
    desk.letters.clear()
    page.goto("/ui/dead-letters")
    expect(page.get_by_text("No dead letters")).to_be_visible()
