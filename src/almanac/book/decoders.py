"""What a wire format reads out of a record, as Spark SQL: the twin of the module of that name in `almanac.formats`.

Each decoder is expressions over the columns of a record (key, value, headers): `due` (bigint, ms), `target` (the
topic's name), `wrong` (null, or why the record is not a schedule), and what else a format may say. Header formats are
written in SQL; where the value must be taken apart, Spark calls the module itself.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import arrow_udf  # `pyspark.sql.functions` has it without a stub

from almanac import formats
from almanac.formats import etf1, karafka
from almanac.record import Record

NOTHING = "CAST(NULL AS STRING)"


class Decoder(NamedTuple):
    """A format in SQL: `texts` are read from the record, `due` from these, the others from both.

    In steps, because Spark computes an expression again wherever it is used. `due` and `target` count only where
    `wrong` and `halts` are null. The columns of `texts` begin with the format's name: several stand side by side.
    """

    texts: Mapping[str, str]  # column -> expression over the record
    due: str
    target: str
    wrong: str
    speaks: str = "false"  # is it a schedule although its value is null?
    acks: str = NOTHING  # of a null value: the version that it acknowledges, as text
    halts: str = NOTHING  # why only a newer version of this program understands it


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
    return rf"CASE WHEN {text} RLIKE r'\A[0-9]{{1,{digits}}}\z' THEN try_cast({text} AS BIGINT) END"


def shown(text: str) -> str:
    """The text as a reason shows it."""
    return f"coalesce(concat('\\'', left({text}, 80), '\\''), 'null')"


_NO_ID = "coalesce(octet_length(key), 0) = 0"
_NO_ID_TEXT = "'the id (the record\\'s key) is empty; each schedule needs one'"


def _illegal(target: str) -> str:
    return rf"(NOT {target} RLIKE r'\A[a-zA-Z0-9._-]{{1,249}}\z' OR {target} IN ('.', '..'))"


def _etf1() -> Decoder:
    texts = {
        "etf1_ms": present(etf1.EPOCH_MS),
        "etf1_s": present(etf1.EPOCH),
        "etf1_when": f"CASE WHEN {present(etf1.EPOCH_MS)} THEN {text(etf1.EPOCH_MS)} ELSE {text(etf1.EPOCH)} END",
        "etf1_target": text(etf1.TOPIC),
    }
    due = f"({number('etf1_when', 15)}) * if(etf1_ms, 1, 1000)"
    name = f"if(etf1_ms, '{etf1.EPOCH_MS}', '{etf1.EPOCH}')"
    wrong = f"""CASE
        WHEN {_NO_ID} THEN {_NO_ID_TEXT}
        WHEN NOT etf1_ms AND NOT etf1_s
            THEN 'header {etf1.EPOCH} is missing; it says when, in seconds since 1970'
        WHEN due IS NULL THEN concat('header ', {name}, ' is not a whole, positive number: ', {shown("etf1_when")})
        WHEN due > {formats.LAST_DUE}
            THEN concat('header ', {name}, ' lies after the year 9999: ', {shown("etf1_when")})
        WHEN etf1_target IS NULL THEN 'header {etf1.TOPIC} is missing; it names the topic to deliver to'
        WHEN {_illegal("etf1_target")}
            THEN concat('header {etf1.TOPIC} is not a legal topic name: ', {shown("etf1_target")})
        END"""
    return Decoder(texts, due, "etf1_target", wrong)


def _karafka() -> Decoder:
    named = {
        "version": karafka.VERSION, "type": karafka.TYPE, "epoch": karafka.EPOCH, "target": karafka.TOPIC,
        "partition": karafka.PARTITION, "source": karafka.SOURCE_OFFSET,
    }  # fmt: skip
    texts = {f"karafka_{column}": text(name) for column, name in named.items()}
    texts |= {f"karafka_has_{column}": present(named[column]) for column in ("epoch", "target", "source")}
    good_version = r"coalesce(karafka_version RLIKE r'\A[0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9}\z', false)"
    part = [f"try_cast(split_part(karafka_version, '.', {number}) AS BIGINT)" for number in (1, 2, 3)]
    newer = f"array({', '.join(part)}) > array({', '.join(f'{each}L' for each in karafka.KNOWN)})"
    no_number = "is not a whole, positive number: "
    wrong = f"""CASE
        WHEN {_NO_ID} THEN {_NO_ID_TEXT}
        WHEN NOT {good_version}
            THEN concat('header {karafka.VERSION} is not a version like 1.0.0: ', {shown("karafka_version")})
        WHEN NOT karafka_type <=> 'schedule'
            THEN concat('header {karafka.TYPE} of a record with a payload is not schedule: ', {shown("karafka_type")})
        WHEN NOT karafka_has_epoch THEN 'header {karafka.EPOCH} is missing'
        WHEN due IS NULL THEN concat('header {karafka.EPOCH} {no_number}', {shown("karafka_epoch")})
        WHEN due > {formats.LAST_DUE} THEN concat('header {karafka.EPOCH} lies after the year 9999: ', due)
        WHEN NOT karafka_has_target THEN 'header {karafka.TOPIC} is missing; it names the topic to deliver to'
        WHEN karafka_target IS NULL OR {_illegal("karafka_target")}
            THEN concat('header {karafka.TOPIC} is not a legal topic name: ', {shown("karafka_target")})
        WHEN karafka_partition IS NOT NULL AND ({number("karafka_partition", 12)}) IS NULL
            THEN concat('header {karafka.PARTITION} {no_number}', {shown("karafka_partition")})
        WHEN try_cast(karafka_partition AS BIGINT) > {formats.LAST_PARTITION}
            THEN concat('header {karafka.PARTITION} is no partition: ', karafka_partition)
        END"""
    return Decoder(
        texts,
        due=f"({number('karafka_epoch', 12)}) * 1000",
        target="karafka_target",
        wrong=wrong,
        speaks="karafka_type <=> 'schedule'",
        acks="CASE WHEN karafka_type <=> 'tombstone' AND karafka_has_source THEN coalesce(karafka_source, '') END",
        halts=f"""CASE WHEN NOT {_NO_ID} AND {good_version} AND {newer} THEN
            concat('header {karafka.VERSION} is ', karafka_version, '; {karafka.UNDERSTOOD}') END""",
    )


def _in_python(name: str) -> Decoder:
    """A format whose whole schedule is the value: read by the very code that the wheels use (see `register`)."""
    column = name.replace("-", "_")
    wrong = f"CASE WHEN {_NO_ID} THEN {_NO_ID_TEXT} ELSE {column}.wrong END"
    return Decoder({column: f"{_function(name)}(value)"}, f"{column}.due", f"{column}.target", wrong)


def _function(name: str) -> str:
    return f"almanac_{name.replace('-', '_')}"


def register(spark: SparkSession) -> None:
    """Makes the formats that are read in Python known to the session. Cheap: nothing runs yet."""
    for name in IN_PYTHON:
        spark.udf.register(_function(name), _reader(name))


def _reader(name: str) -> Any:
    def read(values: pa.Array) -> pa.Array:
        form = formats.named(name)
        rows: list[dict[str, Any] | None] = []
        for value in values.to_pylist():
            if value is None:
                rows.append(None)
                continue
            try:
                said = form.decode(Record("", 0, 0, 0, b"-", value, []))
                rows.append({"due": said.due, "target": said.target})
            except Exception as error:  # rule 5, as in `words.read`
                rows.append({"wrong": formats.reason(error)})
        return pa.array(rows, _READ)

    make: Any = arrow_udf  # its stub demands a function type, its code warns of one and asks for type hints
    return make(read, "due bigint, target string, wrong string")


_READ = pa.struct([("due", pa.int64()), ("target", pa.string()), ("wrong", pa.string())])
IN_PYTHON = ("sky-avro", "sky-json")


def _choose(cases: Sequence[tuple[str, Decoder]]) -> Decoder:
    """One decoder of several: the first whose condition holds."""

    def of(part: str) -> str:
        return f"CASE {' '.join(f'WHEN {when} THEN {getattr(decoder, part)}' for when, decoder in cases)} END"

    texts = {column: text for _, decoder in cases for column, text in decoder.texts.items()}
    speaks, halts = of("speaks"), of("halts")
    return Decoder(
        texts, of("due"), of("target"), of("wrong"),
        "false" if all(decoder.speaks == "false" for _, decoder in cases) else f"coalesce({speaks}, false)",
        of("acks"), NOTHING if all(decoder.halts == NOTHING for _, decoder in cases) else halts,
    )  # fmt: skip


def _auto() -> Decoder:
    is_karafka = f"{present(karafka.VERSION)} OR {present(karafka.TYPE)}"
    chosen = _choose([("auto_karafka", _karafka()), ("true", _etf1())])
    return chosen._replace(texts={**chosen.texts, "auto_karafka": is_karafka})


_DECODERS: Mapping[str, Decoder] = {
    "auto": _auto(), "etf1": _etf1(), "karafka": _karafka(), **{name: _in_python(name) for name in IN_PYTHON},
}  # fmt: skip


def named(name: str) -> Decoder:
    """The decoder of that format."""
    if name not in _DECODERS:
        raise LookupError(f"unknown format {name!r}; known: {', '.join(_DECODERS)}")
    return _DECODERS[name]


def by_topic(names: Mapping[str, str]) -> Decoder:
    """One decoder for records of several topics, each with its own format ({topic: format's name})."""
    known = sorted(set(names.values()))
    if len(known) == 1:
        return named(known[0])
    cases = []
    for name in known:
        topics = f"topic IN ({', '.join(literal(topic) for topic, each in names.items() if each == name)})"
        decoder = named(name)
        if name in IN_PYTHON:  # Spark runs a function of Python for every row, whatever stands around it
            (column,) = decoder.texts
            decoder = decoder._replace(texts={column: f"{_function(name)}(CASE WHEN {topics} THEN value END)"})
        cases.append((topics, decoder))
    return _choose(cases)
