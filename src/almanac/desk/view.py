"""One version of the book with the tail laid over it, and the newest of these.

A new version of the book costs its first reader most of a second: its files are opened, and what fired since is looked
at. So it is made ready aside, and questions are answered by the version before until then: laid over either, the tail
gives the same. Only who asks after a while, or for the first time, waits.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field, replace

from confluent_kafka.admin import AdminClient

from almanac import errors, scan, topics, words
from almanac.book import read, search, trust
from almanac.desk.front import Front
from almanac.live import Key, Reading
from almanac.ports import Source
from almanac.settings import Settings

log = logging.getLogger("almanac.view")

CHECK = 0.25  # seconds between looks for a newer version
LOOK = 10.0  # seconds between looks at the topics, and at whether the book is to be trusted
GONE = 60.0  # seconds after which a topic that Kafka no longer names counts as deleted
STALE = 20.0  # seconds after which a view is not used before it was looked after


@dataclass(frozen=True)
class View:
    """One version of the book, and from where on the tail is laid over it."""

    book: search.Book | None
    starts: dict[Source, int]
    front: Front | None
    topic_ids: dict[str, str] = field(default_factory=dict)
    why: str | None = None  # the book is not to be trusted
    made: float = 0.0  # by the monotonic clock
    opened: search.Book | None = None  # what was looked at, trusted or not
    reading: Reading | None = None  # of the tail, see `Live.held`

    def keys(self, id: bytes) -> list[Key]:
        """Wherever the id may be; for a watch."""
        return [(*source, id) for source in self.starts]

    def news(self, key: Key, word: words.Word) -> bool:
        """Whether the tail alone has this word: the book ends before it."""
        return word.version >= self.starts.get(key[:2], 0)


class Newest:
    """The view to answer by. Thread-safe."""

    def __init__(self, settings: Settings, shelf: search.Shelf, admin: AdminClient) -> None:
        self._settings, self._shelf, self._admin = settings, shelf, admin
        self._lock = threading.Lock()  # of the view
        self._making = threading.Lock()  # one view is made at a time
        self._view: View | None = None
        self._checked = 0.0

    def get(self) -> View:
        """The newest that is ready. Raises errors.Unreachable."""
        now = time.monotonic()
        with self._lock:
            view, waited = self._view, now - self._checked
            if view is not None and waited < CHECK:
                return view
            if view is not None and waited < STALE:
                self._checked = now
                threading.Thread(target=self._renew_aside, name="almanac view", daemon=True).start()
                return view
        return self._renewed(now)

    def last(self) -> View | None:
        """The one that was used last."""
        return self._view

    def _renew_aside(self) -> None:
        if not self._making.acquire(blocking=False):
            return  # another one is at it
        try:
            self._renew(warm=True)
        except Exception as error:
            log.info("no newer view: %s", errors.brief(error))
            self._checked = -STALE  # whoever asks next looks themselves, and is told
        finally:
            self._making.release()

    def _renewed(self, asked: float) -> View:
        with self._making:
            view = self._view
            if view is None or self._checked < asked:
                view = self._renew(warm=False)
            return view

    def _renew(self, *, warm: bool) -> View:
        before, (book, broken) = self._view, self._opened()
        if before is not None and before.opened is book and time.monotonic() - before.made < LOOK:
            view = before
        else:
            view = self._made(book, broken)
            if before is not None and before.book is not None and before.book is view.book:
                view = replace(view, front=before.front)  # it knows what was looked up so far
            elif warm:
                _warm(view)
        with self._lock:
            self._view, self._checked = view, time.monotonic()
        return view

    def _made(self, book: search.Book | None, broken: str | None) -> View:
        names = list(self._settings.topics)
        topic_ids = topics.topic_ids(self._admin, names)
        sources = [source for source in scan.partitions(self._admin, names) if source[0] in topic_ids]
        if (before := self._view) is not None and time.monotonic() - before.made < GONE:
            missing = sorted({topic for topic, _ in before.starts.keys() - set(sources)})
            if missing:  # a broker that has just come back does not know all of them yet
                raise errors.Unreachable(f"Kafka does not name all partitions of {', '.join(missing)}: ask once more")
        lows, highs = scan.bounds(self._admin, sources)
        why = broken
        if book is not None:
            kept = topics.delete_retention_ms(self._admin, topic_ids)
            why = trust.distrust(book, topic_ids, lows, highs, kept, thorough=False)
        used = book if why is None else None
        offsets = used.offsets() if used is not None else {}
        return View(
            book=used, starts={source: offsets.get(source, lows.get(source, 0)) for source in sources},
            front=Front(used) if used is not None else None, topic_ids=topic_ids, why=why, made=time.monotonic(),
            opened=book,
        )  # fmt: skip

    def _opened(self) -> tuple[search.Book | None, str | None]:
        """The book if there is one, and why not if it cannot even be opened."""
        try:
            return self._shelf.book(), None
        except read.NoBook:
            return None, None
        except Exception as error:  # whatever is wrong with it, the log has the truth
            return None, trust.unreadable(error)


def _warm(view: View) -> None:
    """Asks what people ask: the book's files are open then."""
    if view.book is not None and view.front is not None:
        view.book.find(b"")
        view.book.hours()
        view.front.reach(int(time.time() * 1000))
