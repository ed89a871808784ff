"""The wheel on a log in memory: what it must do, one sentence a test."""

from typing import Any

import peers
import pytest
from memory import START, TOPIC, Rig, Turning

from almanac import formats, judge, ports
from almanac.record import Record
from almanac.wheel import FEW


def due(ms: int) -> int:
    return START + ms


@pytest.mark.rule(7)
def test_fires_at_its_time_and_not_before() -> None:
    rig = Rig()
    wheel = rig.wheel().begin()
    rig.kafka.schedule(b"a", due(1_000), b"one")
    wheel.run_for(800)
    assert rig.kafka.fired() == []
    wheel.run_for(300)
    assert rig.kafka.fired() == [b"one"]
    assert rig.kafka.read("target")[0].timestamp >= due(1_000)


def test_target_history_and_tombstone() -> None:
    rig = Rig()
    wheel = rig.wheel().begin()
    offset = rig.kafka.schedule(b"a", due(100), b"one")
    wheel.run_for(200)
    target, history, tombstone = rig.kafka.read("target")[0], rig.kafka.read("history")[0], rig.kafka.read(TOPIC)[-1]
    assert dict(target.headers)["scheduler-key"] == b"a"
    assert history.headers[: len(target.headers)] == target.headers
    assert dict(history.headers)["almanac-source"] == b"schedules/0/%d" % offset
    assert (tombstone.key, tombstone.value) == (b"a", None)
    assert dict(tombstone.headers)["almanac-acks"] == b"%d" % offset
    assert "almanac-reason" not in dict(tombstone.headers)


def test_the_last_word_wins_and_a_cancel_cancels() -> None:
    rig = Rig()
    wheel = rig.wheel().begin()
    rig.kafka.schedule(b"a", due(500), b"old")
    rig.kafka.schedule(b"a", due(700), b"new")
    rig.kafka.schedule(b"b", due(500), b"never")
    rig.kafka.cancel(b"b")
    wheel.run_for(1_000)
    assert rig.kafka.fired() == [b"new"]


def test_a_page_and_the_tail_give_one_picture() -> None:
    rig = Rig()
    for key in (b"a", b"b", b"c", b"d"):
        rig.kafka.schedule(key, due(1_000), b"page " + key)
    wheel = rig.wheel().begin()
    rig.kafka.cancel(b"a")
    rig.kafka.schedule(b"b", due(2_000), b"tail b")
    rig.kafka.schedule(b"e", due(500), b"tail e")
    wheel.run_for(2_500)
    assert rig.kafka.fired() == [b"tail e", b"page c", b"page d", b"tail b"]


@pytest.mark.rule(11)
def test_a_cancel_while_the_message_is_staged() -> None:
    rig = Rig(ahead=500)
    wheel = rig.wheel().begin()
    rig.kafka.schedule(b"a", due(1_000), b"cancelled")
    rig.kafka.schedule(b"b", due(1_000), b"fired")
    wheel.tail.at(due(700), lambda: rig.kafka.cancel(b"a"))
    wheel.run_for(1_500)
    assert rig.kafka.fired() == [b"fired"]
    assert wheel.wheel.tally.aborted == 1


@pytest.mark.rule(11)
@pytest.mark.parametrize("took", [100, 300])
def test_a_cancel_while_staging_takes_long(took: int) -> None:
    rig = Rig(ahead=150)
    wheel = rig.wheel().begin()
    rig.kafka.schedule(b"a", due(1_000), b"cancelled")
    rig.kafka.schedule(b"b", due(1_000), b"fired")

    def slowly() -> None:
        rig.kafka.cancel(b"a")
        rig.clock.time += took

    wheel.writer.while_flushing.append(slowly)
    wheel.run_for(1_500)
    assert rig.kafka.fired() == [b"fired"]


@pytest.mark.parametrize("history", ["history", ""])
def test_nothing_is_held_before_the_transaction_has_begun_on_the_broker(history: str) -> None:
    rig = Rig(ahead=500, history=history)
    wheel = rig.wheel().begin()
    rig.kafka.schedule(b"a", due(1_000), b"one")
    held: list[int] = []
    wheel.tail.at(due(800), lambda: held.append(len(wheel.writer.held)))
    wheel.run_for(1_500)
    assert (rig.kafka.fired(), held) == ([b"one"], [1 if history else 0])


@pytest.mark.rule(7)
def test_what_is_held_is_given_back_if_the_clock_is_set_back() -> None:
    rig = Rig(ahead=500)
    wheel = rig.wheel().begin()
    rig.kafka.schedule(b"a", due(1_000), b"one")
    wheel.tail.at(due(700), lambda: setattr(rig.clock, "skew", -100_000))
    wheel.tail.at(due(3_900), lambda: setattr(rig.clock, "skew", 0))
    wheel.run_for(3_400)
    assert (rig.kafka.fired(), wheel.wheel.tally.aborted) == ([], 1)
    wheel.run_for(1_000)
    assert rig.kafka.fired() == [b"one"]


def test_a_sooner_one_does_not_wait_for_a_staged_one() -> None:
    rig = Rig(ahead=500)
    wheel = rig.wheel().begin()
    rig.kafka.schedule(b"a", due(1_000), b"later")
    wheel.tail.at(due(600), lambda: rig.kafka.schedule(b"b", due(700), b"sooner"))
    wheel.run_for(1_500)
    sooner = next(r for r in rig.kafka.read("target") if r.value == b"sooner")
    assert sooner.timestamp - due(700) < 5
    assert rig.kafka.fired() == [b"sooner", b"later"]


def test_missed_ones_go_first_in_due_order_and_live_ones_do_not_wait_for_all_of_them() -> None:
    rig = Rig(fires=10)
    for number in range(100):
        rig.kafka.schedule(b"m%d" % number, due(10_000 - number), b"missed %d" % number)
    rig.clock.time += 20_000
    wheel = rig.wheel().begin()
    rig.kafka.schedule(b"live", due(20_000), b"live")
    wheel.run_for(500)
    fired = rig.kafka.fired()
    missed = [value for value in fired if value != b"live"]
    assert missed == [b"missed %d" % number for number in range(99, -1, -1)]
    assert fired.index(b"live") < 15


def test_a_page_turns_without_losing_or_doubling() -> None:
    rig = Rig()
    rig.kafka.schedule(b"a", due(5_000), b"a")
    wheel = rig.wheel().begin()
    rig.kafka.schedule(b"b", due(5_000), b"b")
    wheel.run_for(1_000)
    wheel.claims.say(ports.Turn(rig.page()))
    rig.kafka.schedule(b"c", due(5_000), b"c")
    rig.kafka.cancel(b"a")
    wheel.run_for(5_000)
    assert set(rig.kafka.fired()) == {b"b", b"c"}
    assert len(rig.kafka.fired()) == 2


def test_a_page_older_than_what_was_fired_fires_nothing_again() -> None:
    rig = Rig()
    for number in range(5):
        rig.kafka.schedule(b"k%d" % number, due(100), b"v%d" % number)
    wheel = rig.wheel().begin()
    stale = rig.page()
    wheel.run_for(500)
    assert len(rig.kafka.fired()) == 5
    wheel.claims.say(ports.Turn(stale))
    wheel.run_for(500)
    assert len(rig.kafka.fired()) == 5


def test_what_was_dropped_beyond_the_horizon_comes_with_a_later_page() -> None:
    rig = Rig(keep=1_000)
    wheel = rig.wheel(rig.page(horizon=1_000)).begin()
    rig.kafka.schedule(b"far", due(10_000), b"far")
    wheel.run_for(3_000)
    wheel.claims.say(ports.Turn(rig.page(horizon=20_000)))
    wheel.run_for(8_000)
    assert rig.kafka.fired() == [b"far"]


@pytest.mark.rule(3, 4)
def test_an_update_that_slips_in_before_the_tombstone_is_repeated_and_fires() -> None:
    rig = Rig()
    wheel = rig.wheel().begin()
    rig.kafka.schedule(b"a", due(1_000), b"first")
    wheel.run_for(500)
    updated: list[int] = []
    wheel.writer.before_ours.append(lambda: updated.append(rig.kafka.schedule(b"a", due(3_000), b"second")))
    wheel.run_for(1_000)
    last = rig.kafka.read(TOPIC)[-1]
    assert dict(last.headers)["almanac-version"] == b"%d" % updated[0]
    assert last.value == b"second"
    wheel.run_for(3_000)
    assert rig.kafka.fired() == [b"first", b"second"]


@pytest.mark.rule(5)
def test_garbage_without_a_key_of_before_its_topic_was_compacted_stops_nothing() -> None:
    rig = Rig()
    garbage = rig.kafka.write(TOPIC, None, b"bad")
    rig.kafka.schedule(b"a", due(100), b"fired")
    rig.wheel().begin().run_for(1_000)
    assert rig.kafka.fired() == [b"fired"]
    (letter,) = rig.kafka.read("dead-letters")
    assert (letter.key, letter.value) == (None, b"bad")
    again = rig.wheel().begin().run_for(1_000)
    assert len(rig.kafka.read("dead-letters")) == 1, f"{garbage} is disposed of"
    assert again.wheel.status()["state"] == "firing"


@pytest.mark.parametrize(("form", "endless"), [("etf1", True), ("auto", True), ("sky-json", False)])
def test_a_schedule_that_would_come_back_for_ever_is_not_delivered_to_its_own_topic(form: str, endless: bool) -> None:
    rig = Rig(form=form, grace=3_600_000)
    if endless:
        rig.kafka.schedule(b"a", due(100), b"again", target=TOPIC)
    else:
        inner = peers.sky_json(due(300), "target", b"k", b"chained", {})
        rig.kafka.write(TOPIC, b"a", peers.sky_json(due(100), TOPIC, b"b", inner, {}))
    rig.wheel().begin().run_for(1_000)
    letters = [dict(letter.headers)["almanac-reason"] for letter in rig.kafka.read("dead-letters")]
    assert letters == ([b"undeliverable"] if endless else [])
    assert rig.kafka.fired() == ([] if endless else [b"chained"])


def test_one_that_its_target_reads_in_another_format_is_no_such_schedule() -> None:
    """Both formats' headers: an `etf1` topic reads it as its own, an `auto` topic as karafka's, due later."""
    headers = [
        ("scheduler-epoch", b"1"), ("scheduler-target-topic", b"x"), ("schedule_schema_version", b"1.0.0"),
        ("schedule_source_type", b"schedule"), ("schedule_target_epoch", b"2"), ("schedule_target_topic", b"y"),
    ]  # fmt: skip
    first = formats.schedule(Record("native", 0, 0, 0, b"k", b"v", [*headers]), formats.named("etf1"))
    then = formats.schedule(Record("mixed", 0, 0, 0, b"k", b"v", first.headers), formats.named("auto"))
    assert (judge.endless(first, "auto"), judge.endless(first, "etf1")) == (False, True)
    assert (judge.endless(then, "auto"), judge.endless(then, "karafka"), judge.endless(then, "etf1")) == (
        True,
        True,
        False,
    )


@pytest.mark.rule(5)
def test_garbage_cancels_nothing_and_ends_in_the_dead_letters() -> None:
    rig = Rig()
    wheel = rig.wheel().begin()
    rig.kafka.schedule(b"a", due(1_000), b"good")
    garbage = rig.kafka.write(TOPIC, b"a", b"bad", [("scheduler-epoch", b"tomorrow")])
    wheel.run_for(500)
    letter = rig.kafka.read("dead-letters")[0]
    assert (letter.value, dict(letter.headers)["almanac-reason"]) == (b"bad", b"invalid")
    assert any(dict(r.headers).get("almanac-disposes") == b"%d" % garbage for r in rig.kafka.read(TOPIC))
    assert rig.kafka.read(TOPIC)[-1].value == b"good"  # rule 4: the log ends in the pending word again
    wheel.run_for(1_000)
    assert rig.kafka.fired() == [b"good"]


def test_outdated_is_a_word_that_ends_in_the_dead_letters() -> None:
    rig = Rig()
    wheel = rig.wheel().begin()
    rig.kafka.schedule(b"a", due(60_000), b"replaced")
    rig.kafka.schedule(b"a", due(-10_000), b"outdated")
    wheel.run_for(70_000)
    assert rig.kafka.fired() == []
    assert dict(rig.kafka.read("dead-letters")[0].headers)["almanac-reason"] == b"outdated"
    assert dict(rig.kafka.read(TOPIC)[-1].headers)["almanac-reason"] == b"outdated", "its tombstone says so too"
    assert len(rig.kafka.read("dead-letters")) == 1


def test_since_delta_bounds_how_far_back_missed_ones_fire() -> None:
    rig = Rig(since_delta=0)
    rig.kafka.schedule(b"old", due(1_000), b"old")
    rig.clock.time += 3 * 86_400_000
    rig.kafka.schedule(b"new", int(rig.clock.time) + 100, b"new")
    rig.wheel().begin().run_for(500)
    assert rig.kafka.fired() == [b"new"]
    assert dict(rig.kafka.read("dead-letters")[0].headers)["almanac-reason"] == b"missed-too-old"


@pytest.mark.rule(6)
def test_a_lost_answer_doubles_nothing() -> None:
    rig = Rig()
    wheel = rig.wheel().begin()
    rig.kafka.schedule(b"a", due(100), b"once")
    wheel.writer.lose_answer = True
    wheel.run_for(1_000)
    assert rig.kafka.fired() == [b"once"]


def test_kafka_away_loses_and_doubles_nothing() -> None:
    rig = Rig()
    wheel = rig.wheel().begin()
    rig.kafka.schedule(b"a", due(1_000), b"a")
    wheel.run_for(500)
    rig.kafka.away = True
    with pytest.raises(ports.Unavailable):
        wheel.run_for(10_000)
    rig.clock.time += 60_000
    rig.kafka.away = False
    assert wheel.wheel.take_over() is None
    wheel.run_for(500)
    assert rig.kafka.fired() == [b"a"]


@pytest.mark.rule(8)
def test_a_poison_message_goes_to_the_dead_letters_and_the_others_go_out() -> None:
    rig = Rig()
    wheel = rig.wheel().begin()
    rig.kafka.unknown.add("nowhere")
    rig.kafka.limits["target"] = 10
    rig.kafka.schedule(b"a", due(100), b"fine")
    rig.kafka.schedule(b"b", due(100), b"lost", "nowhere")
    rig.kafka.schedule(b"c", due(100), b"much too large")
    wheel.run_for(500)
    assert rig.kafka.fired() == [b"fine"]
    assert sorted(letter.value or b"" for letter in rig.kafka.read("dead-letters")) == [b"lost", b"much too large"]


@pytest.mark.rule(8)
def test_a_target_that_does_not_answer_keeps_its_messages_and_holds_up_nobody() -> None:
    rig = Rig()
    wheel = rig.wheel().begin()
    rig.kafka.offline.add("down")
    rig.kafka.schedule(b"a", due(100), b"waits", "down")
    rig.kafka.schedule(b"b", due(100), b"fine")
    wheel.run_for(2_000)
    rig.kafka.schedule(b"c", due(2_000), b"waits too", "down")
    wheel.run_for(500)
    assert rig.kafka.fired() == [b"fine"]
    assert rig.kafka.read("dead-letters") == []
    rig.kafka.offline.clear()
    wheel.run_for(10_000)
    assert [record.value for record in rig.kafka.read("down")] == [b"waits", b"waits too"]


@pytest.mark.rule(9)
def test_a_dead_letter_that_does_not_fit_becomes_a_stub() -> None:
    rig = Rig()
    wheel = rig.wheel().begin()
    rig.kafka.limits["dead-letters"] = 10
    rig.kafka.write(TOPIC, b"a", b"x" * 100, [("scheduler-epoch", b"no")])
    wheel.run_for(500)
    letter = rig.kafka.read("dead-letters")[0]
    assert letter.value is None
    assert dict(letter.headers)["almanac-source"] == b"schedules/0/0"


@pytest.mark.rule(1)
def test_a_fenced_wheel_fires_nothing_and_sees_why() -> None:
    rig = Rig()
    old = rig.wheel().begin()
    rig.kafka.schedule(b"a", due(1_000), b"once")
    old.run_for(500)
    new = rig.wheel().begin()
    new.run_for(1_000)
    rig.kafka.schedule(b"b", due(2_000), b"again")
    with pytest.raises(ports.Fenced):
        old.run_for(2_000)
    assert old.wheel.take_over() is not None
    assert rig.kafka.fired() == [b"once"]
    new.run_for(1_000)
    assert rig.kafka.fired() == [b"once", b"again"]


@pytest.mark.rule(12)
def test_a_stalled_tail_pauses_the_wheel() -> None:
    rig = Rig()
    wheel = rig.wheel().begin()
    rig.kafka.schedule(b"a", due(20_000), b"cancelled unseen")
    wheel.run_for(1_000)
    rig.kafka.log(TOPIC).stalled = True
    rig.kafka.cancel(b"a")
    wheel.run_for(30_000)
    assert rig.kafka.fired() == []
    assert wheel.wheel.status()["state"] == "paused"
    rig.kafka.log(TOPIC).stalled = False
    wheel.run_for(1_000)
    assert wheel.wheel.status()["state"] == "firing"
    assert rig.kafka.fired() == []


@pytest.mark.rule(12)
def test_a_tail_that_is_behind_pauses_the_wheel_though_it_shows_records(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    wheel = rig.wheel().begin()
    rig.kafka.schedule(b"a", due(20_000), b"cancelled unseen")
    wheel.run_for(1_000)
    for number in range(40):
        rig.kafka.schedule(b"x%d" % number, due(3_600_000))
    rig.kafka.cancel(b"a")
    poll, slow = wheel.tail.poll, [True]

    def one_a_second(seconds: float) -> list[Any]:
        if not slow[0]:
            return poll(seconds)
        rig.clock.time += 1_000
        position = wheel.wheel.ledgers[TOPIC, 0].position
        return [record for record in rig.kafka.read(TOPIC) if record.offset == position]

    monkeypatch.setattr(wheel.tail, "poll", one_a_second)
    wheel.run_for(30_000)
    assert wheel.wheel.status()["state"] == "paused"
    slow[0] = False
    wheel.run_for(10_000)
    assert wheel.wheel.status()["state"] == "firing"
    assert rig.kafka.fired() == []


def test_a_wrong_clock_pauses_the_wheel() -> None:
    rig = Rig()
    wheel = rig.wheel().begin()
    rig.kafka.schedule(b"a", due(60_000), b"early")
    wheel.run_for(1_000)
    rig.clock.skew = 3_600_000
    wheel.run_for(1_000)
    assert rig.kafka.fired() == []
    assert "clock" in str(wheel.wheel.status()["why"])


@pytest.mark.rule(1)
def test_a_foreign_open_transaction_does_not_hide_a_tombstone() -> None:
    # rule 1: the end to catch up to is the high watermark, not the last stable offset
    from memory import Slot, Transaction

    rig = Rig()
    rig.kafka.schedule(b"a", due(100), b"once")
    first = rig.wheel().begin()
    foreign = Transaction()
    log = rig.kafka.log(TOPIC)
    log.append(Slot(None, foreign))
    first.run_for(500)
    assert rig.kafka.fired() == [b"once"]
    second = rig.wheel(rig.page({(TOPIC, 0): 0}))
    second.tail.at(due(2_000), lambda: setattr(foreign, "state", "committed"))
    second.begin().run_for(500)
    assert rig.kafka.fired() == [b"once"]


def _update_then_cancel(rig: Rig, wheel: Turning) -> list[int]:
    """An update slips in before the first tombstone, a cancel before its repeat. The cancel's offset, once there."""
    cancelled: list[int] = []

    def update() -> None:
        rig.kafka.schedule(b"a", due(3_000), b"second")
        wheel.writer.before_ours.append(lambda: cancelled.append(rig.kafka.cancel(b"a")))

    rig.kafka.schedule(b"a", due(1_000), b"first")
    wheel.writer.before_ours.append(update)
    return cancelled


@pytest.mark.rule(4)
def test_a_cancel_that_slips_in_before_our_repeat_still_counts() -> None:
    # rule 4: a repeat counts as the version it repeats, never as a new one
    rig = Rig()
    wheel = rig.wheel().begin()
    cancelled = _update_then_cancel(rig, wheel)
    wheel.run_for(5_000)
    assert cancelled
    assert rig.kafka.fired() == [b"first"]
    last = rig.kafka.read(TOPIC)[-1]
    assert last.value is None, "reduced to its last record the log would fire"


def test_a_repeat_does_not_raise_what_the_book_knows_to_be_over() -> None:
    rig = Rig()
    wheel = rig.wheel().begin()
    cancelled = _update_then_cancel(rig, wheel)
    while not cancelled:
        wheel.step_or_recover()
    # that wheel dies here; the next one's page knows of the cancel, and the repeat comes by its tail
    page = rig.page({(TOPIC, 0): cancelled[0] + 1})
    rig.wheel(page).begin().run_for(5_000)
    assert rig.kafka.fired() == [b"first"]


def test_a_turn_before_our_tombstone_is_read_back_fires_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("almanac.ledger.GENERATION", 1)
    rig = Rig()
    wheel = rig.wheel().begin()
    for number in range(3):
        rig.kafka.schedule(b"k%d" % number, due(100), b"v%d" % number)
    wheel.wheel._poll(0)
    stale = rig.page()
    log = rig.kafka.log(TOPIC)
    wheel.writer.before_ours.append(lambda: setattr(log, "stalled", True))
    wheel.run_for(500)
    assert len(rig.kafka.fired()) == 3
    wheel.claims.say(ports.Turn(stale))
    wheel.run_for(500)
    log.stalled = False
    wheel.run_for(500)
    assert len(rig.kafka.fired()) == 3


@pytest.mark.rule(2)
def test_a_tombstone_goes_to_the_partition_the_schedule_came_from() -> None:
    rig = Rig(partitions=2)
    rig.kafka.schedule(b"a", due(100), b"once", partition=1)
    rig.wheel().begin().run_for(500)
    rig.wheel().begin().run_for(500)  # the next wheel knows from the log alone that it has fired
    assert rig.kafka.fired() == [b"once"]


@pytest.mark.rule(2)
def test_a_crash_before_the_commit_leaves_nothing_behind() -> None:
    rig = Rig()
    wheel = rig.wheel().begin()
    rig.kafka.schedule(b"a", due(100), b"once")

    def crash() -> None:
        raise MemoryError("the process dies here")

    wheel.writer.before_commit.append(crash)
    with pytest.raises(MemoryError):
        wheel.run_for(500)
    assert rig.kafka.fired() == []
    rig.wheel().begin().run_for(500)
    assert rig.kafka.fired() == [b"once"]
    assert len(rig.kafka.read("history")) == 1


@pytest.mark.rule(3)
def test_a_tombstone_from_another_topic_is_a_plain_delete() -> None:
    rig = Rig()
    wheel = rig.wheel().begin()
    rig.kafka.schedule(b"a", due(500), b"deleted")
    rig.kafka.write(TOPIC, b"a", None, [("almanac-acks", b"0"), ("almanac-topic-id", b"of another topic")])
    rig.kafka.schedule(b"b", due(500), b"kept")
    rig.kafka.schedule(b"b", due(600), b"newer")
    rig.kafka.write(TOPIC, b"b", None, [("almanac-acks", b"2"), ("almanac-topic-id", b"topic-id")])
    wheel.run_for(1_000)
    assert rig.kafka.fired() == [b"newer"]


@pytest.mark.rule(7)
def test_whole_seconds_of_a_thousand_are_never_early() -> None:
    rig = Rig(ahead=150)
    wheel = rig.wheel().begin()
    for number in range(1_000):
        rig.kafka.schedule(b"k%d" % number, due(1_000 + 250 * (number % 4)), b"%d" % number)
    wheel.run_for(3_000)
    fired = rig.kafka.read("target")
    assert len(fired) == 1_000
    for record in fired:
        assert record.timestamp >= int(dict(record.headers)["scheduler-epoch-ms"] or 0)


def test_what_falls_due_one_by_one_goes_together() -> None:
    rig = Rig()
    wheel = rig.wheel().begin()
    wheel.writer.after_commit.append(lambda: rig.clock.sleep(0.01))  # so long Kafka takes for each, however small
    for number in range(500):
        rig.kafka.schedule(b"k%d" % number, due(1_000 + 2 * number), b"%d" % number)
    wheel.run_for(3_000)
    fired = rig.kafka.read("target")
    assert [record.value for record in fired] == [b"%d" % number for number in range(500)]
    assert all(0 <= record.timestamp - due(1_000 + 2 * number) <= 30 for number, record in enumerate(fired))
    assert wheel.wheel.tally.transactions <= 60, "one every 20 ms; without a rest it is one every 10"


@pytest.mark.parametrize(("fires", "size"), [(FEW, 1), (10, 1), (FEW, 1_000)])
def test_many_that_are_due_do_not_wait_for_each_other(fires: int, size: int) -> None:
    rig = Rig(fires=fires, bytes=10 * 2_400)  # of the large ones ten fit into a transaction
    wheel = rig.wheel().begin()
    wheel.writer.after_commit.append(lambda: rig.clock.sleep(0.01))
    for number in range(100):
        rig.kafka.schedule(b"k%d" % number, due(1_000), b"v" * size)
    wheel.run_for(3_000)
    fired = rig.kafka.read("target")
    assert len(fired) == 100
    assert max(record.timestamp for record in fired) < due(1_000) + 10 * 11


def test_large_transactions_follow_each_other() -> None:
    rig = Rig()
    wheel = rig.wheel().begin()
    wheel.writer.after_commit.append(lambda: rig.clock.sleep(0.01))
    for number in range(2 * FEW):
        rig.kafka.schedule(b"k%d" % number, due(1_000 + number // FEW * 8), b"v")
    wheel.run_for(3_000)
    assert max(record.timestamp for record in rig.kafka.read("target")) == due(1_010)
