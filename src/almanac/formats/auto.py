"""`auto`: tells the header formats apart, record by record: karafka's names are its own, anything else is `etf1`."""

from almanac import formats
from almanac.formats import etf1, karafka
from almanac.record import Headers, Record

_KARAFKA = frozenset((karafka.VERSION, karafka.TYPE))


class Auto:
    """One of two formats for each record."""

    name = "auto"

    def __init__(self, grace: int = 0) -> None:
        self._etf1, self._karafka = etf1.Etf1(grace), karafka.Karafka()

    def decode(self, record: Record) -> formats.Schedule:
        """See formats.Format."""
        return self._of(record).decode(record)

    def speaks(self, record: Record) -> bool:
        """See formats.Format."""
        return self._of(record).speaks(record)

    def acknowledged(self, record: Record) -> int | None:
        """See formats.Format."""
        return self._of(record).acknowledged(record)

    def tombstone(self, record: Record) -> Headers:
        """See formats.Format."""
        return self._of(record).tombstone(record)

    def null(self) -> Headers:
        """Karafka's: who reads `etf1` does not look at the headers of a null value."""
        return self._karafka.null()

    def _of(self, record: Record) -> formats.Format:
        for name, _ in record.headers:
            if name in _KARAFKA:
                return self._karafka
        return self._etf1
