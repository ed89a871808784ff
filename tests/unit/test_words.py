"""What our own records say: rule 3 to the letter, on both ways that they are read."""

import pytest

from almanac import formats, words
from almanac.record import Record

ID = "this"


@pytest.mark.rule(3)
@pytest.mark.parametrize("more", [[], [(words.REASON, b"forbidden")]], ids=["two headers", "more"])
@pytest.mark.parametrize(("acks", "whose", "killed"), [(17, ID, 17), (999, ID, 101), (17, "other", 101)])
def test_a_tombstone_kills_what_it_acknowledges_and_nothing_after_itself(
    acks: int, whose: str, killed: int, more: list[tuple[str, bytes | None]]
) -> None:
    """A mirrored one, of another topic, is a plain delete of all before it."""
    record = Record("t", 0, 101, 0, b"a", None, [*words.acknowledgement(acks, whose), *more])
    said = words.read(record, formats.named("etf1"), ID)
    assert isinstance(said, words.Kill)
    assert (said.version, said.ours) == (killed, whose == ID)
