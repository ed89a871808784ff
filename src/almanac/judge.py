"""The judge: what of a batch that is due may be fired, and what ends in the dead letters instead."""

import time
from collections.abc import Callable, Mapping

from almanac import formats
from almanac.chores import Chores
from almanac.formats import auto
from almanac.ledger import Entry
from almanac.poison import Ward
from almanac.record import first


class Judge:
    """Times in ms."""

    def __init__(
        self, chores: Chores, ward: Ward, floor: int, forbidden: Callable[[str], str | None] | None,
        kinds: Mapping[str, str],
    ) -> None:  # fmt: skip
        """`floor`: what was due before is not made up for. `kinds`: the formats of the schedules topics."""
        self._chores, self._ward, self._kinds = chores, ward, kinds
        self._floor, self._forbidden = floor, forbidden

    def judge(self, batch: list[Entry]) -> list[Entry]:
        """Those to be fired; the others are buried, or wait for a target that does not answer."""
        floor, all_well, kinds = self._floor, self._ward.empty, self._kinds
        good = []
        for entry in batch if self._forbidden is None else self._allowed(batch, self._forbidden):
            grace = entry.schedule.grace
            if grace is not None and entry.due < entry.record.timestamp - grace:
                late = (entry.record.timestamp - entry.due) / 1000
                self._chores.bury(entry, "outdated", f"due {late:.1f} s before it was written")
            elif entry.due < floor and entry.record.timestamp < floor:  # one that asks for the past was not missed
                self._chores.bury(entry, "missed-too-old", f"due before {_iso(floor)} (SINCE_DELTA)")
            elif entry.schedule.target in kinds and endless(entry.schedule, kinds[entry.schedule.target]):
                detail = f"in {entry.schedule.target}, a schedules topic, it would be the same schedule again, for ever"
                self._chores.bury(entry, "undeliverable", detail)
            elif all_well or not self._ward.holds(entry):
                good.append(entry)
        return good

    def _allowed(self, batch: list[Entry], forbidden: Callable[[str], str | None]) -> list[Entry]:
        """Whoever can write a schedule must not borrow the scheduler's rights."""
        reasons = {target: forbidden(target) for target in {entry.schedule.target for entry in batch}}
        good = []
        for entry in batch:
            reason = reasons[entry.schedule.target]
            if reason is None:
                good.append(entry)
            else:
                self._chores.bury(entry, "forbidden", reason)
        return good


def endless(schedule: formats.Schedule, kind: str) -> bool:
    """A header format's schedule reaches its target with the headers that make it one. `kind`: the target's format."""
    name = schedule.form.name if schedule.form is not None else "etf1"
    if kind == "auto":
        kind = "karafka" if auto.is_karafka(first(schedule.headers)) else "etf1"
    return kind == name and name in ("etf1", "karafka")


def _iso(ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ms / 1000))
