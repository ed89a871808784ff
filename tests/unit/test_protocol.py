"""Rules 1 to 5 and 11 for any interleaving: the real wheel on a log in memory, held to the statement of the protocol.

Users schedule, update, cancel and write garbage; wheels fire, crash, are taken over; commits lose their answers; pages
turn from a book of any age; the log is compacted. In the end each schedule's last version has fired exactly once or was
cancelled, nothing fired twice, nothing fired early, and what was said in time was heeded. People pause and cap meanwhile;
and who cancels and asks whether that is certain (`asks`) is never told what turns out to be wrong.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from memory import TOPIC, TOPIC_ID, Rig, Turning, book

from almanac import asks, ports, words
from almanac.controls import Controls
from almanac.ledger import Entry

KEYS = (b"a", b"b")
KINDS = ("schedule", "schedule", "schedule", "cancel", "garbage", "step", "step", "step", "step", "wait", "crash",
         "takeover", "turn", "lose", "race", "race-cancel", "compact", "control", "ask", "race-ask")  # fmt: skip
TOLD = (Controls(), Controls(paused=True), Controls(paused_targets=("target",)), Controls(missed_per_second=20),
        Controls(target_per_second={"target": 10}), Controls(target_per_second={"target": 0}))  # fmt: skip

moves = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from(KEYS), st.integers(0, 400), st.floats(0, 1)), max_size=40
)


@dataclass
class Asked:
    """Somebody who cancelled, and wants to know."""

    ask: ports.Ask
    key: bytes
    end: int | None = None  # where the log ended when the answer came
    outcome: str | None = None  # what was made of it
    payload: bytes | None = None  # of the word that the cancel met


@dataclass
class World:
    """The log, the wheels, and what users have said."""

    rig: Rig = field(default_factory=lambda: Rig(ahead=100, keep=300))
    said: dict[bytes, list[tuple[float, str, bytes, int]]] = field(default_factory=dict)  # time, what, payload, due
    number: int = 0
    olds: list[Turning] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.wheel = self.rig.wheel(self.rig.page(horizon=300)).begin()
        self.wheel.writer.after_commit.append(self.hear)  # at once, before whoever answered does anything else

    def schedule(self, key: bytes, ms: int) -> None:
        self.number += 1
        due, payload = int(self.rig.clock.time) + 3 * ms, b"%d" % self.number  # some lie far behind the horizon
        self.rig.kafka.schedule(key, due, payload)
        self.said.setdefault(key, []).append((self.rig.clock.time, "schedule", payload, due))

    def cancel(self, key: bytes) -> int:
        offset = self.rig.kafka.cancel(key)
        self.said.setdefault(key, []).append((self.rig.clock.time, "cancel", b"", 0))
        return offset

    def ask(self, key: bytes) -> None:
        """Cancels, and asks whoever may be the owner, or think so."""
        self.asked.append(Asked(ports.Ask(f"{len(self.asked)}", TOPIC, 0, self.cancel(key)), key))
        for wheel in (self.wheel, *self.olds):
            wheel.claims.say(self.asked[-1].ask)

    def hear(self) -> None:
        """What the answers that have come tell those who asked: as `asks` says, from the log alone."""
        log = self.rig.kafka.log(TOPIC)
        given = {(record.value or b"").split()[0].decode() for record in self.rig.kafka.read("shards")}
        for asked in self.asked:
            if asked.outcome is None and asked.ask.id in given:
                asked.end = log.end if asked.end is None else asked.end
                if log.stable >= asked.end:  # a reader of committed records has come that far
                    records = [r for r in log.committed() if r.key == asked.key and r.offset < asked.end]
                    said = [(r.offset, words.read(r, self.rig.form, TOPIC_ID)) for r in records]
                    asked.outcome = asks.outcome(said, asked.ask.offset)
                    before = [w for _, w in said if isinstance(w, words.Word) and w.version < asked.ask.offset]
                    asked.payload = max(before, key=lambda w: w.version).record.value if before else None

    def move(self, kind: str, key: bytes, ms: int, part: float) -> None:
        log = self.rig.kafka.log(TOPIC)
        if kind == "schedule":
            self.schedule(key, ms)
        elif kind == "cancel":
            self.cancel(key)
        elif kind == "garbage":
            self.rig.kafka.write(TOPIC, key, b"?", [("scheduler-epoch", b"soon")])
        elif kind == "step":
            self.step()
        elif kind == "wait":
            self.rig.clock.time += ms / 4
        elif kind == "crash":  # the process dies: nothing of it is left but an open transaction
            self.wheel = self.begin(part, self.wheel.claims.owner)
        elif kind == "takeover":
            self.olds.append(self.wheel)
            self.wheel = self.begin(part)
        elif kind == "turn":
            self.wheel.claims.say(ports.Turn(self.rig.page({(TOPIC, 0): self.oldest(part)}, horizon=300)))
        elif kind == "lose":
            self.wheel.writer.lose_answer = True
        elif kind == "race":  # somebody writes between the decision and our record, or between that and the commit
            hooks = self.wheel.writer.before_commit if part < 0.3 else self.wheel.writer.before_ours
            hooks.append(lambda: self.schedule(key, ms))
        elif kind == "race-cancel":
            hooks = self.wheel.writer.before_commit if part < 0.3 else self.wheel.writer.before_ours
            hooks.append(lambda: self.cancel(key))
        elif kind == "control":
            self.wheel.claims.say(TOLD[ms % len(TOLD)])
        elif kind == "ask":
            self.ask(key)
        elif kind == "race-ask":
            hooks = self.wheel.writer.before_commit if part < 0.3 else self.wheel.writer.before_ours
            hooks.append(lambda: self.ask(key))
        elif (
            kind == "race-old"
        ):  # who was replaced reads the cancel, and would answer, while the owner is about to fire
            self.wheel.writer.before_ours.append(lambda: (self.ask(key), self.step_olds(), self.step_olds()))
        elif kind == "compact" and self.settled() and all(asked.outcome for asked in self.asked):
            before = self.pending()  # the cleaner gives who asks a day (min.compaction.lag.ms)
            log.compact()
            assert self.pending() == before, "the cleaner changed the truth"
        self.hear()

    def oldest(self, part: float) -> int:
        return int(self.rig.kafka.log(TOPIC).stable * part)

    def begin(self, part: float, owner: int | None = None) -> Turning:
        page = self.rig.page({(TOPIC, 0): self.oldest(part)}, horizon=300)
        turning = self.rig.wheel(page, owner=owner).begin()
        turning.writer.after_commit.append(self.hear)
        for asked in self.asked:  # who is not answered asks again
            if asked.outcome is None:
                turning.claims.say(asked.ask)
        return turning

    def step(self) -> None:
        self.step_olds()
        self.wheel.step_or_recover()
        self.hear()

    def step_olds(self) -> None:
        for old in list(self.olds):
            try:
                old.wheel.step()
            except ports.Unsettled:
                assert old.wheel.take_over() is not None, "a replaced wheel went on"
                self.olds.remove(old)
            self.hear()

    def settled(self) -> bool:
        """Has the wheel read everything, and repeated and disposed of what it must? (min.compaction.lag's part.)"""
        rows = book(self.rig.kafka.log(TOPIC).committed(), self.rig.form)
        return (
            not any(row["mark"] for row in rows) and self.rig.kafka.log(TOPIC).stable == self.rig.kafka.log(TOPIC).end
        )

    def pending(self) -> dict[bytes, tuple[int, bytes | None]]:
        rows = book(self.rig.kafka.log(TOPIC).committed(), self.rig.form)
        return {row["key"]: (row["version"], row["value"]) for row in rows if row["pending"]}

    def check_answers(self) -> None:
        fired = self.rig.kafka.fired()
        for asked in self.asked:
            assert asked.outcome is not None, "not answered"
            if asked.outcome != "not-found":
                assert (asked.outcome == "already-fired") == (asked.payload in fired), f"{asked} was wrong"

    def finish(self) -> None:
        """Nothing is held back; pages turn in their time, each a step further, until nothing is left."""
        self.wheel.claims.say(Controls())
        for _ in range(60):
            self.wheel.writer.before_commit.clear()
            self.wheel.writer.before_ours.clear()
            if not self.pending() and self.settled() and all(asked.outcome for asked in self.asked):
                break
            self.wheel.claims.say(ports.Turn(self.rig.page(horizon=300)))
            end = self.rig.clock.time + 150
            while self.rig.clock.time < end:
                before = self.rig.clock.time
                self.step()
                self.rig.clock.time += 1 if self.rig.clock.time == before else 0


@pytest.fixture(autouse=True, params=[2, 65_536])
def _generations(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr("almanac.ledger.GENERATION", request.param)


_CHECKED = settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@_CHECKED
@given(moves)
def test_any_interleaving_fires_each_last_word_once(plan: list[tuple[str, bytes, int, float]]) -> None:
    world = World()
    for move in plan:
        world.move(*move)
    world.finish()

    fired = world.rig.kafka.fired()
    assert len(fired) == len(set(fired)), "fired twice"
    stamps = {record.value: record.timestamp for record in world.rig.kafka.read("target")}
    for words in world.said.values():
        _, what, payload, _ = words[-1]
        if what == "schedule":
            assert payload in fired, "the last word was lost"
        for _, what, payload, due in words:
            if what == "schedule" and payload in stamps:
                assert stamps[payload] >= due, "fired early"
    world.check_answers()
    assert world.pending() == {}, "something is left"
    assert world.settled(), "the log does not end in the truth"


CLOSE = ("schedule", "schedule", "ask", "ask", "race-ask", "race-old", "race-old", "old", "old", "new", "new", "new", "wait", "takeover", "crash",
         "lose")  # fmt: skip


@_CHECKED
@given(st.lists(st.tuples(st.sampled_from(CLOSE), st.sampled_from(KEYS), st.integers(0, 60)), max_size=40))
def test_an_answer_is_never_wrong_however_close_it_is(plan: list[tuple[str, bytes, int]]) -> None:
    # Due times, cancels and takeovers within milliseconds; the replaced wheel and its successor turn on their own.
    world = World()
    for kind, key, ms in plan:
        if kind == "old":
            world.step_olds()
        elif kind == "new":
            world.wheel.step_or_recover()
        elif kind == "schedule":
            world.schedule(key, ms // 20)
        else:
            world.move(kind, key, ms, 1.0)
        world.hear()
    world.finish()
    world.check_answers()


@_CHECKED
@given(moves, st.floats(0, 1))
def test_the_books_fold_equals_the_wheels_view(plan: list[tuple[str, bytes, int, float]], part: float) -> None:
    world = World()
    for move in plan:
        world.move(*move)
    expected = world.pending()
    # a wheel that begins now from a page of any age sees what a book of the whole log says
    page = world.rig.page({(TOPIC, 0): world.oldest(part)}, horizon=1 << 40)
    fresh = world.rig.wheel(page).begin()
    ledger = next(iter(fresh.wheel.ledgers.values()))
    view = {entry.record.key: (entry.version, entry.record.value) for entry in _living(fresh)}
    for key in KEYS:
        state = ledger.state(key)
        if isinstance(state, int) and state >= 0:
            view[key] = (state, expected.get(key, (0, b"?"))[1])  # due after the horizon: only its version is kept
    assert view == expected


def _living(turning: Turning) -> list[Entry]:
    lane = turning.wheel._lineup.live
    memory = lane.agenda.take(1 << 62, 1 << 62)
    page = lane.cursor.take(1 << 62, 1 << 62)
    return [entry for entry in (*memory, *page) if entry.ledger.alive(entry)]
