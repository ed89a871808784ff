"""How far the bridge has come: marks, ends and memory, whatever happens between them."""

from collections import Counter
from typing import Any

import pytest
from duties import REQUESTS, SCHEDULES, Crash, Serving, World

from almanac import bridge, ports


def values(world: World) -> list[bytes | None]:
    return [record.value for record in world.schedules()]


def look(world: World, serving: Serving) -> None:
    """Lets so much time pass that it looks again, and does."""
    world.clock.time += bridge.LOOK
    serving.duty.step()


@pytest.mark.parametrize("length", range(0, 120, 3))
def test_a_crash_while_a_culprit_is_looked_for(length: int) -> None:
    world = World(partitions=1, requests=100)
    world.kafka.limits = {SCHEDULES: 100}
    serving = world.bridge().begin()
    for n in range(8):
        world.request(b"%d" % n if n != 5 else b"x" * 300)
    world.fuse.left = length
    try:
        serving.steps(12)
    except Crash:
        world.fuse.left = None
        serving = world.bridge(serving.post.owner).begin()
    world.fuse.left = None
    serving.steps(30)
    assert Counter(values(world)) == Counter(b"%d" % n for n in range(8) if n != 5)
    assert len(world.letters()) == 1


def test_marks_go_along_when_all_is_written_once_more() -> None:
    """What was refused together may go through watched: with how far that is."""
    world = World(partitions=1)
    serving = world.bridge().begin()
    world.request(b"one")
    commit, refused = serving.writer.commit, list[int]()

    def once(marks: Any = None) -> None:
        if not refused:
            refused.append(1)
            raise ports.Refused("a gap of before")
        commit(marks)

    serving.writer.commit = once  # type: ignore[method-assign]
    serving.steps(2)
    world.bridge().begin().steps(3)
    assert values(world) == [b"one"]


def test_an_end_is_no_mark_while_requests_before_it_wait() -> None:
    world = World(partitions=1, requests=2)
    serving = world.bridge().begin()
    for n in range(5):
        world.request(b"%d" % n)
    serving.step()
    serving.step()  # the end is known, some still wait
    world.clock.time += bridge.LOOK
    world.kafka.offline.add(SCHEDULES)
    with pytest.raises(ports.Unavailable):
        serving.duty.step()
    world.kafka.offline.clear()
    world.bridge().begin().steps(6)
    assert values(world) == [b"%d" % n for n in range(5)]


def test_an_old_end_moves_no_mark_back() -> None:
    world = World(partitions=1)
    serving = world.bridge().begin()
    serving.step()  # the end at 0
    for n in range(4):
        world.request(b"%d" % n)
    serving.step()  # some are passed on, and there is no new end yet
    serving.work._look_again()
    world.bridge().begin().steps(4)
    assert values(world) == [b"%d" % n for n in range(4)]


def test_a_topic_made_anew_has_no_old_end() -> None:
    world = World(partitions=1)
    serving = world.bridge().begin()
    for n in range(5):
        world.request(b"%d" % n)
    serving.steps(4)
    del world.kafka.logs[REQUESTS, 0]
    world.sources[REQUESTS, 0] = "id-2"
    world.kafka.marks.clear()
    for n in range(2):
        world.request(b"new%d" % n)
    serving.work._look_again()
    serving.work._look_again()
    world.bridge().begin().steps(4)
    assert values(world)[-2:] == [b"new0", b"new1"]


def test_what_was_passed_on_is_remembered_within_a_second() -> None:
    """It is killed, and stays away for so long that Kafka forgets how far the group was."""
    world = World(partitions=1)
    serving = world.bridge().begin()
    world.request(b"one")
    serving.steps(3)
    world.clock.time += bridge.REMEMBER
    serving.duty.step()
    world.kafka.marks.clear()
    world.bridge().begin().steps(3)
    assert values(world) == [b"one"]


@pytest.mark.parametrize("remembered", [True, False])
def test_a_partition_that_was_added_while_it_was_down_is_read_from_its_beginning(remembered: bool) -> None:
    """Also if it was killed after its first commit, before it could remember anything; or if the memory is lost."""
    world = World(partitions=1)
    world.bridge().begin()
    if not remembered:
        world.memory = None
    world.sources[REQUESTS, 1] = "id-1"
    world.request(b"one", partition=1)
    world.bridge().begin().steps(3)
    assert values(world) == [b"one"]


def test_a_log_that_ends_before_the_mark_goes_on_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    world = World(partitions=1)
    serving = world.bridge().begin()
    for n in range(5):
        world.request(b"%d" % n)
    serving.steps(4)
    log = world.kafka.log(REQUESTS, 0)
    for offset in (3, 4):  # an unclean election
        del log.slots[offset]
    log.end = 3
    serving = world.bridge().begin()
    assert "Kafka has lost what it acknowledged" in caplog.text
    for n in range(2):
        world.request(b"new%d" % n)
    serving.steps(4)
    assert values(world)[5:] == [b"new0", b"new1"]


def test_offsets_that_are_refused_are_waited_for() -> None:
    world = World()
    serving = world.bridge()
    fault = ports.Fault("other", "GROUP_AUTHORIZATION_FAILED")
    serving.writer.attempt = lambda records, marks=None: {-1: fault}  # type: ignore[method-assign]
    serving.post.start()
    with pytest.raises(ports.Unavailable, match="GROUP"):
        serving.duty.take_over()


def test_time_stamps_stay_though_the_wall_clock_jumped_ahead() -> None:
    world = World(partitions=1)
    serving = world.bridge().begin()
    world.clock.skew += 3_600_000
    world.request(b"one")
    (asked,) = world.kafka.read(REQUESTS)
    serving.steps(3)
    assert world.schedules()[0].timestamp == asked.timestamp
