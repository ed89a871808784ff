"""Is it certain? Asks the wheel that owns a partition whether it has passed an offset, and hears its answer.

A user's cancel (or update) stands at offset O of a schedules partition. It may come too late: the wheel may fire at that
very moment. So somebody who wants to know for sure appends an *ask* to the owner's partition of the shard topic:

    ask      {"ask": id, "topic": ..., "partition": ..., "offset": O}      by anybody
    answer   {"ask": id, "position": P, "at": ms}, P > O                   by the wheel, in a transaction of its own

Why an answer is never wrong. Let W be the wheel whose answer is committed, at the time t of that commit.

1. W has read the record at O (P > O) before it wrote the answer: its ledger knows what O ends, and what is fired is
   judged by the ledger. So from then on W fires no version up to O of that key.
2. Whatever W fired before is committed, or aborted, and its markers are written: a wheel has one transaction at a time,
   the answer is one too, and Kafka begins no transaction of a producer before the last one is complete. After any doubt
   about a commit W takes over anew (rule 6), which settles it, before it comes to answer.
3. W was the owner at t: the answer is written by the wheel's transactional producer. Whoever replaced W fenced it first
   (rule 1; the driver fences every id before another number of shards begins), and a fenced producer cannot commit.
   W's successor initialises after t, therefore, and fires only when it has read to the high watermark seen then, which
   is above O: it knows what O ends too. Of predecessors nothing is left: W fenced them, and caught up.
4. A reader of committed records sees no answer that was aborted.

So after t nothing changes any more for versions up to O of that key: who then reads the schedules partition (committed
records, to the high watermark as it is after the answer) finds the tombstone that acknowledges the version, or there
never will be one. `outcome` reads it off. Times are nowhere part of this. A question that nobody answers (no owner, a
takeover, Kafka is away, a foreign transaction hangs below O) stays unknown, never wrong.

The answer goes to the shard topic, not to the schedules: nothing of this can be mistaken for a word.
"""

from collections.abc import Iterable
from typing import Literal

from almanac import words
from almanac.settings import Settings

Outcome = Literal["cancelled", "already-fired", "not-found"]


class Asker:
    """Asks for certainty. One producer and one consumer, made at the first question; any number of threads may ask."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def open(self) -> None:
        """Connects; without it the first question does, and takes longer."""

    def passed(self, topic: str, partition: int, offset: int, timeout_s: float = 0.5) -> bool:
        """Has the wheel that owns this partition passed this offset, for good? False: not known within the time."""
        raise NotImplementedError

    def close(self) -> None:
        """Disconnects."""


def outcome(said: Iterable[tuple[int, words.Said]], offset: int) -> Outcome:
    """What became of the word that the cancel at `offset` met.

    `said` are the records of that key, with their offsets, as the log has them up to its end after `passed` was true.
    A burial (dead letter) counts as fired: it was over before the cancel.
    """
    raise NotImplementedError
