"""`almanac bench`: a scheduler measured from outside, against what this machine can do at all.

    feed       writes schedules, as any client would
    watch      reads the target as a consumer would: how late, how often, was anything early
    limit      bare transactional producers: the most fires a second, and the least lateness, without any scheduler
    scheduler  one that runs already, or one of the bench's own
    measure    burst, steady and live: feed, watch and limit in the same minutes
    report     figures and ratios, as a table and as JSON
    ingest     the book alone: records a second of each format (`traffic`), with figures of its own

A ratio and not a figure is what compares machines: broker, scheduler, feed and watch share this one.
"""

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Told what is done now, how much of it, and of how much (0: nobody knows)."""

PARTITIONS = 4  # of the topics made here
PAYLOAD = b"x" * 200  # of a message
