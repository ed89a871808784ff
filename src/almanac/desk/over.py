"""What is over: rows of the table of what fired, and of tombstones that the book has not read yet."""

from __future__ import annotations

from almanac import live
from almanac.book import search
from almanac.desk.front import Front
from almanac.desk.shapes import FiredQuery, FiredRow
from almanac.live import Key


def row(row: search.Fired) -> FiredRow:
    return FiredRow(
        id=row.id, topic=row.topic, partition=row.partition, version=row.version, target=row.target, due=row.due,
        fired_at=row.fired_at, lateness=row.lateness, outcome=row.outcome,
    )  # fmt: skip


def fresh(key: Key, over: live.Over, front: Front | None) -> FiredRow:
    due, target = over.due, over.target
    glance = front.row(key) if due is None and front is not None else None
    if glance is not None and glance.version == over.version:
        due, target = glance.due, glance.target
    return FiredRow(
        id=key[2], topic=key[0], partition=key[1], version=over.version, target=target, due=due, fired_at=over.at,
        lateness=None if due is None else over.at - due, outcome=over.reason or search.FIRED,
    )  # fmt: skip


def place(row: FiredRow) -> tuple[int, str, int, int]:
    return row.fired_at, row.topic, row.partition, row.version


def fits(row: FiredRow, query: FiredQuery, part: bytes | None) -> bool:
    return (
        (part is None or part in row.id)
        and (query.target is None or query.target == row.target)
        and (query.since is None or row.fired_at >= query.since)
        and (query.until is None or row.fired_at < query.until)
        and (query.outcome is None or query.outcome == row.outcome)
    )
