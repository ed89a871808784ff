"""The oscillator: each second once, in order, none left out, none early."""

import pytest
from duties import TICKS, Crash, Serving, World
from hypothesis import given, settings
from hypothesis import strategies as st

from almanac import oscillator, ports

MOVES = ("wait", "wait", "step", "step", "step", "crash", "takeover", "lose")
moves = st.lists(st.tuples(st.sampled_from(MOVES), st.integers(0, 30)), max_size=60)


def seconds(world: World) -> list[int]:
    return [int(record.key or b"") for record in world.ticks()]


def flawless(world: World) -> None:
    found = seconds(world)
    assert found == list(range(found[0], found[0] + len(found))), "twice, left out, or out of order"
    assert {record.value for record in world.ticks()} == {b"1"}
    assert all(record.timestamp >= 1000 * int(record.key or b"") for record in world.ticks()), "early"
    assert found[-1] >= int(world.clock.wall()) // 1000 - 1, "behind"


class Story:
    """Several instances, any of which may die or be replaced at any moment."""

    def __init__(self) -> None:
        self.world = World()
        self.now = self.world.oscillator().begin()
        self.old: list[Serving] = []

    def move(self, kind: str, number: int) -> None:
        if kind == "wait":
            self.world.clock.time += 200 * number
        elif kind == "crash":
            self.world.fuse.left = number // 2
        elif kind == "takeover":
            self.world.fuse.left = None
            self.old.append(self.now)
            self.now = self.world.oscillator().begin()
        elif kind == "lose":
            self.now.writer.lose_answer = True
        else:
            self.step()

    def step(self) -> None:
        fuse, self.world.fuse.left = self.world.fuse.left, None
        for old in list(self.old):
            try:
                old.duty.step()
            except ports.Unsettled:
                assert old.duty.take_over() is not None
                self.old.remove(old)
        self.world.fuse.left = fuse
        try:
            self.now.step()
        except Crash:
            self.world.fuse.left = None
            self.now = self.world.oscillator(self.now.post.owner).begin()


@settings(max_examples=500, deadline=None)
@given(moves)
def test_each_second_once_in_any_interleaving(plan: list[tuple[str, int]]) -> None:
    story = Story()
    for move in plan:
        story.move(*move)
    story.world.fuse.left = None
    story.world.clock.time += 3_000
    for _ in range(5):
        story.step()
    flawless(story.world)


def test_after_a_pause_no_second_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oscillator, "MOST", 40)  # a transaction
    world = World()
    world.oscillator().begin().step()
    world.clock.time += 100_000
    serving = world.oscillator().begin()
    assert serving.duty.status()["behind"] == 100
    serving.steps(5)
    assert len(seconds(world)) == 101
    flawless(world)
    assert serving.duty.status()["behind"] == 0


def test_it_goes_on_after_a_peers_last_second_also_if_that_lies_ahead() -> None:
    world = World()
    now = int(world.clock.wall()) // 1000
    world.kafka.write(TICKS, b"%d" % (now + 2), b"1")
    serving = world.oscillator().begin()
    world.clock.time += 2_500
    serving.steps(3)
    assert seconds(world) == [now + 2]
    world.clock.time += 1_000
    serving.steps(3)
    assert seconds(world) == [now + 2, now + 3]


def test_it_waits_until_the_second_has_begun() -> None:
    world = World()
    serving = world.oscillator().begin().step()
    for _ in range(40):
        serving.step()
    flawless(world)


@pytest.mark.rule(7)
def test_a_clock_in_doubt_pauses_it() -> None:
    world = World()
    serving = world.oscillator().begin().step()
    world.clock.skew = 10_000
    world.clock.time += 1_000
    serving.steps(3)
    assert serving.duty.state == "paused"
    assert len(seconds(world)) == 1
    world.clock.skew = 0
    world.clock.time += 300
    serving.steps(3)
    assert serving.duty.state == "ticking"
    assert len(seconds(world)) == 2


def test_trouble_with_the_topic_is_waited_for() -> None:
    world = World()
    serving = world.oscillator().begin()
    world.kafka.unknown.add(TICKS)
    with pytest.raises(ports.Unavailable, match=TICKS):
        serving.duty.step()
