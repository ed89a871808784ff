"""What a ledger remembers of a page's rows that went out: their versions, until a page knows of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logs import record, schedule

from almanac import formats, words
from almanac.ledger import Entry, Ledger
from almanac.offsets import Offsets
from almanac.record import Headers, Record

ID = "id"
PAGE = 10  # the page speaks for offsets below


@pytest.fixture
def ledger() -> Ledger:
    made = Ledger("schedules", 0, ID, formats.named("etf1"))
    made.reset(PAGE)
    return made


def row(ledger: Ledger, version: int = 3) -> Entry:
    """As a page brings it."""
    word = record(version, b"k", b"v", schedule())
    return Entry(ledger, version, word, formats.schedule(word, ledger.format), paged=True)


def tombstone(offset: int, version: int = 3) -> Record:
    return record(offset, b"k", None, words.acknowledgement(version, ID))


def take(ledger: Ledger, said: Record) -> bytes | None:
    return ledger.take(said, lambda _: True)


def test_a_row_that_went_out_is_over_and_takes_no_state(ledger: Ledger) -> None:
    ledger.fired(row(ledger))
    assert not ledger.alive(row(ledger))
    assert ledger.alive(row(ledger, 4))
    assert take(ledger, tombstone(PAGE)) is None
    assert ledger.state(b"k") is None
    assert ledger.net == -1


def test_it_stays_over_until_a_page_knows_its_tombstone(ledger: Ledger) -> None:
    ledger.fired(row(ledger))
    ledger.turn(PAGE)
    take(ledger, tombstone(PAGE))
    ledger.turn(PAGE)  # a page from before it
    assert not ledger.alive(row(ledger))
    ledger.turn(PAGE + 1)
    ledger.turn(PAGE + 1)
    assert ledger.alive(row(ledger))  # no page brings it any more, and nothing is remembered
    assert len(ledger) == 0


def test_two_pages_from_before_its_tombstone_do_not_bring_it_back(ledger: Ledger) -> None:
    ledger.fired(row(ledger))
    take(ledger, tombstone(PAGE))
    for _ in range(2):
        ledger.turn(PAGE)
        assert not ledger.alive(row(ledger))


@pytest.mark.parametrize(("offset", "left"), [(PAGE + 1, 1), (PAGE + 2, 0)])
def test_a_page_that_knows_all_that_was_read_leaves_nothing_to_remember(ledger: Ledger, offset: int, left: int) -> None:
    for number in range(2):
        take(ledger, record(PAGE + number, b"k%d" % number, b"v", schedule()))
    ledger.turn(offset)
    assert (len(ledger) > 0) == (left > 0)
    assert (ledger.state(b"k1") is not None) == (left > 0)


def test_a_later_page_that_has_it_adrift_does_not_bring_it_back(ledger: Ledger) -> None:
    ledger.fired(row(ledger))
    ledger.turn(PAGE)
    ledger.adopt(row(ledger), lambda _: pytest.fail("kept"))
    assert not ledger.adrift


def test_our_repeat_that_comes_after_it_went_out_is_followed_by_a_cancel(ledger: Ledger) -> None:
    ledger.fired(row(ledger))
    take(ledger, tombstone(PAGE))
    take(ledger, record(PAGE + 1, b"k", b"v", schedule() + words.repeat(3, 0, ID)))
    assert ledger.adrift == {b"k": 3}  # else the log, reduced to its last record, would fire


def test_a_word_that_follows_counts(ledger: Ledger) -> None:
    ledger.fired(row(ledger))
    take(ledger, tombstone(PAGE))
    assert take(ledger, record(PAGE + 1, b"k", b"again", schedule())) == b"k"
    assert isinstance(ledger.state(b"k"), Entry)
    assert ledger.net == 0


@given(st.lists(st.integers(0, 1 << 50) | st.integers(0, 2_000)), st.lists(st.integers(0, 2_000)))
def test_offsets_are_a_set(added: list[int], asked: list[int]) -> None:
    offsets = Offsets()
    for offset in added:
        offsets.add(offset)
    assert [offset in offsets for offset in added + asked] == [offset in set(added) for offset in added + asked]


def test_dense_offsets_take_little() -> None:
    offsets = Offsets()
    for offset in range(100_000):
        offsets.add(offset)
    assert len(offsets) == 391


def test_what_a_peer_acknowledges_is_counted_once() -> None:
    """A shadow fires nothing: the peer's tombstone, which names a version too, is the first that comes."""
    ledger = Ledger("schedules", 0, ID, formats.named("auto"))
    ledger.reset(PAGE)
    ledger.fired(row(ledger))
    headers: Headers = [("schedule_source_type", b"tombstone"), ("schedule_source_offset", b"3")]
    take(ledger, record(PAGE, b"k", None, headers))
    assert ledger.net == -1
    assert not ledger.alive(row(ledger))
