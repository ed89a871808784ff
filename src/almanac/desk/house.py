"""How the scheduler is: what its wheels report, partition by partition, and what it was told.

In the driver the runner knows. Beside it (a command on another machine) the shard topic does: each wheel reports there
once a second.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from typing import TYPE_CHECKING, Any

from almanac import board, errors, kafka, passthrough, scan, shard, states
from almanac import controls as controls_module
from almanac import settings as settings_module
from almanac.desk.shapes import Overview, Partition, Setting, Shard
from almanac.desk.sight import Sight
from almanac.settings import Settings

if TYPE_CHECKING:
    from almanac.runner import Runner

TAIL = 200  # records of a partition of the shard topic among which a living wheel's last report is
ANSWER = 5.0  # seconds


class House:
    """Thread-safe."""

    def __init__(self, settings: Settings, runner: Runner | None, sight: Sight) -> None:
        self._settings, self._runner, self._sight = settings, runner, sight
        self._admin = kafka.admin_client(settings)
        self._board = board.Board(settings.group_id)
        self._lock = threading.Lock()

    def overview(self) -> Overview:
        statuses, duties = self._reports()
        with self._lock:
            seen = self._board.overview(self._runner.pending_in_book if self._runner is not None else {}, statuses)
        if self._runner is None:  # only a runner knows what the wheels' counts are counted from
            seen = dataclasses.replace(seen, pending=self._sight.total())
        return Overview(
            board=seen, controls=self.controls(), partitions=self.partitions(statuses), shards=self.shards(statuses),
            duties=duties, group=self._settings.group_id, now=int(time.time() * 1000),
        )  # fmt: skip

    def shards(self, statuses: dict[int, dict[str, Any]] | None = None) -> list[Shard]:
        found = self._reports()[0] if statuses is None else statuses
        return [
            Shard(
                shard=number, state=_state(status), why=status.get("why"), reported=status.get("reported"),
                status=status,
            )
            for number, status in sorted(found.items())
        ]  # fmt: skip

    def partitions(self, statuses: dict[int, dict[str, Any]] | None = None) -> list[Partition]:
        found = self._reports()[0] if statuses is None else statuses
        sources = scan.partitions(self._admin, list(self._settings.topics))
        lows, highs = scan.bounds(self._admin, sources)
        book = self._sight.booked()
        wheels = {
            (topic, partition): (number, offset)
            for number, status in found.items()
            for topic, partition, offset in status.get("positions", ())
        }
        rows = []
        for source in sources:
            number, position = wheels.get(source, (-1, None))
            status = found.get(number, {})
            silent = _state(status) if status else "no owner"
            halted = states.state(source, status) == "incompatible"
            rows.append(
                Partition(
                    topic=source[0],
                    partition=source[1],
                    shard=number,
                    state="incompatible" if halted else silent,
                    why=status.get("why"),
                    first=lows[source],
                    end=highs[source],
                    position=position,
                    lag=None if position is None else max(0, highs[source] - position),
                    book=book.get(source),
                )
            )
        return rows

    def config(self) -> list[Setting]:
        values = self._settings.model_dump(mode="json")
        return [
            Setting(
                name=(settings_module.environment(name) or (passthrough.SECTIONS.get(name, name),))[0],
                value=passthrough.masked(name, values[name]), origin=self._settings.origin(name),
                about=settings_module.Settings.model_fields[name].description or "",
            )
            for name in settings_module.NAMES
        ]  # fmt: skip

    def controls(self) -> controls_module.Controls:
        return self._runner.controls if self._runner is not None else controls_module.read(self._settings)

    def tell(self, told: controls_module.Controls) -> controls_module.Controls:
        """Has the wheels obey these, and returns when those of our own runner are known to it too."""
        controls_module.write(self._settings, told)
        end = time.monotonic() + 2
        while self._runner is not None and time.monotonic() < end and self._runner.controls.at != told.at:
            time.sleep(0.02)
        return told

    def ready(self) -> str | None:
        """None if every wheel fires or is paused, else what is missing."""
        found, _ = self._reports()
        wanted = self._runner.shards if self._runner is not None else len(found)
        if not found or not wanted:
            return "no wheel has reported yet"
        late = [f"shard {n} is {_state(found.get(n, {}))}" for n in range(wanted)]
        late = [text for text in late if not text.endswith((" firing", " paused"))]
        return ", ".join(late) or None

    # Reports

    def _reports(self) -> tuple[dict[int, dict[str, Any]], dict[str, dict[str, Any]]]:
        if self._runner is not None:
            return self._runner.statuses, self._runner.duties
        return self._from_kafka()

    def _from_kafka(self) -> tuple[dict[int, dict[str, Any]], dict[str, dict[str, Any]]]:
        sources = scan.partitions(self._admin, [self._settings.shard_topic])
        if not sources:
            return {}, {}
        _, ends = scan.bounds(self._admin, sources)
        begins = {number: max(0, end - TAIL) for (_, number), end in ends.items()}
        reader = shard.Reader(self._settings, begins)
        statuses: dict[int, dict[str, Any]] = {}
        duties: dict[str, dict[str, Any]] = {}
        shards = len(sources)
        try:
            until = time.monotonic() + ANSWER
            while True:
                done = reader.at({number: end for (_, number), end in ends.items()})
                for number, _, at, key, value in reader.poll(0.05):
                    if key == "owner":
                        shards = value.get("shards", shards)
                    elif key == "status":
                        statuses[number] = {**value, "reported": at}
                    elif key.endswith("-status"):
                        duties[key.removesuffix("-status")] = {**value, "reported": at}
                if done:
                    return {n: status for n, status in statuses.items() if n < shards}, duties
                if time.monotonic() > until:
                    raise errors.Unreachable(f"{self._settings.shard_topic} was not read to its end in {ANSWER:g} s")
        finally:
            reader.close()


def _state(status: dict[str, Any]) -> str:
    return board.state(status) if status else "unknown"
