"""How far a wheel's memory reaches: live words due before the horizon are kept, the book brings the later ones.

The horizon moves with each page. A page that begins at offsets O and ends at H is complete together with the memory if
every word since O that is due before H was kept, so it must be known which horizon was in force since where in the log.
"""

from almanac import ports

NEVER = 1 << 62
ERAS = 100

Positions = dict[ports.Source, int]


class Horizon:
    """Times in ms."""

    def __init__(self, keep: int) -> None:
        self._keep = keep  # how far behind the page's end, and ahead of now, words are kept
        self._until = 0
        self._missing_from = NEVER  # words due from here on may be neither in the page nor in memory
        self._eras: list[tuple[Positions, int]] = []  # up to these positions, this horizon was in force
        self._page: Positions = {}  # where the page in use ends: what was said before is in it, and not in memory

    def keeps(self, due: int, now: int) -> bool:
        """Is a live word that is due then kept? What is due soon always is: pages may be late."""
        return due < self._until or due < now + self._keep

    def known_before(self, offsets: Positions) -> int:
        """The due time before which every live word since `offsets` is in memory."""
        if any(offsets.get(source, 0) < position for source, position in self._page.items()):
            return -1  # of a book that was built again
        known = self._until
        for positions, until in reversed(self._eras):
            if all(offsets.get(source, 0) >= position for source, position in positions.items()):
                return known
            known = min(known, until)
        return -1  # it begins before what was read

    def can_wait(self, known: int, now: int) -> bool:
        """May a page be used of which nothing is known from then on? A later one is likely to bring what is missing."""
        return known > now + self._keep // 2

    def is_near(self, now: int) -> bool:
        """Is it time to read what is missing?"""
        return now + self._keep // 4 >= self._missing_from

    def turn(self, positions: Positions, offsets: Positions, page_end: int, known: int) -> None:
        """A page with these offsets takes over from the one in use at these positions."""
        self._page = offsets
        self._eras = [*self._eras[1 - ERAS :], (positions, self._until)]
        self._missing_from = known if known < page_end else NEVER
        self._until = max(self._until, page_end + self._keep)

    def begin(self, offsets: Positions, page_end: int) -> None:
        """A page is all there is; the log is read from its offsets on."""
        self._page = offsets
        self._eras = [(offsets, -1)]
        self._missing_from = NEVER
        self._until = max(self._until, page_end + self._keep)
