"""The wheel and what people tell it: pause, resume, caps, forbidden targets. Nothing is lost, nothing is doubled."""

import pytest
from memory import START, TOPIC, Rig, Turning

from almanac import ports
from almanac.controls import Controls
from almanac.record import Record


def due(ms: int) -> int:
    return START + ms


def lateness(record: Record) -> int:
    return record.timestamp - int(dict(record.headers)["scheduler-epoch-ms"] or 0)


def all_fired(rig: Rig, *targets: str) -> list[bytes | None]:
    return [record.value for target in targets for record in rig.kafka.read(target)]


PAUSED = Controls(paused=True, by="Ada", at=START)


def test_paused_nothing_fires_and_all_else_goes_on() -> None:
    rig = Rig()
    wheel = rig.wheel().begin()
    wheel.claims.say(PAUSED)
    for number in range(20):
        rig.kafka.schedule(b"k%d" % number, due(1_000 - number), b"%d" % number)
    rig.kafka.write(TOPIC, b"x", b"bad", [("scheduler-epoch", b"tomorrow")])
    wheel.run_for(3_000)
    assert rig.kafka.fired() == []
    assert len(rig.kafka.read("dead-letters")) == 1, "chores go on"
    status = wheel.wheel.status()
    assert (status["state"], status["why"], status["controls"]) == ("paused", "paused by Ada", PAUSED.fields())
    rig.kafka.cancel(b"k3")
    wheel.claims.say(Controls())
    wheel.run_for(500)
    assert rig.kafka.fired() == [b"%d" % number for number in range(19, -1, -1) if number != 3], "in due order"
    assert wheel.wheel.status()["state"] == "firing"


def test_a_pause_is_obeyed_within_a_second_also_by_what_is_staged() -> None:
    rig = Rig(ahead=5_000)
    wheel = rig.wheel().begin()
    rig.kafka.schedule(b"a", due(6_000), b"held", target="held")
    rig.kafka.schedule(b"b", due(6_000), b"goes")
    wheel.tail.at(due(4_600), lambda: wheel.claims.say(Controls(paused_targets=("held",))))
    wheel.run_for(7_000)
    assert all_fired(rig, "target", "held") == [b"goes"]
    assert lateness(rig.kafka.read("target")[0]) < 20
    wheel.claims.say(Controls())
    wheel.run_for(500)
    assert all_fired(rig, "held") == [b"held"]


@pytest.mark.parametrize("paged", [True, False])
def test_a_paused_target_holds_up_nobody(paged: bool) -> None:
    rig = Rig(fires=50)
    wheel = None if paged else rig.wheel().begin()
    for number in range(400):
        rig.kafka.schedule(b"h%d" % number, due(100 + 10 * number), b"h%d" % number, target="held")
        rig.kafka.schedule(b"k%d" % number, due(100 + 10 * number), b"k%d" % number)
    wheel = wheel or rig.wheel().begin()
    wheel.claims.say(Controls(paused_targets=("held",)))
    wheel.run_for(6_000)
    assert all_fired(rig, "held") == []
    assert rig.kafka.fired() == [b"k%d" % number for number in range(400)]
    assert max(map(lateness, rig.kafka.read("target"))) < 50
    assert wheel.wheel.status()["state"] == "firing"
    assert wheel.wheel.status()["held"] == {"held": 0 if paged else 400}
    if paged:
        assert wheel.wheel.status()["in_memory"] < 50, "rows of the page are read again when they may go"
    for number in range(400, 420):
        rig.kafka.schedule(b"k%d" % number, due(6_100 + 10 * number), b"k%d" % number)
    wheel.claims.say(Controls())
    wheel.run_for(5_000)
    assert all_fired(rig, "held") == [b"h%d" % number for number in range(400)], "all, once, in due order"
    assert len(rig.kafka.fired()) == 420
    assert max(map(lateness, rig.kafka.read("target"))) < 50


@pytest.mark.parametrize(
    "told", [PAUSED, Controls(paused_targets=("target",)), Controls(target_per_second={"target": 0})]
)
def test_pages_turn_and_wheels_are_replaced_while_paused(told: Controls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("almanac.ledger.GENERATION", 10)
    rig = Rig()
    for number in range(100):
        rig.kafka.schedule(b"a%d" % number, due(500), b"a%d" % number)
    wheel = rig.wheel().begin()
    wheel.claims.say(told)
    wheel.run_for(2_000)
    for number in range(100):
        rig.kafka.schedule(b"b%d" % number, due(2_500), b"b%d" % number)
    wheel.run_for(2_000)
    wheel.claims.say(ports.Turn(rig.page()))
    wheel.run_for(2_000)
    assert wheel.wheel.status()["page"] == 2
    assert wheel.wheel.status()["in_memory"] <= 10, "what the page knows is not kept"
    rig.kafka.schedule(b"c", due(7_000), b"c")
    rig.kafka.cancel(b"a7")
    wheel = rig.wheel().begin().run_for(2_000)  # a new owner hears what was told before
    assert rig.kafka.fired() == []
    wheel.claims.say(ports.Turn(rig.page()))
    wheel.run_for(1_000)
    wheel.claims.say(Controls())
    wheel.run_for(2_000)
    expected = [b"a%d" % n for n in range(100) if n != 7] + [b"b%d" % n for n in range(100)] + [b"c"]
    assert rig.kafka.fired() == expected


def test_memory_stays_bounded_while_live_words_of_a_paused_target_keep_coming(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("almanac.ledger.GENERATION", 50)
    rig = Rig()
    wheel = rig.wheel().begin()
    wheel.claims.say(Controls(paused_targets=("target",)))
    most = 0
    for turn in range(20):
        for number in range(100):
            rig.kafka.schedule(b"%d-%d" % (turn, number), int(rig.clock.time) + 10, b"v")
        wheel.run_for(1_000)
        most = max(most, wheel.wheel.status()["in_memory"])
        wheel.claims.say(ports.Turn(rig.page()))
        wheel.run_for(100)
    assert most <= 200, "what came since the last page, of 2,000 that wait"
    wheel.claims.say(Controls())
    wheel.run_for(3_000)
    assert len(rig.kafka.fired()) == 2_000


def test_a_cap_bounds_one_target_and_no_other() -> None:
    rig = Rig()
    for number in range(300):
        rig.kafka.schedule(b"c%d" % number, due(1_000), b"c%d" % number, target="capped")
    wheel = rig.wheel().begin()
    wheel.claims.say(Controls(target_per_second={"capped": 100}))
    for number in range(300):
        rig.kafka.schedule(b"l%d" % number, due(1_000), b"l%d" % number, target="capped")
        rig.kafka.schedule(b"k%d" % number, due(1_000 + 10 * number), b"k%d" % number)
    wheel.run_for(8_500)
    capped = rig.kafka.read("capped")
    assert len(capped) == len({record.value for record in capped}) == 600
    for start in range(1_000, 8_000, 100):
        assert len([r for r in capped if due(start) <= r.timestamp < due(start + 1_000)]) <= 126
    assert capped[-1].timestamp < due(1_000 + 6_700), "and it is used"
    assert max(map(lateness, rig.kafka.read("target"))) < 50


def test_a_cap_on_missed_ones_leaves_the_live_ones_alone() -> None:
    rig = Rig()
    for number in range(500):
        rig.kafka.schedule(b"m%d" % number, due(number), b"m%d" % number)
        rig.kafka.schedule(b"p%d" % number, due(number), b"p%d" % number, target="held")
    rig.clock.time += 20_000
    rig.kafka.controls = Controls(missed_per_second=100, paused_targets=("held",))
    wheel = rig.wheel().begin()
    for number in range(100):
        rig.kafka.schedule(b"k%d" % number, due(20_500 + 50 * number), b"k%d" % number, target="live")
    wheel.run_for(1_000)
    assert 90 <= len(rig.kafka.fired()) <= 126, "not held up by those that wait for another reason"
    wheel.run_for(5_500)
    assert rig.kafka.fired() == [b"m%d" % number for number in range(500)]
    assert max(map(lateness, rig.kafka.read("live"))) < 50
    wheel.claims.say(Controls(missed_per_second=250))
    wheel.run_for(1_000)
    assert 200 <= len(all_fired(rig, "held")) <= 314, "what was paused is missed too"
    wheel.run_for(2_000)
    assert all_fired(rig, "held") == [b"p%d" % number for number in range(500)]


def test_wheels_share_a_cap() -> None:
    rig = Rig(shards=4)
    for number in range(100):
        rig.kafka.schedule(b"%d" % number, due(100), b"v")
    wheel = rig.wheel().begin()
    wheel.claims.say(Controls(target_per_second={"target": 100}))
    wheel.run_for(1_100)
    assert 20 <= len(rig.kafka.fired()) <= 33


def test_a_target_that_does_not_answer_and_is_paused_waits_for_both() -> None:
    rig = Rig()
    rig.kafka.offline = {"target"}
    wheel = rig.wheel().begin()
    rig.kafka.schedule(b"a", due(100), b"once")
    wheel.run_for(3_000)
    wheel.claims.say(Controls(paused_targets=("target",)))
    wheel.run_for(100)
    rig.kafka.offline = set()
    wheel.run_for(60_000)
    assert rig.kafka.fired() == []
    wheel.claims.say(Controls())
    wheel.run_for(60_000)
    assert rig.kafka.fired() == [b"once"]


def test_what_is_in_doubt_while_it_drains_goes_out_once() -> None:
    rig = Rig(fires=20)
    for number in range(100):
        rig.kafka.schedule(b"%d" % number, due(100), b"%d" % number)
    wheel = rig.wheel().begin()
    wheel.claims.say(Controls(target_per_second={"target": 0}))
    wheel.run_for(2_000)
    wheel.claims.say(Controls(target_per_second={"target": 1_000}))
    for lose in (True, False, True, False):
        wheel.writer.lose_answer = lose
        wheel.writer.before_commit += [] if lose else [lambda: rig.kafka.epochs.update({0: 1_000})]  # fenced
        wheel.run_for(20)
    wheel.run_for(1_000)
    assert sorted(rig.kafka.fired(), key=lambda value: int(value or b"")) == [b"%d" % n for n in range(100)]


def forbid(target: str) -> str | None:
    return f"target {target} is not among TARGETS_ALLOW (target)" if target != "target" else None


def test_a_forbidden_target_ends_in_the_dead_letters() -> None:
    rig = Rig(forbidden=forbid)
    rig.kafka.schedule(b"paged", due(500), b"paged", target="secret")
    wheel = rig.wheel().begin()
    rig.kafka.schedule(b"live", due(500), b"live", target="secret")
    rig.kafka.schedule(b"a", due(500), b"good")
    wheel.run_for(1_000)
    assert rig.kafka.fired() == [b"good"]
    assert all_fired(rig, "secret", "history") == [b"good"]
    letters = [(r.value, dict(r.headers)) for r in rig.kafka.read("dead-letters")]
    assert {value for value, _ in letters} == {b"paged", b"live"}
    assert all(headers["almanac-reason"] == b"forbidden" for _, headers in letters)
    assert all(b"TARGETS_ALLOW" in (headers["almanac-detail"] or b"") for _, headers in letters)
    rig.wheel().begin().run_for(500)
    assert len(rig.kafka.read("dead-letters")) == 2, "acknowledged"


def test_the_report_counts() -> None:
    rig = Rig(grace=60_000)
    wheel = rig.wheel().begin()
    for number in range(10):
        rig.kafka.schedule(b"%d" % number, due(500), b"v", target="a" if number < 7 else "b")
    rig.kafka.cancel(b"9")
    rig.kafka.cancel(b"nothing")
    wheel.run_for(1_000)
    rig.kafka.schedule(b"late", due(-5_000), b"v", target="a")
    wheel.run_for(300)
    status = wheel.wheel.status()
    assert status["targets"] == {"a": 8, "b": 2}
    assert (status["planned"], status["cancelled"], status["missed_total"]) == (11, 1, 1)
    assert sum(status["transaction_ms"]) == status["transactions"] >= 2
    assert (status["lag"], status["open_ms"]) == (0, 0)


def ask(wheel: Turning, name: str, offset: int) -> None:
    wheel.claims.say(ports.Ask(name, TOPIC, 0, offset))


def answers(rig: Rig) -> list[bytes | None]:
    return [record.value for record in rig.kafka.read("shards")]


def test_an_ask_is_answered_when_its_offset_is_passed() -> None:
    rig = Rig()
    wheel = rig.wheel().begin()
    rig.kafka.schedule(b"a", due(5_000), b"v")
    ask(wheel, "next", 1)
    ask(wheel, "first", 0)
    wheel.claims.say(ports.Ask("of another wheel", TOPIC, 7, 0))
    wheel.run_for(300)
    assert answers(rig) == [b"first 1"]
    rig.kafka.cancel(b"a")
    wheel.run_for(300)
    assert answers(rig) == [b"first 1", b"next 2"]


@pytest.mark.parametrize("paused", [True, False])
def test_a_paused_wheel_answers_and_a_stalled_one_does_not(paused: bool) -> None:
    rig = Rig()
    wheel = rig.wheel().begin()
    wheel.run_for(300)
    if paused:
        wheel.claims.say(PAUSED)
    else:
        rig.kafka.log(TOPIC).stalled = True
    rig.kafka.cancel(b"a")
    ask(wheel, "x", 0)
    wheel.run_for(5_000)
    assert wheel.wheel.status()["state"] == "paused"
    assert bool(answers(rig)) is paused


def test_who_was_replaced_answers_nothing() -> None:
    rig = Rig()
    old = rig.wheel().begin()
    old.run_for(100)
    new = rig.wheel().begin()
    rig.kafka.cancel(b"a")
    ask(old, "x", 0)
    with pytest.raises(ports.Fenced):
        old.run_for(1_000)
    assert answers(rig) == []
    ask(new, "x", 0)
    new.run_for(300)
    assert answers(rig) == [b"x 1"]


def test_asks_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("almanac.answers.MOST", 5)
    rig = Rig()
    wheel = rig.wheel().begin()
    for number in range(9):
        ask(wheel, f"{number}", 0)
    wheel.run_for(100)
    rig.kafka.cancel(b"a")
    wheel.run_for(300)
    assert [(value or b"")[:1] for value in answers(rig)] == [b"4", b"5", b"6", b"7", b"8"]
