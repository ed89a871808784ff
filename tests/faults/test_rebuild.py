"""The book is right after every restart, whatever happened to it: Kafka has the truth."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from engine import Group, Scheduler, now
from waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]  # a deleted book: also in test_crashes

HOUR_MS = 3_600_000


def folder(group: Group) -> Path:
    return Path(group.settings.book_folder)


def table(group: Group) -> Path:
    return folder(group) / "book"


class Asked:
    """What is asked of a group over a test: far words, updated and cancelled ones, and some due soon."""

    def __init__(self, group: Group, name: str, topic: str | None = None) -> None:
        self.group, self.topic = group, topic
        self.name = name.encode()
        self.target = group.make_topic(f"{group.name}-{name}")
        self.waiting: dict[bytes, int] = {}
        self.soon = 0

    def far(self, part: str, number: int = 300) -> None:
        """Of these a third is moved, a third cancelled."""
        keys = [b"%s %s %d" % (self.name, part.encode(), n) for n in range(number)]
        for n, key in enumerate(keys):
            self._say(key, now() + HOUR_MS + n)
        for n, key in enumerate(keys):
            if n % 3 == 1:
                self._say(key, now() + 2 * HOUR_MS + n)
            elif n % 3 == 2:
                self.group.cancel(key, topic=self.topic)
                del self.waiting[key]
        self.group.flush()

    def due_in(self, ms: int, number: int = 50) -> None:
        """They are to be fired by whoever runs then."""
        for n in range(number):
            self.soon += 1
            self.group.schedule(
                b"%s soon %d" % (self.name, self.soon), now() + ms + n, b"", self.target, topic=self.topic
            )
        self.group.flush()

    def _say(self, key: bytes, due: int) -> None:
        self.group.schedule(key, due, b"far", self.target, topic=self.topic)
        self.waiting[key] = due

    def check(self, scheduler: Scheduler) -> None:
        """Each soon one fired once; `almanac ls` and the book tell the rest."""
        mine = {key.decode(): due for key, due in self.waiting.items()}
        with self.group.read(self.target) as reading:
            reading.count(self.soon, 60)
            scheduler.quiet()
            fired = [got.header("scheduler-key") for got in reading.to_the_end()]
        assert sorted(map(bytes, filter(None, fired))) == sorted(
            b"%s soon %d" % (self.name, n + 1) for n in range(self.soon)
        )
        prefix = self.name.decode() + " "
        assert {key: due for key, due in self.group.ls().items() if key.startswith(prefix)} == mine
        self.group.booked()
        booked = {key: due for key, due in self.group.book().items() if key.startswith(prefix.encode())}
        assert booked == self.waiting


def uncommitted(group: Group) -> set[str]:
    """Data files that no commit of the book speaks of: of a merge under way, or of one that was killed."""
    lines = [line for file in (table(group) / "_delta_log").glob("*.json") for line in file.read_text().splitlines()]
    known = {action["add"]["path"] for line in lines if "add" in (action := json.loads(line))}
    return {file.name for file in table(group).glob("*.parquet")} - known


@pytest.mark.parametrize("kills", [1, 4])
def test_a_crash_in_the_middle_of_a_merge(kills: int, group: Group, scheduler: Scheduler) -> None:
    asked = Asked(group, f"merge{kills}")
    for kill in range(kills):
        group.booked()
        leftover = uncommitted(group)
        asked.far(f"before {kill}")
        asked.due_in(25_000)
        until(lambda known=leftover: uncommitted(group) - known, 30, "a merge has written data")  # type: ignore[misc]
        scheduler.kill()
        asked.far(f"after {kill}")
        scheduler.gone(15)
        scheduler = group.start().up()
    asked.check(scheduler)


def truncate(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size // 2)
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def truncate_data(group: Group, _: Path) -> None:
    truncate(max(table(group).glob("*.parquet"), key=lambda file: file.stat().st_size))


def truncate_log(group: Group, _: Path) -> None:
    truncate(max((table(group) / "_delta_log").glob("*.json")))


def delete(group: Group, _: Path) -> None:
    shutil.rmtree(folder(group))


def delete_checkpoint(group: Group, _: Path) -> None:
    shutil.rmtree(folder(group) / "checkpoints")


def old_checkpoint(group: Group, earlier: Path) -> None:
    shutil.rmtree(folder(group) / "checkpoints")
    shutil.copytree(earlier / "checkpoints", folder(group) / "checkpoints")


def old_book(group: Group, earlier: Path) -> None:
    shutil.rmtree(table(group))
    shutil.copytree(earlier / "book", table(group))


@pytest.mark.parametrize(
    "damage",
    [truncate_data, truncate_log, delete, delete_checkpoint, old_checkpoint, old_book],
    ids=lambda damage: damage.__name__,
)
def test_a_damaged_book(
    damage: Callable[[Group, Path], None], group: Group, scheduler: Scheduler, tmp_path: Path
) -> None:
    asked = Asked(group, damage.__name__)
    asked.far("first")
    group.booked()
    copy = tmp_path / "copy"
    until(lambda: _copied(folder(group), copy), 20, "a copy of the book between two merges")
    asked.far("second")
    asked.due_in(15_000)
    group.booked()
    assert scheduler.stop() == 0
    damage(group, copy)
    asked.far("third")
    asked.check(group.start().up())


def _copied(source: Path, to: Path) -> bool:
    shutil.rmtree(to, ignore_errors=True)
    try:
        shutil.copytree(source, to, ignore=shutil.ignore_patterns("pages"))
    except (shutil.Error, OSError):  # something was removed meanwhile
        return False
    return True


@pytest.mark.parametrize("back", [False, True])
def test_schedules_topics_come_and_go(back: bool, group: Group, scheduler: Scheduler) -> None:
    other = group.make_topic(f"{group.name}-other-{back}", config={"cleanup.policy": "compact"})
    mine, theirs = Asked(group, f"mine{back}"), Asked(group, f"theirs{back}", other)
    mine.far("first")
    theirs.far("first")
    theirs.due_in(5_000)
    assert scheduler.stop() == 0
    group.tell(schedules_topics=f"{group.topic},{other}")
    both = group.start().up()
    theirs.far("second")
    theirs.check(both)
    mine.due_in(1_000)
    mine.check(both)
    assert both.stop() == 0
    before = theirs.soon
    theirs.due_in(1_000)  # nobody listens
    group.tell(schedules_topics=group.topic)
    alone = group.start().up()
    mine.due_in(1_000)
    mine.check(alone)
    assert not [key for key in group.book() if key.startswith(theirs.name)]
    with group.read(theirs.target) as reading:
        assert len(reading.to_the_end()) == before
    if back:
        assert alone.stop() == 0
        group.tell(schedules_topics=f"{group.topic},{other}")
        again = group.start().up()
        theirs.check(again)
        mine.check(again)
