"""The whole engine, as its users see it: one scheduler on a real Kafka and a real Spark, many tests."""

import time
from collections import Counter
from collections.abc import Iterator

import pytest
from engine import Got, Group, Reading, Scheduler, now
from traffic import Traffic
from waiting import until

from almanac.broker import Broker
from almanac.record import Headers

PAGE_S = 4
YEAR_MS = 365 * 86_400_000


@pytest.fixture(scope="module")
def group(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    """With a scheduler that runs, on two schedules topics."""
    folder = tmp_path_factory.mktemp("engine")
    with Group(broker.bootstrap_servers, folder, page_length=f"{PAGE_S}s") as made:
        made.tell(schedules_topics=f"{made.topic},{other_topic(made)}")
        made.start().up()
        yield made


def other_topic(group: Group) -> str:
    return f"{group.name}-more"


@pytest.fixture
def scheduler(group: Group) -> Scheduler:
    group.schedulers[0].alive()
    return group.schedulers[0]


@pytest.fixture
def target(group: Group, request: pytest.FixtureRequest) -> Iterator[Reading]:
    """A topic to deliver to that no other test uses."""
    name = f"{group.name}-{abs(hash(request.node.name))}"
    with group.read(group.make_topic(name)) as reading:
        yield reading


def letters(group: Group, key: bytes | None, number: int = 1) -> list[Got]:
    """The dead letters of that id, when there are that many."""
    mine: list[Got] = []

    def found() -> bool:
        mine.extend(each for each in reading.more() if each.key == key)
        return len(mine) >= number

    with group.dead_letters() as reading:
        until(found, 15, f"{number} dead letters of {key!r}")
    return mine


def test_readers_of_uncommitted_see_nothing_early_nor_what_was_staged_and_stopped(
    group: Group, scheduler: Scheduler, target: Reading
) -> None:
    rounds, each = 5, 100

    def aborted() -> int:
        return sum(status["aborted"] for status in scheduler.statuses().values())

    before, first = aborted(), (now() + 3_000) // 1000 * 1000
    for number in range(rounds * each):
        group.schedule(b"held %d" % number, first + number // each * 1000, b"", target.topic)
    group.flush()
    for turn in range(rounds):  # one of each round is cancelled while all of it is staged
        time.sleep(max(0, first + turn * 1000 - 100 - now()) / 1000)
        group.cancel(b"held %d" % (turn * each))
        group.flush()
    until(lambda: aborted() > before, 5, "a transaction was stopped")
    target.count(rounds * (each - 1))
    scheduler.quiet(first + rounds * 1000)
    with group.read(target.topic, "read_uncommitted") as everything:
        found = everything.to_the_end()
    assert len(found) == len(target.to_the_end())
    for got in found:
        assert got.timestamp >= int(got.header("scheduler-epoch-ms") or 0), "written early"


def test_payload_key_and_headers_arrive_byte_for_byte(group: Group, scheduler: Scheduler, target: Reading) -> None:
    every = bytes(range(256))
    mine: Headers = [
        ("scheduler-target-key", b"\x00key\xff"), ("x", b""), ("x", None), ("x", every), ("naïve", b"1"), ("", b"2"),
    ]  # fmt: skip
    ids, payloads = (b"\x00\xff id \xfe", b"plain", b"empty"), (every, b"\xff" * 1_000, b"")
    due = (now() // 1000 + 1) * 1000
    ours: Headers = [("scheduler-epoch", b"%d" % (due // 1000)), ("scheduler-target-topic", target.topic.encode())]
    for topic in group.settings.topics:  # one id in two topics: two schedules
        for key, payload in zip(ids, payloads, strict=True):
            group.write(key, payload, ours + mine, topic)
    group.flush()
    target.count(6)
    scheduler.quiet(due)
    found = target.to_the_end()
    added = ["scheduler-timestamp", "scheduler-key", "scheduler-topic"]
    places = set()
    for got in found:
        assert got.key == b"\x00key\xff"
        assert got.headers[: len(ours + mine)] == ours + mine
        assert [name for name, _ in got.headers[len(ours + mine) :]] == added
        assert payloads[ids.index(got.header("scheduler-key") or b"")] == got.value
        assert abs(int(got.header("scheduler-timestamp") or b"0") - due / 1000) < 60
        assert got.timestamp >= due, "never early"
        places.add((got.header("scheduler-topic"), got.header("scheduler-key")))
    assert len(found) == len(places) == 6
    with group.read(group.settings.history_topic) as history:
        copies = [copy for copy in history.to_the_end() if copy.header("almanac-target") == target.topic.encode()]
    assert sorted(copy.headers[:-4] for copy in copies) == sorted(got.headers for got in found)
    assert {copy.header("almanac-due-ms") for copy in copies} == {b"%d" % due}
    assert {copy.header("almanac-id") for copy in copies} == set(ids)


@pytest.mark.long  # the wheel's own: unit/test_wheel_pages
def test_due_from_at_once_to_a_hundred_years(group: Group, scheduler: Scheduler, target: Reading) -> None:
    since = now()
    for ahead in (0, 1, 50, 1_500):
        group.schedule(b"in %d" % ahead, since + ahead, b"%d" % ahead, target.topic)
    century = since + 100 * YEAR_MS
    group.schedule(b"in a century", century, b"far", target.topic)
    group.flush()
    found = target.count(4)
    assert sorted(int(got.value or b"-1") for got in found) == [0, 1, 50, 1_500]
    assert all(got.timestamp >= since + int(got.value or b"0") for got in found)
    assert group.ls()["in a century"] == century
    group.booked()
    assert group.book()[b"in a century"] == century
    scheduler.quiet(since + 1_500)
    assert len(target.to_the_end()) == 4


def test_the_last_word_wins(group: Group, scheduler: Scheduler, target: Reading) -> None:
    far, soon = now() + 3_600_000, now() + 2_500
    group.schedule(b"sooner", far, b"old", target.topic)
    group.schedule(b"later", soon, b"old", target.topic)
    group.schedule(b"cancelled", soon, b"old", target.topic)
    group.schedule(b"again", soon, b"old", target.topic)
    group.schedule(b"other topic", soon, b"stays", target.topic)
    group.cancel(b"other topic", topic=other_topic(group))
    group.cancel(b"cancelled")
    group.cancel(b"again")
    group.schedule(b"again", soon, b"new", target.topic)
    group.schedule(b"sooner", soon, b"new", target.topic)
    group.schedule(b"later", far, b"new", target.topic)
    group.flush()
    target.count(3)
    scheduler.quiet(soon)
    found = Counter((got.header("scheduler-key"), got.value) for got in target.to_the_end())
    assert found == {(b"sooner", b"new"): 1, (b"again", b"new"): 1, (b"other topic", b"stays"): 1}
    waiting = group.ls()
    assert waiting["later"] == far
    assert not {"sooner", "again", "cancelled", "other topic"} & set(waiting)


def test_payloads_of_900_kb(group: Group, scheduler: Scheduler, target: Reading) -> None:
    due = now() + 1_500
    payloads = {b"large %d" % number: bytes([number]) * 900_000 for number in range(8)}
    for key, payload in payloads.items():
        group.schedule(key, due, payload, target.topic)
    group.flush()
    found = target.count(8)
    assert {got.header("scheduler-key"): got.value for got in found} == payloads
    scheduler.quiet(due)
    assert len(target.to_the_end()) == 8


GARBAGE: dict[str, tuple[bytes, bytes, list[tuple[str | bytes, bytes | None]], str]] = {
    "no due time": (b"id", b"v", [("scheduler-target-topic", b"t")], "scheduler-epoch is missing"),
    "no number": (b"id", b"v", [("scheduler-epoch", b"soon"), ("scheduler-target-topic", b"t")], "'soon'"),
    "after 9999": (b"id", b"v", [("scheduler-epoch", b"9" * 12), ("scheduler-target-topic", b"t")], "9999"),
    "no target": (b"id", b"v", [("scheduler-epoch", b"1893456000")], "scheduler-target-topic is missing"),
    "bad target": (b"id", b"v", [("scheduler-epoch", b"1893456000"), ("scheduler-target-topic", b"a/b")], "a/b"),
    "a name that is not UTF-8": (b"id", b"\xff", [("\ufffd", b"x"), ("scheduler-epoch", b"1893456000")], "UTF-8"),
    "no id": (b"", b"v", [("scheduler-epoch", b"1893456000"), ("scheduler-target-topic", b"t")], "id"),
}


def test_garbage_is_no_word(group: Group, scheduler: Scheduler, target: Reading) -> None:
    due = now() + 4_000
    wanted: dict[bytes, tuple[bytes, str]] = {}
    for number, (key, value, headers, detail) in enumerate(GARBAGE.values()):
        mine = key and b"garbage %d" % number
        if mine:
            group.schedule(mine, due, b"earlier", target.topic, partition=number % 4)
        group.write(mine, value, headers, partition=number % 4)
        wanted[mine] = (value, detail)
    group.flush()
    for mine, (value, detail) in wanted.items():
        (letter,) = letters(group, mine)
        assert (letter.value, letter.header("almanac-reason")) == (value, b"invalid")
        assert detail in (letter.header("almanac-detail") or b"").decode()
        assert (letter.header("almanac-source") or b"").startswith(group.topic.encode())
    earlier = sorted(key for key in wanted if key)
    target.count(len(earlier), 15)
    scheduler.quiet(due)
    assert sorted(got.header("scheduler-key") or b"" for got in target.to_the_end()) == earlier


def test_an_outdated_schedule_is_a_word_but_does_not_fire(group: Group, scheduler: Scheduler, target: Reading) -> None:
    due = now() + 2_000
    group.schedule(b"outdated", due, b"earlier", target.topic)
    group.schedule(b"outdated", now() - 10_000, b"too late", target.topic)
    group.schedule(b"in time", due, b"in time", target.topic)
    group.flush()
    (letter,) = letters(group, b"outdated")
    assert (letter.value, letter.header("almanac-reason")) == (b"too late", b"outdated")
    target.count(1)
    scheduler.quiet(due)
    assert [got.value for got in target.to_the_end()] == [b"in time"]


def test_a_poison_message_stops_nobody(group: Group, scheduler: Scheduler, target: Reading) -> None:
    tiny = group.make_topic(f"{group.name}-tiny", config={"max.message.bytes": "1000"})
    group.make_topic(f"{group.name}.dotted")
    missing = f"{group.name}_dotted"  # Kafka makes no topic whose name differs from another's by . and _ only
    due = now() + 1_500
    for number in range(200):
        group.schedule(b"good %d" % number, due, b"good", target.topic)
    group.schedule(b"too large", due, b"x" * 5_000, tiny)
    for number in range(20):
        group.schedule(b"fits %d" % number, due, b"x", tiny)
    group.schedule(b"nowhere", due, b"nowhere", missing)
    group.flush()
    late = [got.at - due for got in target.count(200, 15)]
    print(f"good ones beside two culprits: {min(late)} to {max(late)} ms late")
    assert max(late) < 5_000
    for key in (b"too large", b"nowhere"):
        (letter,) = letters(group, key)
        assert letter.header("almanac-reason") == b"undeliverable"
        assert (letter.header("scheduler-target-topic") or b"?") in (letter.header("almanac-detail") or b"")
    with group.read(tiny) as small:
        fits = small.count(20, 15)
    print(f"those of the culprit's own target: {max(got.at - due for got in fits)} ms late")
    assert max(got.at - due for got in fits) < 10_000  # the culprit is found by halves
    scheduler.quiet(due)
    assert len(target.to_the_end()) == 200


def test_a_target_that_is_not_there_yet_is_made_by_the_broker(group: Group) -> None:
    """Where the broker makes topics by itself, nobody loses the first message."""
    name = f"{group.name}-fresh"
    group.schedule(b"fresh", now() + 500, b"first", name)
    group.flush()
    until(lambda: name in group.admin.list_topics(timeout=5).topics, 15, f"{name} is there")
    with group.read(name) as reading:
        assert [got.value for got in reading.count(1)] == [b"first"]


@pytest.mark.parametrize(
    ("turns", "per_second"),
    [
        pytest.param(3, 200, id="3 turns", marks=pytest.mark.long),
        pytest.param(20, 1_300, id="20 turns", marks=[pytest.mark.long, pytest.mark.timeout(400)]),
    ],
)
def test_what_comes_out_is_what_was_asked_whatever_pages_turn(
    turns: int, per_second: int, group: Group, scheduler: Scheduler
) -> None:
    """Schedules, updates and cancels straddle every turn; some are due so late that only the book remembers them."""
    first = scheduler.page()
    with Traffic(group, per_second, ahead_ms=5 * PAGE_S * 1000) as traffic:
        until(lambda: scheduler.page() >= first + turns, 10 * PAGE_S * turns, f"{turns} pages turned")
    got = traffic.settle(scheduler, timeout=60)
    late = sorted(each.timestamp - int(each.header("scheduler-epoch-ms") or b"0") for each in got)
    print(f"{len(got)} fired, {traffic.changed} changes; written late: p50 {late[len(late) // 2]}, max {late[-1]} ms")
    assert traffic.changed > len(got) / 5
