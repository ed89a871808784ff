"""What a batch of records says about each key, in Spark SQL: the twin of `almanac.words` and `almanac.ledger`.

    records   as Kafka has them: topic, partition, offset, timestamp (ms), key, value, headers
      v  say      one row per record: its kind (S R C T X D G H, see `almanac.words`) and what it says
      v  fold     one row per key: the highest version, the highest kill, the last record (rules 3 and 4);
                  one row per garbage record (rule 5)
    news      what the book's MERGE takes

The order of the records within a batch and the cut between batches do not matter to the result.
"""

from collections.abc import Mapping

from pyspark.sql import DataFrame

from almanac import words
from almanac.book import decoders

Partition = tuple[str, int]
Offsets = Mapping[Partition, int]

# Which row of a key (or of a partition) it is: the book's `slot` column. 0 and above: the garbage at that offset.
WORD, OFFSET = -1, -2

HEADERS = "array<struct<name:string,value:binary>>"

# Of a row with key, partition and slot: Spark sorts by a number without looking at the keys.
HASH = "xxhash64(coalesce(key, X''), partition, slot)"

PARTITIONS = 1_000_000  # more than there ever are

FUTURE = "almanac: a record of the future"  # the error of a fold that meets one


def by_partition(offsets: Offsets, missing: int) -> str:
    """An SQL expression that looks the row's (topic, partition) up in a literal."""
    if not offsets:
        return f"CAST({missing} AS BIGINT)"
    arrays = []
    for topic in sorted({topic for topic, _ in offsets}):
        count = max(partition for name, partition in offsets if name == topic) + 1
        values = ", ".join(f"{offsets.get((topic, partition), missing)}L" for partition in range(count))
        arrays.append(f"{decoders.literal(topic)}, array({values})")
    return f"coalesce(get(try_element_at(map({', '.join(arrays)}), topic), partition), {missing}L)"


def by_topic(values: Mapping[str, str]) -> str:
    """The same for texts by topic; null where there is none."""
    if not values:
        return "CAST(NULL AS STRING)"
    pairs = ", ".join(f"{decoders.literal(topic)}, {decoders.literal(text)}" for topic, text in values.items())
    return f"try_element_at(map({pairs}), topic)"


def say(records: DataFrame, decoder: decoders.Decoder, topic_ids: Mapping[str, str]) -> DataFrame:
    """What each record says: `words.read` in SQL.

    kind; version (of S and R) and kill (of C, T and X); disposes (of D); due, target and timestamp as the user wrote
    them; headers, still with ours among them if `marked`; reason (of G, and of T if it ended in the dead letters).
    """
    present, text = decoders.present, decoders.text
    # Few records are ours: their headers are looked up only where a header's name begins like ours.
    ours = f"""CASE WHEN contains(joined, 'almanac-') THEN struct(
        {present(words.ACKS)} AS has_acks, {text(words.ACKS)} AS acks,
        {present(words.DISPOSES)} AS has_disposes, {text(words.DISPOSES)} AS disposes,
        {present(words.VERSION)} AS has_version, {text(words.VERSION)} AS version, {text(words.TIMESTAMP)} AS timestamp,
        {present(words.NULL)} AS is_null, {text(words.REASON)} AS reason,
        coalesce({decoders.header(words.TOPIC_ID)} <> CAST({by_topic(topic_ids)} AS BINARY), false) AS foreign) END"""
    numbers = ", ".join(
        f"{decoders.number(f'ours.{name}', 18)} AS {name}" for name in ("acks", "disposes", "version", "timestamp")
    )
    ours_here = "ours IS NOT NULL AND NOT ours.foreign"
    kind = f"""CASE
        WHEN unreadable THEN 'G'
        WHEN value IS NULL AND {ours_here} AND ours.has_acks THEN if(number.acks IS NULL, 'G', 'T')
        WHEN value IS NULL AND {ours_here} AND ours.has_disposes THEN if(number.disposes IS NULL, 'G', 'D')
        WHEN value IS NULL AND NOT speaks THEN CASE
            WHEN {ours_here} AND ours.has_version THEN if(number.version IS NULL, 'G', 'X')
            WHEN acks IS NOT NULL AND their_acks IS NULL THEN 'G'
            ELSE 'C' END
        WHEN {ours_here} AND ours.has_version AND (number.version IS NULL OR number.timestamp IS NULL) THEN 'G'
        WHEN halts IS NOT NULL THEN 'H'
        WHEN wrong IS NOT NULL THEN 'G'
        WHEN {ours_here} AND ours.has_version THEN 'R'
        ELSE 'S' END"""

    def bad(name: str, column: str) -> str:
        return f"concat('header {name} is not a whole number: ', {decoders.shown(f'ours.{column}')})"

    reason = f"""CASE
        WHEN kind = 'T' THEN ours.reason
        WHEN kind <> 'G' THEN NULL
        WHEN unreadable THEN 'a header\\'s name is not UTF-8'
        WHEN value IS NULL AND ours.has_acks THEN {bad(words.ACKS, "acks")}
        WHEN value IS NULL AND ours.has_disposes THEN {bad(words.DISPOSES, "disposes")}
        WHEN value IS NULL AND NOT speaks AND ours.has_version AND NOT ours.foreign THEN {bad(words.VERSION, "version")}
        WHEN value IS NULL AND NOT speaks THEN concat('acknowledges no whole number: ', {decoders.shown("acks")})
        WHEN ours.has_version AND NOT ours.foreign AND number.version IS NULL THEN {bad(words.VERSION, "version")}
        WHEN ours.has_version AND NOT ours.foreign AND number.timestamp IS NULL THEN {bad(words.TIMESTAMP, "timestamp")}
        ELSE wrong END"""
    # In steps, each on the columns of the one before: Spark computes an expression again wherever it is used.
    named = records.selectExpr("*", "headers.key AS names", "headers.value AS contents")
    joined = named.selectExpr("*", "array_join(names, ' ') AS joined")
    texts = joined.selectExpr(
        "*", "contains(joined, '\ufffd') AS unreadable", f"{ours} AS ours",
        *(f"{expression} AS {column}" for column, expression in decoder.texts.items()),
    )  # fmt: skip
    numbered = f"CASE WHEN ours IS NOT NULL THEN struct({numbers}) END AS number"
    due = apart(texts).selectExpr(
        "*", f"{decoder.due} AS due", f"{decoder.speaks} AS speaks", f"{decoder.acks} AS acks", numbered
    )
    judged = apart(due).selectExpr(
        "*", f"{decoder.wrong} AS wrong", f"{decoder.halts} AS halts", f"{decoders.number('acks', 18)} AS their_acks"
    )
    kinds = apart(judged).selectExpr("*", f"{kind} AS kind")
    return kinds.selectExpr(
        "topic", "partition", "offset", "key", "kind", "number.disposes", "due", f"{decoder.target} AS target",
        "CASE WHEN NOT (coalesce(ours.is_null, false) AND speaks AND octet_length(value) = 0) THEN value END AS value",
        "CASE kind WHEN 'S' THEN offset WHEN 'R' THEN least(number.version, offset) END AS version",
        "CASE kind WHEN 'C' THEN least(their_acks, offset) WHEN 'T' THEN least(number.acks, offset) "
        "WHEN 'X' THEN least(number.version, offset) END AS kill",
        "if(kind = 'R', number.timestamp, timestamp) AS timestamp",
        "headers", "ours IS NOT NULL AND kind <> 'G' AS marked", f"{reason} AS reason",
    )  # fmt: skip


def apart(rows: DataFrame) -> DataFrame:
    """The same rows, but Spark compiles what comes before and what comes after as two methods.

    Java never compiles a method of more than 8,000 bytes, and Spark takes apart what it would have to put into one:
    each step then copies the row. This takes as many partitions as there are and does nothing with them.
    """
    return rows.coalesce(PARTITIONS)


def halts(said: DataFrame) -> dict[Partition, int]:
    """The partitions with records of the future, each with the offset of the first."""
    found = said.where("kind = 'H'").groupBy("topic", "partition").agg({"offset": "min"}).collect()
    return {(row[0], row[1]): row[2] for row in found}


def fold(said: DataFrame, complete: Offsets) -> DataFrame:
    """One row per key, and one per garbage record or disposal. Fails (`FUTURE`) where it meets a record of the future.

    `heard`, for `fired`: of a key that we acknowledged in this batch, its schedules (`version`, due time and target as
    `at` and `text`) and our tombstones (`acks`, when they were written and the reason). One list: Spark pays for each
    with every row, whether it has something to add or not.

    A repeat of a version below `complete` is no word: the book knows already whether that version is pending.
    """
    word = f"slot = {WORD} AND (kind = 'S' OR kind = 'R' AND version >= {by_partition(complete, -1)})"
    # Garbage speaks in its own row, and as the last record of its key; a disposal speaks in the garbage's row too.
    rows = said.selectExpr(
        "*",
        f"""explode(CASE kind WHEN 'G' THEN array({WORD}L, offset) WHEN 'D' THEN array({WORD}L, disposes)
                              ELSE array({WORD}L) END) AS slot""",
    ).selectExpr(
        "topic", "partition", "slot", "offset", "kill", "version",
        f"if(kind = 'H', raise_error('{FUTURE}'), kind) AS kind",
        f"if(slot = {WORD}, coalesce(key, X''), key) AS key", f"{HASH} AS hash",
        # of two records with one version (a schedule and its repeat) the first counts: it is the original
        f"""CASE WHEN {word} THEN named_struct('version', version, 'early', -offset)
                 WHEN slot <> {WORD} AND kind = 'G' THEN named_struct('version', offset, 'early', -offset)
            END AS rank""",
        "struct(due, timestamp, value, headers, marked, target, reason) AS word",
    )  # fmt: skip
    # The rows are too wide to be aggregated by hashing: Spark sorts them. Brought together first they are sorted once,
    # not before and after the exchange; and by a number first, which it compares without looking at the keys.
    rows.repartition("hash").createOrReplaceTempView("almanac_said")
    folded = rows.sparkSession.sql("""
        SELECT hash, topic, partition, key, slot,
               max_by(word, rank) AS word,
               coalesce(max(rank).version, -1L) AS version,
               coalesce(max(kill), -1L) AS kill,
               max(offset) AS last_offset,
               max_by(struct(kind, version), offset) AS last,
               bool_or(kind = 'T') AS acked,
               collect_list(CASE
                   WHEN kind = 'T' THEN named_struct(
                       'version', NULL, 'acks', kill, 'offset', offset, 'at', word.timestamp, 'text', word.reason)
                   WHEN version IS NOT NULL THEN named_struct(
                       'version', version, 'acks', NULL, 'offset', offset, 'at', word.due, 'text', word.target)
                   END) AS heard
        FROM almanac_said GROUP BY hash, key, slot, partition, topic""")
    # Where a lambda stands Spark does not compile: so it stands here, after the work.
    control = ", ".join(decoders.literal(name) for name in sorted(words.CONTROL))
    headers = f"if(word.marked, filter(word.headers, h -> h.key NOT IN ({control})), word.headers)"
    return folded.selectExpr(
        "hash", "topic", "partition", "key", "slot", "version", "kill", "word.due", "word.timestamp", "word.value",
        f"CAST({headers} AS {HEADERS}) AS headers", "word.target", "last_offset", "last.kind AS last_kind",
        "last.version AS last_version", "word.reason",
        "CASE WHEN acked THEN heard END AS heard",
    )  # fmt: skip
