"""What became of an id, from what is left of it in the log."""

from datetime import UTC

from almanac import story, words
from almanac.record import Headers, Record
from almanac.settings import Settings

TOPIC, TOPIC_ID, NOW = "schedules", "id-1", 1_900_000_000_000
SCHEDULE: Headers = [("scheduler-epoch", b"1893456000"), ("scheduler-target-topic", b"mails")]


def verdicts(*records: Record) -> list[str]:
    teller = story.Teller(Settings(), b"a", UTC, {TOPIC: TOPIC_ID})
    for record in records:
        teller.hear(record)
    return teller.story(NOW).verdicts


def said(offset: int, value: bytes | None, headers: Headers) -> Record:
    return Record(TOPIC, 0, offset, 1_893_456_000_000 + offset, b"a", value, headers)


def delivered(version: int) -> Record:
    headers: Headers = [("almanac-id", b"a"), ("almanac-source", b"schedules/0/%d" % version)]
    return Record("history", 0, 0, 0, b"k", b"x", headers)


REPEAT = said(9, None, words.repeat(7, None, TOPIC_ID))


def test_a_cancel_of_which_only_our_repeat_is_left() -> None:
    (verdict,) = verdicts(REPEAT)
    assert verdict.startswith("schedules/0: cancelled before 2030-01-01 00:00:00.009+00:00")
    assert "offset 9" in verdict


def test_the_cancel_itself_says_more_than_its_repeat() -> None:
    (verdict,) = verdicts(said(5, b"x", SCHEDULE), said(7, None, []), REPEAT)
    assert verdict == "schedules/0: cancelled 2030-01-01 00:00:00.007+00:00 at offset 7"


def test_what_a_repeated_cancel_ends_does_not_wait() -> None:
    (verdict,) = verdicts(said(8, b"x", [*SCHEDULE, *words.repeat(5, 0, TOPIC_ID)]), REPEAT)
    assert "cancelled before" in verdict


def test_what_fired_was_not_cancelled_though_its_end_was_repeated() -> None:
    (verdict,) = verdicts(REPEAT, delivered(7))
    assert verdict == "schedules/0: fired; the schedule itself is no longer in the log"
    (verdict,) = verdicts(REPEAT, delivered(5))  # an earlier version
    assert "cancelled before" in verdict


def test_a_copy_that_was_written_ahead_of_time_does_not_read_as_early() -> None:
    teller = story.Teller(Settings(), b"a", UTC, {TOPIC: TOPIC_ID})
    for record in (said(0, b"x", SCHEDULE), said(5, None, words.acknowledgement(0, TOPIC_ID)), delivered(0)):
        teller.hear(record)
    at = {event.what: event.at for event in teller.story(NOW).events}
    assert at["delivered"] == at["acknowledged"] == 1_893_456_000_005
