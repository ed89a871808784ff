"""What a wire format reads out of a record, as Spark SQL: the twin of the module of that name in `almanac.formats`.

Each decoder is three expressions over the columns of a record (key, value, headers):
`due` (bigint, ms), `target` (the topic's name) and `wrong` (null, or why the record is not a schedule).
"""

from collections.abc import Mapping
from typing import NamedTuple

from almanac import formats
from almanac.formats import etf1


class Decoder(NamedTuple):
    """A format in SQL: `texts` are read from the record, `due` from these, `wrong` from both.

    In steps, because Spark computes an expression again wherever it is used. `due` and `target` count only where
    `wrong` is null.
    """

    texts: Mapping[str, str]  # column -> expression over the record
    due: str
    target: str
    wrong: str


def literal(text: str) -> str:
    """The text as an SQL string."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def present(name: str) -> str:
    """Whether the record has that header. `names` and `contents` are the headers' two columns."""
    return f"array_contains(names, {literal(name)})"


def header(name: str) -> str:
    """The header's bytes; of several with one name the first counts. Null if it is missing (or null itself)."""
    return f"get(contents, CAST(array_position(names, {literal(name)}) - 1 AS INT))"


def text(name: str) -> str:
    """The header's bytes as they are, called a string."""
    return f"CAST({header(name)} AS STRING)"


def number(text: str, digits: int) -> str:
    """The text as a bigint, null unless it is 1 to `digits` ASCII digits and nothing else."""
    return rf"CASE WHEN {text} RLIKE r'\A[0-9]{{1,{digits}}}\z' THEN CAST({text} AS BIGINT) END"


def shown(text: str) -> str:
    """The text as a reason shows it."""
    return f"coalesce(concat('\\'', left({text}, 80), '\\''), 'null')"


def _etf1() -> Decoder:
    texts = {
        "when_ms": present(etf1.EPOCH_MS),
        "when_s": present(etf1.EPOCH),
        "when_text": f"CASE WHEN {present(etf1.EPOCH_MS)} THEN {text(etf1.EPOCH_MS)} ELSE {text(etf1.EPOCH)} END",
        "target": text(etf1.TOPIC),
    }
    due = f"({number('when_text', 15)}) * if(when_ms, 1, 1000)"
    name = f"if(when_ms, '{etf1.EPOCH_MS}', '{etf1.EPOCH}')"
    wrong = rf"""CASE
        WHEN coalesce(octet_length(key), 0) = 0
            THEN 'the id (the record\'s key) is empty; each schedule needs one'
        WHEN NOT when_ms AND NOT when_s
            THEN 'header {etf1.EPOCH} is missing; it says when, in seconds since 1970'
        WHEN due IS NULL THEN concat('header ', {name}, ' is not a whole, positive number: ', {shown("when_text")})
        WHEN due > {formats.LAST_DUE}
            THEN concat('header ', {name}, ' lies after the year 9999: ', {shown("when_text")})
        WHEN target IS NULL THEN 'header {etf1.TOPIC} is missing; it names the topic to deliver to'
        WHEN NOT target RLIKE r'\A[a-zA-Z0-9._-]{{1,249}}\z' OR target IN ('.', '..')
            THEN concat('header {etf1.TOPIC} is not a legal topic name: ', {shown("target")})
        END"""
    return Decoder(texts, due, "target", wrong)


_DECODERS: Mapping[str, Decoder] = {"auto": _etf1(), "etf1": _etf1()}


def named(name: str) -> Decoder:
    """The decoder of that format."""
    if name not in _DECODERS:
        raise LookupError(f"unknown format {name!r}; known: {', '.join(_DECODERS)}")
    return _DECODERS[name]


def by_topic(names: Mapping[str, str]) -> Decoder:
    """One decoder for records of several topics, each with its own format ({topic: format's name})."""
    known = sorted(set(names.values()))
    decoders = {name: named(name) for name in known}
    first = decoders[known[0]]
    if all(decoder == first for decoder in decoders.values()):
        return first

    def choose(part: int) -> str:
        cases = []
        for name, decoder in decoders.items():
            topics = ", ".join(literal(topic) for topic, each in names.items() if each == name)
            cases.append(f"WHEN topic IN ({topics}) THEN {decoder[part]}")
        return f"CASE {' '.join(cases)} END"

    texts = {column: text for decoder in decoders.values() for column, text in decoder.texts.items()}
    return Decoder(texts, choose(1), choose(2), choose(3))
