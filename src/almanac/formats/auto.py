"""`auto`: tells the header formats apart, record by record: karafka's names are its own, anything else is `etf1`."""

from almanac import formats
from almanac.formats import etf1, karafka
from almanac.record import Headers, Named, Record, first


class Auto:
    """One of two formats for each record."""

    name = "auto"

    def __init__(self, grace: int = 0) -> None:
        self._etf1, self._karafka = etf1.Etf1(grace), karafka.Karafka()

    def plan(self, record: Record, named: Named) -> tuple[int, str]:
        """See formats.Format."""
        return self._of(named).plan(record, named)

    def decode(self, record: Record, named: Named) -> formats.Schedule:
        """See formats.Format."""
        return self._of(named).decode(record, named)

    def speaks(self, named: Named) -> bool:
        """See formats.Format."""
        return self._of(named).speaks(named)

    def acknowledged(self, named: Named) -> int | None:
        """See formats.Format."""
        return self._of(named).acknowledged(named)

    def tombstone(self, record: Record) -> Headers:
        """See formats.Format."""
        return self._of(first(record.headers)).tombstone(record)

    def null(self) -> Headers:
        """Karafka's: who reads `etf1` does not look at the headers of a null value."""
        return self._karafka.null()

    def _of(self, named: Named) -> formats.Format:
        return self._karafka if is_karafka(named) else self._etf1


def is_karafka(named: Named) -> bool:
    """Do these headers make it a record of karafka's?"""
    return karafka.VERSION in named or karafka.TYPE in named
