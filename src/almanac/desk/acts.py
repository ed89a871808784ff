"""What people have done: create, update, cancel, fire now. Each ends in a record of a schedules topic.

An update, a cancel and a fire-now go to the partition where the pending version is, whatever partitioner chose it.

A certain cancel, in steps:

1. Look: the book with the tail laid over it says which version is pending, and where. From here on the key is watched.
2. Write the null value to that partition; Kafka says at which offset O it stands.
3. Ask the wheel that owns the partition whether it has passed O (`asks`). No answer in time: unknown.
4. Read the partition, committed records, up to its high watermark as it is after the answer. (Not the last stable
   offset: somebody's open transaction may hold it below a tombstone that is committed.) Not reached in time: unknown.
5. Decide by what was read alone: a tombstone of ours that acknowledges the last version before O, and is no burial:
   already-fired. None: cancelled, as `asks` shows that there never will be one. (A version after O is another's.)
"""

from __future__ import annotations

import time
import uuid
from typing import Any

from almanac import asks, words
from almanac.audit import Audit
from almanac.book import read
from almanac.desk import records
from almanac.desk.pen import Pen
from almanac.desk.refusals import Ambiguous, Exists, NotFound, Refused
from almanac.desk.shapes import Answer, Change, Firing, New, Outcome, Row
from almanac.desk.sight import Sight
from almanac.desk.view import View
from almanac.live import Watch
from almanac.settings import Settings


class Acts:
    """Acts on schedules. Thread-safe."""

    def __init__(self, settings: Settings, sight: Sight, pen: Pen, asker: asks.Asker, audit: Audit) -> None:
        self._settings, self._sight, self._pen, self._asker, self._audit = settings, sight, pen, asker, audit
        self._forms = dict(settings.sources)

    def create(self, new: New, who: str, act: str = "create") -> Row:
        """See Desk."""
        id = new.id if new.id is not None else str(uuid.uuid4()).encode()
        if not id:
            raise Refused("id", "", "must not be empty; leave it out to get a new one")
        topic = new.topic if new.topic is not None else self._settings.topics[0]
        if topic not in self._forms:
            raise Refused("topic", topic, f"must be one of the schedules topics: {', '.join(self._forms)}")
        draft = records.new(self._forms[topic], new)
        with self._audit.act(act, who, id=id, topic=topic, target=draft.target, due=draft.due) as told:
            # A new id of ours cannot be pending anywhere: nothing to look for.
            rows = self.pending(id) if new.id is not None else []
            if new.if_absent and rows:
                places = ", ".join(f"{row.topic}/{row.partition}/{row.version}" for row in rows)
                raise Exists("id", _text(id), f"must not be pending (If-None-Match: *): it is, at {places}")
            here = [row for row in rows if row.topic == topic]
            if len(here) > 1:
                raise _ambiguous(here)
            place = here[0].partition if here else None
            return self._write(topic, id, draft, place, told)

    def update(self, id: bytes, change: Change, who: str, topic: str | None, partition: int | None) -> Row:
        """See Desk."""
        with self._audit.act("move" if change.due is not None else "update", who, id=id) as told:
            return self._revise(self._one(id, topic, partition), change, told)

    def cancel(self, id: bytes, who: str, topic: str | None, partition: int | None, timeout: float) -> Outcome:
        """See Desk."""
        begun = time.monotonic()
        with self._audit.act("cancel", who, id=id) as told:
            outcome = self._cancel(id, topic, partition, begun + timeout)
            told.update(
                outcome=outcome.answer, topic=outcome.topic, partition=outcome.partition, version=outcome.version,
                offset=outcome.offset,
            )  # fmt: skip
        took = int((time.monotonic() - begun) * 1000)
        return Outcome(**{**vars(outcome), "took": took})

    def fire_now(self, id: bytes, who: str, topic: str | None, partition: int | None, timeout: float) -> Firing:
        """See Desk."""
        end = time.monotonic() + timeout
        view = self._sight.look()
        with self._audit.act("fire now", who, id=id) as told, self._sight.live.watch(view.keys(id)) as watch:
            row = self._one(id, topic, partition, view)
            written = self._revise(row, Change(due=int(time.time() * 1000)), told)
            source = (row.topic, row.partition)
            watch.until(lambda: watch.acknowledged(source, written.version) is not None, end - time.monotonic())
            event = watch.acknowledged(source, written.version)
            if event is None:
                told["outcome"] = "waiting"
                why = "it is due now, and was not fired yet: is it paused, or does no scheduler run?"
                return Firing(answer="waiting", row=written, detail=why)
            told["outcome"] = event.reason or "fired"
            if event.reason is not None:
                return Firing(answer="buried", row=written, detail=f"it became a dead letter: {event.reason}")
            return Firing(answer="fired", row=written, fired_at=event.record.timestamp)

    # Small steps

    def pending(
        self, id: bytes, topic: str | None = None, partition: int | None = None, view: View | None = None
    ) -> list[read.Pending]:
        """What is pending under the id, there."""
        found = self._sight.find(id, view)
        return [row for row in found if topic in (None, row.topic) and partition in (None, row.partition)]

    def _one(self, id: bytes, topic: str | None, partition: int | None, view: View | None = None) -> read.Pending:
        rows = self.pending(id, topic, partition, view)
        if not rows:
            raise NotFound("id", _text(id), "nothing is pending under it; it may have fired or been cancelled")
        if len(rows) > 1:
            raise _ambiguous(rows)
        return rows[0]

    def send_again(self, word: words.Word, topic: str, due: int, who: str, letter: str) -> Row:
        """Schedules the message of a dead letter once more, where it stood."""
        id, partition = word.record.key or b"", word.record.partition
        with self._audit.act("send again", who, id=id, letter=letter) as told:
            rows = self.pending(id, topic, partition)
            if rows:
                place = f"{rows[0].topic}/{rows[0].partition}/{rows[0].version}"
                raise Exists("id", _text(id), f"is pending at {place}: that one would be lost. Cancel or fire it first")
            draft = records.revised(self._forms[topic], word.record, word.schedule, Change(due=due))
            return self._write(topic, id, draft, partition, told)

    def _revise(self, row: read.Pending, change: Change, told: dict[str, Any]) -> Row:
        record, schedule = self._sight.original(row)
        if schedule is None:
            raise Refused("id", _text(row.id), "is pending, and cannot be read with these settings")
        draft = records.revised(self._forms[row.topic], record, schedule, change)
        return self._write(row.topic, row.id, draft, row.partition, told)

    def _write(
        self,
        topic: str,
        id: bytes,
        draft: records.Draft,
        place: int | None,
        told: dict[str, Any],
    ) -> Row:
        partition, offset = self._pen.write(topic, id, draft.value, draft.headers, place)
        told.update(topic=topic, partition=partition, version=offset, target=draft.target, due=draft.due)
        written = read.Pending(
            topic=topic, partition=partition, id=id, version=offset, due=draft.due, timestamp=int(time.time() * 1000),
            value=draft.value, headers=draft.headers, target=draft.target,
        )  # fmt: skip
        return self._sight.row(written)

    def _cancel(self, id: bytes, topic: str | None, partition: int | None, end: float) -> Outcome:
        view = self._sight.look()
        with self._sight.live.watch(view.keys(id)) as watch:
            rows = self.pending(id, topic, partition, view)  # 1
            if len(rows) > 1:
                raise _ambiguous(rows)
            if not rows:
                return self._gone(id, topic, partition)
            row = rows[0]
            record, _ = self._sight.original(row)
            headers = records.cancel(self._sight.form(row.topic), record)
            _, offset = self._pen.write(row.topic, id, None, headers, row.partition)  # 2
            return self._decide(watch, row, offset, end)

    def _decide(self, watch: Watch, row: read.Pending, offset: int, end: float) -> Outcome:
        source = (row.topic, row.partition)

        def answer(what: Answer, detail: str, version: int = row.version) -> Outcome:
            place: dict[str, Any] = {"topic": row.topic, "partition": row.partition, "version": version}
            return Outcome(answer=what, id=row.id, offset=offset, detail=detail, **place)

        later = "The cancel is in the log, and is heeded if it came in time"
        if not self._asker.passed(*source, offset, max(0.05, end - time.monotonic())):  # 3
            return answer("unknown", f"no wheel said in time that it has passed the cancel. {later}")
        stops = self._sight.high(source)
        if not self._sight.live.at(stops, max(0.2, end - time.monotonic())) or watch.broken:  # 4
            return answer("unknown", f"the log could not be read to its end in time. {later}")
        last = max(row.version, watch.newest(source, before=offset))
        over = watch.acknowledged(source, last, before=offset)  # 5
        if over is not None and over.reason is None:
            return answer("already-fired", "it fired before the cancel", last)
        if over is not None:
            return answer("cancelled", f"it was not delivered: it had become a dead letter ({over.reason})", last)
        return answer("cancelled", "it will not be delivered", last)

    def _gone(self, id: bytes, topic: str | None, partition: int | None) -> Outcome:
        """Nothing is pending. That its last version fired is said only if the tail has seen that."""
        for key, heard in self._sight.heard_of(id):
            if topic not in (None, key[0]) or partition not in (None, key[1]) or not heard.over:
                continue
            over = heard.over[-1]
            if over.version >= heard.kill and over.reason is None:
                return Outcome(
                    answer="already-fired", id=id, topic=key[0], partition=key[1], version=over.version,
                    detail=f"it fired {max(0, time.time() - over.at / 1000):.1f} s ago",
                )  # fmt: skip
        detail = "nothing is pending under this id: it fired or was cancelled before, or there never was one"
        return Outcome(answer="not-found", id=id, topic=topic, partition=partition, detail=detail)


def _ambiguous(rows: list[read.Pending]) -> Ambiguous:
    places = ", ".join(f"{row.topic}/{row.partition}" for row in rows)
    return Ambiguous("id", _text(rows[0].id), f"is pending in several places: {places}. Name the topic and partition")


def _text(id: bytes) -> str:
    return id.decode(errors="backslashreplace")
