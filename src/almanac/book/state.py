"""What state a row is in, as SQL: pending, adrift (rule 4) or over.

`n` is the news of a batch; `version` and `kill` are its own, or those of news and book combined. The last record of a
key is always the news': a batch is cut at the book's offsets.
"""

from collections.abc import Mapping

from almanac.book import fold, sql

PAYLOAD = ("value", "headers", "target", "due", "timestamp")
DEAD = {"headers": f"ELSE CAST(array() AS {sql.HEADERS})"}  # a list is never null: readers need not ask


def pending(version: str, kill: str) -> str:
    """It is to be fired."""
    return f"(n.slot = {fold.WORD} AND {version} > {kill})"


def adrift(version: str, kill: str) -> str:
    """The log reduced to its last record would say something else (rule 4)."""
    return f"""(n.slot = {fold.WORD} AND CASE
        WHEN n.last_kind = 'S' THEN n.value IS NULL -- the cleaner would take it for a tombstone (see `words.NULL`)
        WHEN n.last_kind = 'C' THEN {version} > {kill} -- a peer's tombstone, which acknowledges an older version
        WHEN n.last_kind NOT IN ('T', 'R', 'X', 'D') THEN false
        WHEN {version} > {kill} THEN NOT (n.last_kind = 'R' AND n.last_version = {version})
        ELSE n.last_kind = 'R' END)"""


def over(version: str, kill: str) -> str:
    """Nothing is left to be said of this word."""
    return f"""(n.slot = {fold.WORD} AND NOT {pending(version, kill)} AND NOT {adrift(version, kill)}
        AND (n.whole OR {kill} = -1))"""


def kill(version: str, kill: str) -> str:
    """A dead row whose last record is a repeat: what it repeats is over, even if nothing else is known of it."""
    return f"CASE WHEN {version} <= {kill} AND n.last_kind = 'R' THEN greatest({kill}, n.last_version) ELSE {kill} END"


def wake(version: str, kill: str, due: str) -> str:
    """See `table`."""
    every_page = f"{adrift(version, kill)} OR n.slot >= 0 AND n.last_kind = 'G'"
    return f"CASE WHEN {every_page} THEN -1L WHEN {pending(version, kill)} THEN {due} END"


_NEWS = ("n.version", "n.kill")
_LIVE = f"(n.slot <> {fold.WORD} OR n.version > n.kill)"


def fresh() -> Mapping[str, str]:
    """The columns of news as a row of its own, which the book has none of yet; `kept`: whether there is to be one."""
    return {
        **{name: f"CASE WHEN {_LIVE} THEN n.{name} {DEAD.get(name, '')} END" for name in PAYLOAD},
        "killed": f"CASE WHEN n.slot = {fold.WORD} THEN {kill(*_NEWS)} ELSE -1L END",
        "pending": pending(*_NEWS),
        "adrift": adrift(*_NEWS),
        "wake": wake(*_NEWS, "n.due"),
        "kept": f"""CASE WHEN n.slot = {fold.OFFSET} THEN true WHEN n.slot = {fold.WORD} THEN NOT {over(*_NEWS)}
            ELSE n.last_kind = 'G' END""",
    }
