"""What waits, as lines of JSON: from the log alone, so without a scheduler, and for any number of schedules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from almanac import errors, kafka, lines, native, scan, survey, topics
from almanac.migrate import Meter
from almanac.settings import Settings


@dataclass
class Report:
    """What an export has found so far."""

    schedules: int = 0
    unreadable: list[survey.LeftOut] = field(default_factory=list)


def export(settings: Settings, names: Sequence[str], meter: Meter, report: Report) -> Iterator[str]:
    """The lines of these schedules topics, in the order of their logs. Raises UsageError if one does not exist."""
    admin = kafka.admin_client(settings)
    forms = dict(settings.sources)
    found = topics.topic_ids(admin, names)
    if missing := [name for name in names if name not in found]:
        raise errors.UsageError(f"the topic {missing[0]} does not exist; `almanac topics apply` creates it")
    for topic, topic_id in found.items():
        surveyor = survey.Surveyor(settings, forms[topic], topic_id)
        stops = scan.ends(admin, scan.partitions(admin, [topic]))
        seen = surveyor.look({}, stops, lambda _: None, meter(f"looking at {topic}", sum(stops.values())))
        report.unreadable += seen.unreadable
        wanted = {source: {winner.offset for winner in part.winners.values()} for source, part in seen.parts.items()}
        tick = meter(f"exporting {topic}", sum(map(len, wanted.values())))
        for offset, word in surveyor.words(wanted, stops, lambda _: None):
            report.schedules += 1
            yield lines.write(native.wish(word), f"{topic}/{word.record.partition}/{offset}")
            tick(1)
