"""Whether a book is to be trusted (rule 10). The scheduler asks before it goes on with one, `ls` before it reads it."""

import time
from collections.abc import Mapping

from almanac import errors
from almanac.book import read, stretch

SCHEMA_VERSION = "2"


def distrust(
    reader: read.Reader,
    topic_ids: Mapping[str, str],
    starts: stretch.Offsets,
    ends: stretch.Offsets,
    retention_ms: Mapping[str, int],
    now_ms: int | None = None,
    *,
    thorough: bool = True,
) -> str | None:
    """Why the log must be read from its beginning instead, or None if the book is good.

    `starts` and `ends` are the log's first offsets and high watermarks, `retention_ms` each topic's
    delete.retention.ms. A partition whose log still ends where the book stands is good at any age. `thorough` reads
    every row: who only shows some of them need not wait for that.
    """
    try:
        schema = reader.property("almanac.schema")
        if schema != SCHEMA_VERSION:
            return f"its schema version is {schema or 'missing'}, this program writes {SCHEMA_VERSION}"
        if thorough:
            reader.read_through()
        position = reader.position()
    except Exception as error:  # whatever is wrong with it, the log has the truth
        return unreadable(error)
    now = int(time.time() * 1000) if now_ms is None else now_ms
    for (topic, partition), offset in sorted(position.offsets.items()):
        name = f"{topic}/{partition}"
        if topic not in topic_ids:
            continue  # no longer a schedules topic, or not one that is asked for
        if position.topic_ids[topic] != topic_ids[topic]:
            return f"topic {topic} was made anew: its id is {topic_ids[topic]}, was {position.topic_ids[topic]}"
        if offset < starts.get((topic, partition), 0):
            return f"{name}: the log begins at offset {starts[topic, partition]}, the book stands at {offset}"
        if offset > ends.get((topic, partition), offset):
            return f"{name}: the log ends at offset {ends[topic, partition]}, the book stands at {offset}"
        age = now - position.since[topic, partition]
        if offset != ends.get((topic, partition)) and age > retention_ms.get(topic, age):
            return (
                f"{name}: it is {age // 1000} s old, and cancels are gone from the log after "
                f"{retention_ms[topic] // 1000} s (delete.retention.ms)"
            )
    return None


def unreadable(error: Exception) -> str:
    return f"it cannot be read: {errors.brief(error)}"
