"""Schedules, updates and cancels at a steady rate, and whether what came out is what was asked."""

import contextlib
import heapq
import itertools
import random
import threading
import time
from collections import Counter
from typing import Self

from engine import Got, Group, Reading, Scheduler, now

_traffics = itertools.count(1)


class Traffic:
    """Feeds from a thread of its own, for a target topic of its own.

    Many schedules are updated (some several times) or cancelled, but only until `margin_ms` before they are due. So
    what must come out is known exactly: the last word of each id, once.
    """

    def __init__(self, group: Group, per_second: int, ahead_ms: int, margin_ms: int = 3_000) -> None:
        self.changed = 0  # updates and cancels
        self.latest_due = 0
        self._group, self._per_second, self._ahead, self._margin = group, per_second, ahead_ms, margin_ms
        self._prefix = f"t{next(_traffics)}-".encode()
        self._target = group.make_topic(f"{group.name}-{self._prefix.decode()}target")
        self._chance = random.Random(1)
        self._last: dict[int, int | None] = {}  # number -> version of its last word, None: cancelled
        self._versions: Counter[int] = Counter()
        self._changes: list[tuple[int, int, int]] = []  # when, number, due of the word to change
        self._numbers = itertools.count()
        self._paused, self._idle, self._stopped = threading.Event(), threading.Event(), threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)
        self._began, self._fed = time.monotonic(), 0

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def pause(self) -> None:
        """Returns when everything is written and nothing more will be until `resume()`."""
        self._paused.set()
        assert self._idle.wait(30)
        self._group.flush()

    def resume(self) -> None:
        self._idle.clear()
        self._began, self._fed = time.monotonic(), 0
        self._paused.clear()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(30)
        if self._failure is not None:
            raise self._failure

    @property
    def asked(self) -> Counter[bytes]:
        """What must come out."""
        return Counter(self._value(number, version) for number, version in self._last.items() if version is not None)

    def reading(self) -> Reading:
        """What comes out."""
        return self._group.read(self._target)

    def settle(self, scheduler: Scheduler, timeout: float = 60) -> list[Got]:
        """Ends the traffic, waits for all that was asked, and compares it with what came; returns that."""
        self.stop()
        self._group.flush()
        asked = self.asked
        assert asked
        left = max(0.0, (self.latest_due - now()) / 1000)
        with self.reading() as reading:
            with contextlib.suppress(AssertionError):  # the comparison below says more
                reading.count(asked.total(), timeout + left)
                scheduler.quiet(self.latest_due, timeout)
            got = reading.to_the_end()
        came = Counter(each.value or b"" for each in got)
        if came != asked:
            raise AssertionError(self._difference(came, asked))
        early = [each for each in got if each.timestamp < int(each.header("scheduler-epoch-ms") or b"0")]
        assert not early
        return got

    def _difference(self, came: Counter[bytes], asked: Counter[bytes]) -> str:
        missing, more = asked - came, came - asked
        lines = [f"asked {asked.total()}, came {came.total()}: {missing.total()} are missing, {more.total()} too many"]
        for what, values in (("missing", missing), ("too many", more)):
            stories = ((value, self._group.explain(value.rpartition(b".")[0])) for value in list(values)[:3])
            lines += [f"{what}: {value!r}\n{story}" for value, story in stories]
        return "\n".join(lines)

    # The thread

    def _run(self) -> None:
        try:
            while not self._stopped.wait(0.02):
                if self._paused.is_set():
                    self._idle.set()
                    continue
                self._change()
                goal = int((time.monotonic() - self._began) * self._per_second)
                while self._fed < goal:
                    self._fed += 1
                    self._word(next(self._numbers))
        except BaseException as error:
            self._failure = error

    def _key(self, number: int) -> bytes:
        return b"%s%d" % (self._prefix, number)

    def _value(self, number: int, version: int) -> bytes:
        return b"%s.%d" % (self._key(number), version)

    def _word(self, number: int) -> None:
        ahead = 0 if self._chance.random() < 0.1 else self._chance.randrange(self._ahead)  # one in ten is due at once
        due = now() + ahead
        version = self._versions[number]
        self._versions[number] += 1
        self._last[number] = version
        self._group.schedule(self._key(number), due, self._value(number, version), self._target)
        self.latest_due = max(self.latest_due, due)
        room = ahead - self._margin
        if room > 0 and self._chance.random() < 0.7:
            heapq.heappush(self._changes, (now() + self._chance.randrange(room), number, due))

    def _change(self) -> None:
        while self._changes and self._changes[0][0] <= now():
            _, number, due = heapq.heappop(self._changes)
            if now() > due - self._margin:  # too late: it could fire before this is read
                continue
            self.changed += 1
            if self._chance.random() < 0.4:
                self._last[number] = None
                self._group.cancel(self._key(number))
            else:
                self._word(number)
