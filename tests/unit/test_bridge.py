"""The bridge: each request once, whatever happens in between; where it begins; what it makes of bad ones."""

import base64
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from duties import BRIDGE, LETTERS, REQUESTS, SCHEDULES, Crash, Fused, FusedWriter, Serving, World
from hypothesis import given, settings
from hypothesis import strategies as st
from memory import Slot

from almanac import bridge, formats, ports, words
from almanac.formats import etf1, timers
from almanac.record import Headers, Record, first

CASES = json.loads((Path(__file__).parents[1] / "vectors" / "timers.json").read_text())


def unpacked(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def record(case: dict[str, Any]) -> Record:
    of = case["record"]
    headers: Headers = [(name, unpacked(value)) for name, value in of["headers"]]
    place = (of["topic"], of["partition"], of["offset"], of["timestamp_ms"])
    return Record(*place, unpacked(of["key"]), unpacked(of["value"]), headers)


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_vector(case: dict[str, Any]) -> None:
    wanted, asked = case["expect"], record(case)
    if wanted["kind"] == "invalid":
        with pytest.raises(formats.Invalid, match=wanted["reason_mentions"]):
            timers.read(asked)
        return
    read, target = timers.read(asked), wanted["target"]
    assert (read.due, read.target, read.partition) == (wanted["due_ms"], target["topic"], -1)
    assert (read.key, read.value, read.headers) == (unpacked(target["key"]), unpacked(target["value"]), [])
    # and what a wheel reads of the bridged one
    out = bridge.schedule(asked, "schedules", b"timer-request/1/", asked.timestamp)
    bridged = Record(out.topic, 0, 7, out.timestamp, out.key, out.value, out.headers)
    said = words.read(bridged, formats.named("auto"), "other-id")
    assert isinstance(said, words.Word)
    assert said.schedule[:3] == (wanted["due_ms"], target["topic"], unpacked(target["key"]))
    assert said.schedule.value == unpacked(target["value"])
    assert (out.key, out.timestamp) == (b"timer-request/1/42", asked.timestamp)


def field(number: int, content: bytes) -> bytes:
    """A field of bytes as protobuf's encoding is specified, without its library."""
    length, size = len(content), b""
    while length > 127:
        size += bytes([length & 127 | 128])
        length >>= 7
    return bytes([number << 3 | 2]) + size + bytes([length]) + content


@given(
    st.integers(0, 253_402_300_799),
    st.text(),
    st.binary(max_size=300),
    st.from_regex(r"[a-z0-9._-]{3,20}", fullmatch=True),
)
def test_what_another_encoder_wrote_is_read(second: int, key: str, value: bytes, topic: str) -> None:
    future = field(1, topic.encode()) + field(2, key.encode()) + field(3, value)
    asked = Record("timer-request", 0, 1, 2, b"%d" % second, future, [])
    read = timers.read(asked)
    assert (read.due, read.target, read.key, read.value) == (1000 * second, topic, key.encode(), value)


@given(st.binary(max_size=20) | st.none(), st.binary(max_size=60) | st.none())
def test_whatever_stands_in_a_request_it_is_bridged_or_a_dead_letter(key: bytes | None, value: bytes | None) -> None:
    world = World(partitions=1)
    serving = world.bridge().begin()
    world.kafka.write(REQUESTS, key, value, [("\ufffd", None)] if key == b"1" else [])
    world.request(b"next")
    serving.steps(3)
    assert len(world.schedules()) + len(world.letters()) == 2
    assert world.schedules()[-1].value == b"next"


# Exactly once

MOVES = (
    "request",
    "request",
    "request",
    "bad",
    "step",
    "step",
    "step",
    "crash",
    "crash",
    "takeover",
    "lose",
    "grow",
    "wait",
)
moves = st.lists(st.tuples(st.sampled_from(MOVES), st.integers(0, 3), st.integers(0, 40)), max_size=40)


class Story:
    """What people ask for while instances come and go."""

    def __init__(self) -> None:
        self.world = World(requests=2)
        self.asked: dict[bytes, tuple[str, bool]] = {}  # payload -> topic it must reach, and whether it must
        self.old: list[Serving] = []
        self.now: Serving | None = None

    def alive(self, owner: int | None = None) -> Serving | None:
        made = self.world.bridge(owner)
        self.now = made
        try:
            return made.begin()
        except Crash:
            self.died()
            return None

    def died(self) -> None:
        """Spark runs the task again, under the same owner."""
        self.world.fuse.left = None
        assert self.now is not None
        self.alive(self.now.post.owner)

    def ask(self, good: bool, partition: int) -> None:
        source = list(self.world.sources)[partition % len(self.world.sources)]
        payload = b"%d" % len(self.asked)
        # before its very first commit it has promised nothing
        self.asked[payload] = (SCHEDULES if good else LETTERS, bool(self.world.kafka.marks))
        if good:
            self.world.request(payload, source[1])
        else:
            self.world.kafka.write(REQUESTS, b"soon", payload, partition=source[1])

    def move(self, kind: str, number: int, length: int) -> None:
        if kind in ("request", "bad"):
            self.ask(kind == "request", number)
        elif kind == "crash":
            self.world.fuse.left = length
        elif kind == "takeover" and self.now is not None:
            self.old.append(self.now)
            self.alive()
        elif kind == "lose" and self.now is not None:
            self.now.writer.lose_answer = True
        elif kind == "grow" and len(self.world.sources) < 4:
            self.world.sources[REQUESTS, len(self.world.sources)] = "id-1"
        elif kind == "wait":
            self.world.clock.time += 400 * length
        elif kind == "step":
            self.step()

    def step(self) -> None:
        fuse, self.world.fuse.left = self.world.fuse.left, None
        for old in list(self.old):  # those whose process goes on though another has taken over
            try:
                old.duty.step()
            except ports.Unsettled:
                assert old.duty.take_over() is not None, "a replaced one went on"
                self.old.remove(old)
        self.world.fuse.left = fuse
        try:
            if self.now is None:
                self.alive()
            else:
                self.now.step()
        except Crash:
            self.died()

    def finish(self) -> None:
        self.world.fuse.left = None
        for _ in range(200):
            self.world.clock.time += 1_000
            self.step()


@settings(max_examples=250, deadline=None)
@given(moves)
def test_each_request_once_in_any_interleaving(plan: list[tuple[str, int, int]]) -> None:
    story = Story()
    for move in plan:
        story.move(*move)
    story.finish()
    came = Counter((r.value, SCHEDULES) for r in story.world.schedules())
    came += Counter((r.value, LETTERS) for r in story.world.letters())
    assert set(came.values()) <= {1}, "twice"
    for payload, (topic, promised) in story.asked.items():
        assert (payload, topic) in came or not promised, "lost"
    places = [first(r.headers)[etf1.REQUEST] for r in story.world.schedules()]
    assert places == [r.key for r in story.world.schedules()]


@pytest.mark.parametrize("length", range(60))
def test_a_crash_at_every_single_call(length: int) -> None:
    world = World(requests=2)
    serving = world.bridge().begin()
    for number in range(7):
        world.request(b"%d" % number, number % 2)
    world.kafka.write(REQUESTS, b"soon", b"?")
    world.fuse.left = length
    try:
        serving.steps(8)
    except Crash:
        world.fuse.left = None
        serving = world.bridge(serving.post.owner).begin()
    world.fuse.left = None
    serving.steps(8)
    assert sorted(r.value or b"" for r in world.schedules()) == [b"%d" % number for number in range(7)]
    assert [r.value for r in world.letters()] == [b"?"]
    ends = {source: world.kafka.log(*source).end for source in world.sources}
    assert {source: mark.offset for source, mark in world.kafka.marks.items()} == ends


# Where it begins


def test_the_very_first_time_it_begins_at_the_end_and_never_misses_what_comes_after() -> None:
    world = World()
    world.request(b"before")
    world.bridge().begin()
    world.request(b"while it is down")
    world.bridge().begin().steps(3)
    assert [r.value for r in world.schedules()] == [b"while it is down"]


def test_or_at_the_beginning_if_told_so() -> None:
    world = World(earliest=True)
    world.request(b"before")
    world.bridge().begin().steps(3)
    assert [r.value for r in world.schedules()] == [b"before"]


def test_offsets_that_kafka_has_forgotten_are_remembered() -> None:
    world = World()
    serving = world.bridge().begin()
    world.request(b"one")
    serving.steps(3).work.end()
    world.kafka.marks.clear()  # offsets.retention.minutes
    world.request(b"two")
    world.bridge().begin().steps(3)
    assert [r.value for r in world.schedules()] == [b"one", b"two"]


def test_the_shard_topic_may_be_lost_before_the_first_request_comes() -> None:
    world = World()
    world.bridge().begin()
    world.memory = None
    world.request(b"while it is down")
    world.bridge().begin().steps(3)
    assert [r.value for r in world.schedules()] == [b"while it is down"]


def test_offsets_that_people_have_set_are_heeded() -> None:
    world = World(partitions=1)
    serving = world.bridge().begin()
    world.request(b"one")
    serving.steps(3)
    world.kafka.marks[REQUESTS, 0] = ports.Mark(0, "")  # kafka-consumer-groups --reset-offsets
    world.bridge().begin().steps(3)
    assert [r.value for r in world.schedules()] == [b"one", b"one"]


def test_a_topic_that_was_made_anew_is_read_from_its_beginning_with_ids_of_its_own() -> None:
    world = World(partitions=1)
    serving = world.bridge().begin()
    world.request(b"one")
    serving.steps(3)
    del world.kafka.logs[REQUESTS, 0]
    world.sources[REQUESTS, 0] = "id-2"  # the offset of the old one is still there, or comes late
    world.request(b"two")
    for _ in range(2):
        serving = world.bridge().begin().steps(3)
    assert [(r.key, r.value) for r in world.schedules()] == [
        (b"timer-request/0/0", b"one"),
        (b"timer-request/id-2/0/0", b"two"),
    ]
    del world.kafka.logs[REQUESTS, 0]
    world.sources[REQUESTS, 0] = "id-3"
    world.request(b"three")
    world.clock.time += bridge.LOOK
    serving.steps(3)  # it notices while it runs
    assert world.schedules()[-1].key == b"timer-request/id-3/0/0"


def test_a_topic_that_is_added_later_begins_at_its_end_and_one_that_comes_back_where_it_was() -> None:
    world = World(partitions=1)
    serving = world.bridge().begin()
    world.request(b"one")
    serving.steps(3).work.end()
    known = dict(world.sources)
    world.sources = {("other", 0): "id-9"}
    world.kafka.write("other", b"1", b"never asked for")
    world.bridge().begin().steps(3)
    world.kafka.marks.clear()
    world.sources = {**known, **world.sources}
    world.request(b"two")
    world.bridge().begin().steps(3)
    assert [r.value for r in world.schedules()] == [b"one", b"two"]
    assert not world.letters()


def test_what_was_deleted_before_it_was_read_is_counted() -> None:
    world = World(partitions=1)
    world.bridge().begin()
    for number in range(5):
        world.request(b"%d" % number)
    world.low = 3
    serving = world.bridge().begin().steps(3)
    assert [r.value for r in world.schedules()] == [b"3", b"4"]
    assert serving.duty.status()["lost"] == 3


def test_markers_of_a_requesters_transactions_are_read_too() -> None:
    world = World(partitions=1)
    serving = world.bridge().begin()
    world.request(b"one")
    world.kafka.log(REQUESTS).append(Slot(None))
    serving.steps(3)
    world.clock.time += bridge.LOOK
    serving.steps(2)
    assert serving.duty.status()["behind"] == 0
    assert world.kafka.marks[REQUESTS, 0].offset == 2


# What it makes of them


def test_a_requester_may_choose_the_id() -> None:
    world = World()
    serving = world.bridge().begin()
    world.request(b"mine", headers=[(timers.ID, b"call-7")])
    world.request(b"no id", headers=[(timers.ID, b"")])
    serving.steps(3)
    assert [r.key for r in world.schedules()] == [b"call-7"]
    (letter,) = world.letters()
    assert first(letter.headers)["almanac-reason"] == b"invalid"
    assert b"scheduler-id" in (first(letter.headers)["almanac-detail"] or b"")


def test_a_second_that_has_passed_is_never_outdated_and_the_time_stamp_stays() -> None:
    world = World()
    serving = world.bridge().begin()
    world.request(b"late", second=1)
    asked = int(world.clock.wall())
    world.clock.time += 5_000
    serving.steps(3)
    (bridged,) = world.schedules()
    assert bridged.timestamp == asked
    said = words.read(bridged, formats.named("etf1"), "id")
    assert isinstance(said, words.Word)
    assert said.schedule.due == 1_000
    assert said.schedule.grace is not None, "it is native"
    assert said.schedule.due > said.record.timestamp - said.schedule.grace, "and yet not outdated"


def test_a_time_stamp_of_the_future_is_not_kept_as_the_broker_would_refuse_it() -> None:
    asked = record(CASES[0])
    assert bridge.schedule(asked, "schedules", b"", asked.timestamp - 9).timestamp == asked.timestamp - 9
    assert bridge.schedule(asked._replace(timestamp=-1), "schedules", b"", 9).timestamp == 0


@pytest.mark.parametrize(
    ("limits", "letter"),
    [
        pytest.param({SCHEDULES: 100}, b"undeliverable", id="a dead letter"),
        pytest.param({SCHEDULES: 100, LETTERS: 150}, b"undeliverable", id="a stub of one"),
        pytest.param({SCHEDULES: 100, LETTERS: 5}, None, id="nothing fits"),
    ],
)
def test_one_that_does_not_fit_holds_up_no_other(limits: dict[str, int], letter: bytes | None) -> None:
    world = World(partitions=1, requests=100)
    world.kafka.limits = limits
    serving = world.bridge().begin()
    for number in range(6):
        world.request(b"%d" % number if number != 3 else b"x" * 300)
    serving.steps(30)
    assert [r.value for r in world.schedules()] == [b"0", b"1", b"2", b"4", b"5"]
    assert [first(r.headers)["almanac-reason"] for r in world.letters()] == ([letter] if letter else [])
    assert [r.value is None for r in world.letters()] == ([LETTERS in limits] if letter else [])


def test_headers_count_in_what_a_transaction_takes() -> None:
    world = World(partitions=1, requests=100, bytes=10_000)
    serving = world.bridge().begin()
    for number in range(4):
        world.request(b"%d" % number, headers=[("large", b"x" * 6_000)])
    ends: list[int] = []
    for _ in range(6):
        serving.step()
        ends.append(len(world.schedules()))
    assert ends[:2] == [1, 2]
    assert ends[-1] == 4


def test_it_tells_how_it_is_while_kafka_goes_away_over_a_new_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(partitions=1)
    serving = world.bridge().begin()
    world.sources[REQUESTS, 1] = "id-1"
    world.clock.time += bridge.LOOK
    look, looks = serving.work._inbox.look, []

    def once() -> Any:
        looks.append(1)
        if len(looks) == 2:
            raise ports.Unavailable("away")
        return look()

    monkeypatch.setattr(serving.work, "_inbox", Fused(serving.work._inbox, world.fuse))
    monkeypatch.setattr(serving.work._inbox, "look", once, raising=False)
    with pytest.raises(ports.Unavailable):
        serving.duty.step()
    assert serving.duty.status()["behind"] == 0


def test_trouble_with_our_own_topic_is_waited_for() -> None:
    world = World()
    serving = world.bridge().begin()
    world.request(b"one")
    world.kafka.unknown.add(SCHEDULES)
    with pytest.raises(ports.Unavailable, match="unknown topic"):
        serving.duty.step()
    world.kafka.unknown.clear()
    assert serving.duty.take_over() is None
    serving.steps(3)
    assert [r.value for r in world.schedules()] == [b"one"]


# The duty around it


def test_it_runs_until_it_is_told_to_stop_or_replaced() -> None:
    world = World()
    serving = world.bridge()
    serving.post.say(ports.Stop())
    assert serving.duty.run() == "stopped"
    assert serving.post.reports[-1]["state"] == "stopped"
    later = world.bridge()
    assert serving.duty.take_over() is not None
    again = world.bridge(serving.post.owner)
    assert again.duty.run() == "replaced", "a task that Spark runs again does not fence who replaced it"
    assert later.begin().duty.state == "bridging"
    assert world.kafka.epochs[BRIDGE] == 2


def test_one_that_is_replaced_while_it_fences_leaves_the_work_to_the_later(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    serving, renew = world.bridge(), FusedWriter.renew

    def slow(writer: FusedWriter) -> None:
        world.bridge()  # claims just now
        renew(writer)

    monkeypatch.setattr(FusedWriter, "renew", slow)
    assert serving.duty.run() == "replaced"
    assert not world.kafka.marks


def test_it_waits_while_kafka_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    serving = world.bridge()
    world.kafka.away = True
    seen: list[str] = []

    def back(_: dict[str, Any]) -> None:
        seen.append(serving.duty.state)
        world.kafka.away = False
        if "bridging" in seen:
            serving.post.say(ports.Stop())

    monkeypatch.setattr(serving.post, "report", back)
    assert serving.duty.run() == "stopped"
    assert seen[0] == "waiting"
    assert "bridging" in seen
