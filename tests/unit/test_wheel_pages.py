"""What a wheel must not lose or double where pages, memory and quarantine meet."""

from pathlib import Path
from typing import Any

import pytest
from memory import START, TOPIC, Rig

from almanac import ledger, ports
from almanac.parquet import ParquetPage

PAGE = 300_000  # ms


def turn(rig: Rig, wheel: Any, times: int) -> None:
    for _ in range(times):
        wheel.run_for(PAGE)
        wheel.claims.say(ports.Turn(rig.page()))


def test_a_word_that_came_live_and_is_due_pages_later_fires_from_the_page_that_brings_it() -> None:
    rig = Rig()
    wheel = rig.wheel(rig.page()).begin()
    wheel.run_for(100)
    rig.kafka.schedule(b"k", START + 5 * PAGE, b"far")
    turn(rig, wheel, 8)
    wheel.run_for(10_000)
    assert rig.kafka.fired() == [b"far"]


def test_an_update_to_a_far_time_that_slips_in_before_our_tombstone_survives_compaction() -> None:
    rig = Rig()
    wheel = rig.wheel(rig.page()).begin()
    wheel.run_for(100)
    rig.kafka.schedule(b"k", START + 1_000, b"v1")

    def update() -> None:
        rig.kafka.schedule(b"k", START + 86_400_000, b"v2")

    wheel.writer.before_ours.append(update)
    wheel.run_for(2_000)
    turn(rig, wheel, 4)
    wheel.run_for(1_000)
    assert wheel.wheel.tally.repeats == 1
    rig.kafka.log(TOPIC).compact()
    page: Any = rig.page(horizon=2 * 86_400_000).page
    assert [row["key"] for row in page._rows] == [b"k"]


def test_what_comes_live_and_is_due_soon_fires_in_time_though_no_page_comes_any_more() -> None:
    rig = Rig()
    wheel = rig.wheel(rig.page()).begin()
    wheel.run_for(20 * PAGE)
    due = int(rig.clock.wall()) + 1_000
    rig.kafka.schedule(b"a", due, b"a")
    wheel.run_for(2_000)
    assert [record.timestamp - due for record in rig.kafka.read("target")] == [0]


def test_a_page_that_comes_too_late_is_told_with_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    wheel = rig.wheel(rig.page()).begin()
    turn(rig, wheel, 2)
    wheel.run_for(100)
    assert not caplog.records
    wheel.run_for(3 * PAGE)
    turn(rig, wheel, 1)
    wheel.run_for(100)
    assert "page 4 comes 600.1 s after the end of the one before" in caplog.text
    assert "raise PAGE_LENGTH" in caplog.text


def test_pages_of_a_book_that_is_behind_cost_no_second_reading_until_it_is_needed() -> None:
    rig = Rig()
    wheel = rig.wheel(rig.page()).begin()
    wheel.run_for(100)
    for number in range(8):
        rig.kafka.schedule(b"k%d" % number, START + (number + 3) * PAGE, b"%d" % number)
    sought: list[int] = []
    seek = wheel.tail.seek

    def counted(positions: Any) -> None:
        sought.append(int(rig.clock.wall() - START) // PAGE)
        seek(positions)

    wheel.tail.seek = counted  # type: ignore[method-assign]
    for _ in range(9):
        wheel.run_for(PAGE)
        wheel.claims.say(ports.Turn(rig.page({(TOPIC, 0): 0})))
    wheel.run_for(4 * PAGE)
    late = [record.timestamp - START - (int(record.value or b"") + 3) * PAGE for record in rig.kafka.read("target")]
    assert len(late) == 8
    assert max(late) < 1_000
    assert 1 <= len(sought) <= 3, sought


def test_one_that_is_due_at_once_does_not_double_the_staged_ones_of_the_page() -> None:
    rig = Rig()
    due = START + 5_000
    for number in range(3):
        rig.kafka.schedule(b"p%d" % number, due, b"page%d" % number)
    wheel = rig.wheel(rig.page()).begin()
    wheel.tail.at(due - 40, lambda: rig.kafka.schedule(b"now", due - 40 - 1_200, b"at once"))
    wheel.run_for(6_000)
    assert sorted(map(bytes, filter(None, rig.kafka.fired()))) == [b"at once", b"page0", b"page1", b"page2"]


@pytest.mark.rule(12)
def test_a_cancel_that_comes_while_rows_are_read_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    rig.kafka.schedule(b"a", START + 5_000, b"cancelled")
    rig.kafka.schedule(b"b", START + 5_000, b"b")
    rig.kafka.schedule(b"c", START + 5_000, b"old")
    wheel = rig.wheel(rig.page()).begin()
    gather = wheel.wheel._gather

    def slow(now: int) -> list[ledger.Entry]:
        batch = gather(now)
        if batch:
            rig.clock.time += 3_000
            rig.kafka.cancel(b"a")
            rig.kafka.schedule(b"c", START + 9_000, b"new")
            monkeypatch.undo()
        return batch

    monkeypatch.setattr(wheel.wheel, "_gather", slow)
    wheel.run_for(20_000)
    assert sorted(map(bytes, filter(None, rig.kafka.fired()))) == [b"b", b"new"]


def test_a_page_that_begins_before_what_was_read_is_no_reason_to_forget_rows() -> None:
    rig = Rig()
    rig.kafka.schedule(b"a", START + 20_000, b"a")
    wheel = rig.wheel(rig.page()).begin()
    wheel.run_for(1_000)
    wheel.claims.say(ports.Turn(rig.page({(TOPIC, 0): 0})))  # of a book that is being built again
    wheel.run_for(60_000)
    assert rig.kafka.fired() == [b"a"]


def test_a_page_that_begins_before_the_one_in_use_fires_nothing_again() -> None:
    rig = Rig()
    wheel = rig.wheel(rig.page()).begin()
    for number in range(3):
        rig.kafka.schedule(b"k%d" % number, START + 1_000, b"%d" % number)
    wheel.run_for(2_000)
    wheel.claims.say(ports.Turn(rig.page()))  # knows that they are over, so the wheel need not
    wheel.run_for(1_000)
    wheel.claims.say(ports.Turn(rig.page({(TOPIC, 0): 2})))  # of a book that was built again, and has read two of them
    wheel.run_for(1_000)
    assert rig.kafka.fired() == [b"0", b"1", b"2"]


def test_what_waits_for_a_dead_target_is_not_lost_with_the_answer_who_leads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    wheel = rig.wheel(rig.page()).begin()
    wheel.run_for(100)
    rig.kafka.offline.add("target")
    rig.kafka.schedule(b"a", START + 1_000, b"a")
    wheel.run_for(1_500)
    asked = []

    def offline(target: str) -> bool:
        asked.append(target)
        if len(asked) == 1:
            raise ports.Unavailable("metadata timed out")
        return target in rig.kafka.offline

    monkeypatch.setattr(wheel.writer, "offline", offline)
    rig.kafka.offline.clear()
    wheel.run_for(60_000)
    assert rig.kafka.fired() == [b"a"]


def test_what_was_staged_for_a_dead_target_is_not_early_when_it_lives_again() -> None:
    rig = Rig(ahead=150)
    wheel = rig.wheel(rig.page()).begin()
    wheel.run_for(100)
    rig.kafka.offline.add("target")
    rig.kafka.schedule(b"a", START + 1_000, b"a")
    wheel.run_for(1_150)
    until = wheel.wheel._ward.quarantine["target"].until
    rig.kafka.schedule(b"b", until + 100, b"b")
    wheel.tail.at(until + 5, lambda: rig.kafka.schedule(b"x", START + 10**8, b"x", target="other"))
    rig.kafka.offline.clear()
    wheel.run_for(2_000)
    fired = {record.value: record.timestamp for record in rig.kafka.read("target")}
    assert fired[b"b"] >= until + 100


def test_a_wall_clock_that_is_set_ahead_fires_nothing_early(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    rig.kafka.schedule(b"a", START + 3_000_000, b"in 50 minutes")
    wheel = rig.wheel(rig.page(horizon=4_000_000)).begin()
    wheel.run_for(2_000)
    tell = wheel.claims.report

    def report(status: dict[str, Any]) -> None:  # as KafkaClaims: the broker, whose clock is right, stamps it
        tell(status)
        rig.clock.hear_broker(rig.clock.time, rig.clock.wall(), rig.clock.wall())

    monkeypatch.setattr(wheel.claims, "report", report)
    wheel.run_for(2_500)
    rig.clock.skew = 3_600_000.0
    wheel.run_for(5_000)
    assert rig.kafka.fired() == []


def test_a_row_that_the_wheel_cannot_read_ends_in_the_dead_letters() -> None:
    rig = Rig()
    rig.kafka.schedule(b"a", START + 1_000, b"a")
    rig.kafka.schedule(b"b", START + 1_000, b"b")
    page = rig.page()
    rows: Any = page.page
    rows._rows[0]["headers"] = [{"name": "scheduler-epoch", "value": b"soon"}]  # the book thought otherwise
    wheel = rig.wheel(page).begin()
    wheel.run_for(2_000)
    wheel.claims.say(ports.Turn(rig.page()))
    wheel.run_for(2_000)
    assert rig.kafka.fired() == [b"b"]
    assert [(letter.key, dict(letter.headers)["almanac-reason"]) for letter in rig.kafka.read("dead-letters")] == [
        (b"a", b"invalid")
    ]


@pytest.mark.parametrize("behind", [0, 20, 100])
def test_how_many_are_pending_is_known_also_after_a_turn(behind: int) -> None:
    rig = Rig()
    wheel = rig.wheel(rig.page()).begin()
    for number in range(100):
        rig.kafka.schedule(b"k%d" % number, START + 1_000 + 40 * number, b"v")
    rig.kafka.schedule(b"k200", START + 400_000)
    for _ in range(6):
        wheel.run_for(1_000)
        log = rig.kafka.log(TOPIC)
        page = rig.page({(TOPIC, 0): log.stable - behind}, horizon=10**9)
        wheel.claims.say(ports.Turn(page))
        wheel.run_for(100)
        rows: Any = page.page
        fired = len(rig.kafka.fired())
        assert abs(len(rows._rows) + wheel.wheel.status()["net"] - (101 - fired)) <= (5 if behind else 2)


def test_a_shard_without_rows_is_empty_and_a_page_that_is_gone_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "7-1").mkdir()
    (tmp_path / "7-1" / "_SUCCESS").touch()
    for root in (str(tmp_path), tmp_path.as_uri()):
        assert ParquetPage(f"{root}/7-1/shard=0").rows == 0
        with pytest.raises(FileNotFoundError):
            ParquetPage(f"{root}/6-1/shard=0")


def test_a_marked_row_that_the_wheel_cannot_read_ends_in_the_dead_letters_too() -> None:
    rig = Rig()
    rig.kafka.schedule(b"a", START + 1_000, b"a")
    page = rig.page()
    rows: Any = page.page
    rows._rows[0].update(mark="adrift", headers=[{"name": "scheduler-epoch", "value": b"soon"}])
    wheel = rig.wheel(page).begin()
    wheel.run_for(2_000)
    assert [letter.key for letter in rig.kafka.read("dead-letters")] == [b"a"]
    assert rig.kafka.fired() == []


def test_a_tombstone_that_is_read_back_in_a_later_generation_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "GENERATION", 4)
    rig = Rig()
    wheel = rig.wheel().begin()
    rig.kafka.schedule(b"k", START + 1_000, b"once")
    wheel.run_for(500)

    def others() -> None:
        for number in range(6):
            rig.kafka.schedule(b"x%d" % number, START + 3_600_000, b"far")

    wheel.writer.before_ours.append(others)
    wheel.run_for(1_000)  # the tombstone is at offset 7
    wheel.claims.say(ports.Turn(rig.page({(TOPIC, 0): 7})))
    wheel.run_for(1_000)
    assert rig.kafka.fired() == [b"once"]


def test_a_row_that_waits_for_a_dead_target_and_is_read_again_is_one() -> None:
    rig = Rig()
    rig.kafka.schedule(b"q0", START + 1_000, b"q0", target="dead")
    rig.kafka.schedule(b"q1", START + 3_000, b"q1", target="dead")
    wheel = rig.wheel(rig.page()).begin()
    rig.kafka.offline.add("dead")
    wheel.tail.at(START + 2_950, lambda: rig.kafka.schedule(b"late", START + 1_400, b"late"))
    wheel.run_for(4_000)
    rig.kafka.offline.clear()
    wheel.run_for(40_000)
    assert [record.value for record in rig.kafka.read("dead")] == [b"q0", b"q1"]


def test_what_is_set_apart_and_given_back_goes_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    wheel = rig.wheel().begin()
    wheel.run_for(100)
    for number in range(3):
        rig.kafka.schedule(b"k%d" % number, START + 1_000, b"v%d" % number)
    size, late = ports.Fault("size", "too large"), ports.Fault("time-out", "no leader")
    script: list[Any] = [{1: size, 4: size, 7: size}, {1: late}, ports.Unavailable("gone")]
    attempt = wheel.writer.attempt

    def scripted(records: Any) -> dict[int, ports.Fault]:
        if not script:
            return attempt(records)
        step = script.pop(0)
        if isinstance(step, Exception):
            raise step
        return dict(step)

    def refuse() -> None:
        raise ports.Refused("too large")

    monkeypatch.setattr(wheel.writer, "attempt", scripted)
    wheel.writer.before_commit.append(refuse)
    wheel.run_for(40_000)
    assert sorted(map(bytes, filter(None, rig.kafka.fired()))) == [b"v0", b"v1", b"v2"]
    assert not script


def test_what_waited_behind_a_message_that_is_too_large_is_not_set_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    wheel = rig.wheel().begin()
    wheel.run_for(100)
    rig.kafka.limits["target"] = 100
    rig.kafka.schedule(b"large", START + 1_000, b"x" * 200)
    rig.kafka.schedule(b"good", START + 1_000, b"good")
    attempt, tries = wheel.writer.attempt, []

    def slow(records: Any) -> dict[int, ports.Fault]:
        tries.append(len(records))
        faults = attempt(records)
        return {**dict.fromkeys(range(1, len(records), 3), ports.Fault("time-out", "")), **faults} if faults else faults

    monkeypatch.setattr(wheel.writer, "attempt", slow)
    wheel.run_for(1_100)
    assert rig.kafka.fired() == [b"good"]
    assert tries[0] == 6


def test_what_is_refused_while_it_is_staged_is_not_early_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(early=lambda target: target.startswith("fast"), ahead=150)
    wheel = rig.wheel().begin()
    rig.kafka.unknown.add("fast-gone")
    rig.kafka.schedule(b"a", START + 1_000, b"a", target="fast-gone")
    rig.kafka.schedule(b"b", START + 1_000, b"b")
    send = wheel.writer._send

    def refusing(out: Any) -> None:  # as librdkafka: at once
        if wheel.writer._fault(out):
            raise ports.Refused("unknown topic")
        send(out)

    monkeypatch.setattr(wheel.writer, "_send", refusing)
    wheel.run_for(3_000)
    (fired,) = rig.kafka.read("target")
    assert fired.timestamp >= START + 1_000
