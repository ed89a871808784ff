"""Values and types as Spark's SQL has them."""

from almanac.book.stretch import Offsets

HEADERS = "array<struct<name:string,value:binary>>"


def literal(text: str) -> str:
    """The text as an SQL string."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def by_partition(offsets: Offsets, missing: int) -> str:
    """An expression that looks the row's (topic, partition) up in a literal."""
    if not offsets:
        return f"CAST({missing} AS BIGINT)"
    arrays = []
    for topic in sorted({topic for topic, _ in offsets}):
        count = max(partition for name, partition in offsets if name == topic) + 1
        values = ", ".join(f"{offsets.get((topic, partition), missing)}L" for partition in range(count))
        arrays.append(f"{literal(topic)}, array({values})")
    return f"coalesce(get(try_element_at(map({', '.join(arrays)}), topic), partition), {missing}L)"
