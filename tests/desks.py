"""A desk in memory, for the tests of the page: what it says is made up, what it is told it keeps."""

from __future__ import annotations

import dataclasses
import json
import time
from typing import Any

from almanac import board, desk
from almanac.settings import Settings
from almanac.story import Event, Story

HOUR = 3_600_000
NASTY = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def now() -> int:
    return int(time.time() * 1000)


def row(id: bytes, due: int, target: str = "mails", value: bytes | None = b"hello", **more: Any) -> desk.Row:
    given: dict[str, Any] = {
        "id": id, "topic": "schedules", "partition": 1, "version": 41, "due": due, "timestamp": now() - HOUR,
        "target": target, "target_key": b"key", "value": value, "size": len(value or b""),
        "headers": [("scheduler-epoch", str(due // 1000).encode()), ("scheduler-target-topic", target.encode())],
        "state": "waiting" if due > now() else "overdue",
    }  # fmt: skip
    return desk.Row(**{**given, **more})


class Fake(desk.Desk):
    """`acts` holds what was done, by whom; `answer` is what a cancel is answered with."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.runner = settings, None  # and nothing that would speak to Kafka
        self.acts: list[tuple[Any, ...]] = []
        self.broken: Exception | None = None  # every question is answered with it
        self.answer: Any = "cancelled"
        self.fires: Any = "fired"  # what a fire-now is answered with
        self.halted: tuple[str, ...] = ()
        self.shard_state = "firing"
        self.hidden = False
        self._fired_so_far = 1_204_331
        self._controls = desk.Controls()
        begin = now()
        video = json.dumps({"video": 17, "title": "The tide tables of 1851", "public": True}).encode()
        self.rows = {
            each.id: each
            for each in (
                row(b"vid17-online", begin + 2 * HOUR, "online-videos", video),
                row(b"retry-3f2a", begin + 95_000, "calls", b"POST /charge 8812"),
                row(b"account-8812-close", begin + 40 * 24 * HOUR, "accounts", b""),
                row(b"late-one", begin - 4_000, "mails"),
                row(b"\x00\xff\x10", begin + 3 * HOUR, "mails", bytes(range(256))),
                row(b"nasty", begin + 5 * HOUR, "mails", NASTY.encode(), headers=[(NASTY, NASTY.encode())]),
            )
        }
        for number in range(120):
            each = row(f"reminder-{number:04}".encode(), begin + 6 * HOUR + number * 17 * 60_000, "reminders")
            self.rows[each.id] = each
        self.letters = {
            (0, 12): _letter(0, 12, b"invoice-77", "no-topic", "the target topic invoices-old does not exist", True),
            (1, 3): _letter(1, 3, None, "unreadable", "scheduler-epoch is 'soon', no number", False),
        }

    def _asked(self) -> None:
        if self.broken is not None:
            raise self.broken

    # Questions

    def schedules(self, query: desk.Query) -> desk.Found[desk.Row]:
        self._asked()
        rows = [
            each
            for each in self.rows.values()
            if (not query.id_part or query.id_part.encode() in each.id)
            and (not query.target or each.target == query.target)
            and (query.due_from is None or each.due >= query.due_from)
            and (query.due_to is None or each.due < query.due_to)
            and (not query.state or each.state == query.state)
        ]
        rows.sort(key=lambda each: each.id if query.sort == "id" else each.due, reverse=query.sort == "-due")
        first = int(query.cursor or 0)
        end = first + query.limit
        total = len(rows) if query.total else None
        return desk.Found(rows=rows[first:end], cursor=str(end) if end < len(rows) else None, total=total)

    def schedule(self, id: bytes, topic: str | None = None, partition: int | None = None) -> list[desk.Row]:
        self._asked()
        if id not in self.rows:
            return []
        found = self.rows[id]
        if self.hidden:
            blind: Any = [(name, None) for name, _ in found.headers]
            found = dataclasses.replace(found, value=None, headers=blind, hidden=True)
        return [found]

    def counts(
        self,
        by: desk.Step = "hour",
        target: str | None = None,
        due_from: int | None = None,
        due_to: int | None = None,
    ) -> list[desk.Count]:
        self._asked()
        width = HOUR if by == "hour" else 24 * HOUR
        found: dict[tuple[int, str], int] = {}
        for each in self.rows.values():
            inside = each.due >= (due_from or 0) and (due_to is None or each.due < due_to)
            if inside and target in (None, each.target):
                place = each.due // width * width, each.target
                found[place] = found.get(place, 0) + 1
        return [desk.Count(start=start, target=name, number=n) for (start, name), n in sorted(found.items())]

    def story(self, id: bytes) -> Story:
        self._asked()
        events = [
            Event(at=now() - HOUR, what="scheduled", detail="due later", topic="schedules", partition=1, offset=41),
            Event(at=now(), what="repeated", detail=NASTY, topic="schedules", partition=1, offset=44),
        ]
        return Story(events, [f"schedules/1: waits ({id.decode(errors='replace')})"])

    def fired(self, query: desk.FiredQuery) -> desk.Found[desk.FiredRow]:
        self._asked()
        rows = [
            desk.FiredRow(
                id=f"sent-{number}".encode(),
                topic="schedules",
                partition=number % 4,
                version=number,
                target="mails" if number % 3 else "calls",
                due=now() - number * 61_000,
                fired_at=now() - number * 61_000 + 23 + 700 * (number % 3),
                lateness=23 + 700 * (number % 3),
                outcome="fired" if number % 7 else "no-topic",
            )
            for number in range(1, 60)
        ]
        rows = [
            each
            for each in rows
            if (query.id_part or "").encode() in each.id
            and query.target in (None, each.target)
            and query.outcome in (None, each.outcome)
            and each.fired_at >= (query.since or 0)
        ]
        first = int(query.cursor or 0)
        end = first + query.limit
        total = len(rows) if query.total else None
        return desk.Found(rows=rows[first:end], cursor=str(end) if end < len(rows) else None, total=total)

    def dead_letters(self, query: desk.DeadQuery) -> desk.Found[desk.DeadLetter]:
        self._asked()
        rows = [
            each
            for each in self.letters.values()
            if (query.id_part or "").encode() in (each.id or b"") and query.reason in (None, each.reason)
        ]
        return desk.Found(rows=rows, cursor=None)

    def overview(self) -> desk.Overview:
        self._asked()
        self._fired_so_far += 52
        paused = self._controls.paused
        state = "paused" if paused and self.shard_state == "firing" else self.shard_state
        second = int(time.time())
        view = board.Overview(
            pending=len(self.rows),
            fired=self._fired_so_far,
            per_second=0 if paused else 48.0 + second % 9,
            late_p50=None if paused else 8 + second % 5,
            late_p99=None if paused else 40 + 7 * (second % 6),
            late_max=None if paused else 95,
            next_due=min((each.due for each in self.rows.values()), default=None),
            dead_letters=len(self.letters),
            states={0: state, 1: state},
            halted=self.halted,
        )
        partitions = [
            desk.Partition(
                topic="schedules", partition=number, shard=number % 2, state=state, why=None, first=0, end=91_204,
                position=91_200, lag=4, book=90_871,
            )
            for number in range(4)
        ]  # fmt: skip
        why = None if state in ("firing", "paused") else "no report for 12 s"
        shards = [
            desk.Shard(shard=number, state=state, why=why, reported=now(), status={"page": 88, "lag": 8})
            for number in range(2)
        ]
        return desk.Overview(
            board=view, controls=self._controls, partitions=partitions, shards=shards, duties={},
            group=self.settings.group_id, now=now(),
        )  # fmt: skip

    def controls(self) -> desk.Controls:
        self._asked()
        return self._controls

    # Acts

    def create(self, new: desk.New, who: str) -> desk.Row:
        self.acts.append(("create", new, who))
        if new.target == "forbidden":
            raise desk.Refused("target", new.target, "TARGETS_DENY forbids it")
        name = new.id or b"made-up"
        if new.if_absent and name in self.rows:
            raise desk.Exists("id", name.decode(), "is pending")
        self.rows[name] = row(
            name, new.due, new.target, new.value, target_key=new.target_key, headers=new.headers, version=99
        )
        return self.rows[name]

    def move(self, id: bytes, due: int, who: str, topic: str | None = None, partition: int | None = None) -> desk.Row:
        self.acts.append(("move", id, due, who, topic, partition))
        if id not in self.rows:
            raise desk.NotFound("id", id.decode(), "nothing is pending under it")
        self.rows[id] = dataclasses.replace(self.rows[id], due=due, version=100)
        return self.rows[id]

    def cancel(
        self,
        id: bytes,
        who: str,
        topic: str | None = None,
        partition: int | None = None,
        timeout: float = 5.0,
    ) -> desk.Outcome:
        self.acts.append(("cancel", id, who, topic, partition))
        if isinstance(self.answer, Exception):
            raise self.answer
        self.rows.pop(id, None)
        return desk.Outcome(
            answer=self.answer, id=id, topic=topic, partition=partition, version=41, offset=102, took=38
        )

    def fire_now(
        self,
        id: bytes,
        who: str,
        topic: str | None = None,
        partition: int | None = None,
        timeout: float = 5.0,
    ) -> desk.Firing:
        self.acts.append(("fire", id, who, topic, partition))
        found = self.rows[id]
        if self.fires != "fired":
            return desk.Firing(answer=self.fires, row=found, detail="the wheel says why")
        return desk.Firing(answer="fired", row=self.rows.pop(id), fired_at=now())

    def send_again(self, partition: int, offset: int, who: str, due: int | None = None) -> desk.Row:
        self.acts.append(("again", partition, offset, who, due))
        letter = self.letters[partition, offset]
        if letter.id in self.rows:
            raise desk.Exists("id", "invoice-77", "is pending: it would be lost")
        made = row(letter.id or b"", due or now(), letter.target or "")
        self.rows[made.id] = made
        return made

    def _told(self, who: str, act: str, **change: Any) -> desk.Controls:
        self.acts.append((act, change, who))
        self._controls = dataclasses.replace(self._controls, by=who, at=now(), **change)
        return self._controls

    def pause(self, who: str, target: str | None = None) -> desk.Controls:
        if target is None:
            return self._told(who, "pause", paused=True)
        return self._told(who, "pause", paused_targets=(*self._controls.paused_targets, target))

    def resume(self, who: str, target: str | None = None) -> desk.Controls:
        if target is None:
            return self._told(who, "resume", paused=False)
        left = tuple(each for each in self._controls.paused_targets if each != target)
        return self._told(who, "resume", paused_targets=left)

    def cap_missed(self, per_second: int | None, who: str) -> desk.Controls:
        return self._told(who, "cap", missed_per_second=per_second)

    def cap_target(self, target: str, per_second: int | None, who: str) -> desk.Controls:
        caps = {name: cap for name, cap in self._controls.target_per_second.items() if name != target}
        return self._told(who, "cap", target_per_second=caps if per_second is None else {**caps, target: per_second})


def _letter(
    partition: int,
    offset: int,
    id: bytes | None,
    reason: str,
    detail: str,
    sendable: bool,
) -> desk.DeadLetter:
    value = b'{"invoice": 77, "amount": 12.5}'
    return desk.DeadLetter(
        partition=partition, offset=offset, at=now() - 7 * HOUR, id=id, reason=reason, detail=detail,
        source=f"schedules/{partition}/{offset + 400}", target="invoices-old" if sendable else None,
        due=now() - 8 * HOUR if sendable else None, value=value, headers=[("trace", b"8f31")], sendable=sendable,
        size=len(value),
    )  # fmt: skip
