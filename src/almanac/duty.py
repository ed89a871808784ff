"""A duty: work beside the wheels that one process does at a time, under the same protocol (rules 1 and 6).

    start -> fence -> look again -> begin -> WORK
               ^                               |
               +------ any doubt (rule 6) -----+           a later claim: return; the driver says stop: return

`bridge` and `oscillator` are such work. Each step is one transaction, and where to go on is read after the fence, so
that a crash or a successor at any moment neither loses nor doubles anything.
"""

import logging
from typing import Any, Protocol

from almanac import ports
from almanac.clock import Clock

log = logging.getLogger("almanac.duty")

REPORT = 1_000  # ms between reports
SAY_AGAIN = 30_000  # ms after which the log is told once more why it waits
BACKOFF, LONGEST = 0.1, 0.5  # seconds after an unclear answer


class Work(Protocol):
    """What a duty consists of."""

    doing: str  # the state when all is well
    trouble: str | None  # why it pauses

    def begin(self) -> None:
        """Finds where to go on. Nobody else works from here on, or this writer is fenced."""

    def step(self) -> None:
        """Does what there is to do, or waits a little."""

    def end(self) -> None:
        """It was told to stop."""

    def status(self) -> dict[str, Any]:
        """For people."""


class Duty:
    """See the module."""

    def __init__(self, name: str, work: Work, writer: ports.Writer, post: ports.Post, clock: Clock) -> None:
        self.name, self.state = name, "starting"
        self._work, self._writer, self._post, self._clock = work, writer, post, clock
        self._why: str | None = None
        self._reported = -1e18
        self._said: tuple[str, str | None, float] = ("", None, 0.0)  # and when
        self._stop: ports.Stop | None = None

    def run(self) -> str:
        """Works until told to stop or replaced; returns which."""
        started, backoff = False, BACKOFF
        while True:
            try:
                if not started:
                    self._post.start()
                    started = True
                newer = self.take_over()
                if newer:
                    self._stop = ports.Stop(newer)
                while self._stop is None:
                    self.step()
                    backoff = BACKOFF
                if not self._stop.replaced:
                    self._work.end()
            except ports.Unsettled as error:
                self._say("waiting", str(error))
                self._clock.sleep(backoff)
                self._listen()
                backoff = min(LONGEST, backoff * 2)
            if self._stop is not None:
                ended = "replaced" if self._stop.replaced else "stopped"
                self._say(ended, self._stop.replaced and f"a later claim holds it: {self._stop.replaced}")
                return ended

    def take_over(self) -> str | None:
        """Rule 1: fences, looks again, finds where to go on. Names the later owner if there is one."""
        self.state = "fencing"
        newer = self._post.superseded()  # one that Spark runs again must not fence who replaced it
        if newer:
            return newer
        self._writer.renew()
        newer = self._post.superseded()
        if newer:
            return newer
        self._work.begin()
        self.state, self._why = self._work.doing, None
        return None

    def step(self) -> None:
        """One turn of the loop."""
        self._listen()
        self._work.step()
        self._why = self._work.trouble
        self.state = "paused" if self._why else self._work.doing
        if self._clock.monotonic() - self._reported >= REPORT:
            self._report()

    def _listen(self) -> None:
        for said in self._post.news():
            if isinstance(said, ports.Stop):
                self._stop = said

    def _report(self) -> None:
        self._reported = self._clock.monotonic()
        self._post.report(self.status())

    def _say(self, state: str, why: str | None = None) -> None:
        now = self._clock.monotonic()
        if (state, why) != self._said[:2] or now - self._said[2] > SAY_AGAIN:
            log.info("%s: %s%s", self.name, state, f": {why}" if why else "")
            self._said = (state, why, now)
        self.state, self._why = state, why
        if now - self._reported >= REPORT or state in ("replaced", "stopped"):
            self._report()

    def status(self) -> dict[str, Any]:
        """How it is, for people and metrics."""
        return {"state": self.state, "why": self._why, **self._work.status()}
