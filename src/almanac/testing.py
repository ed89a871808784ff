"""Almanac in the tests of other programs: fixtures that pytest knows as soon as Almanac is installed.

    def test_reminder(almanac_mini):
        app = MyApp(kafka=almanac_mini.bootstrap_servers)
        app.remind("Ada", at=almanac_mini.now + timedelta(hours=1))
        almanac_mini.advance(timedelta(hours=1))
        assert [record.key for record in almanac_mini.records("reminders")] == [b"Ada"]

Nothing of it is loaded before a test asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from almanac.mini import Mini

__all__ = ["almanac_mini", "almanac_settings", "mini"]


def mini(**settings: Any) -> Mini:
    """A scheduler for a `with` block, or for a fixture of another scope: `mini(schedules_topics="rails=karafka")`."""
    from almanac.mini import Mini
    from almanac.settings import Settings

    return Mini(Settings(**settings))


@pytest.fixture
def almanac_settings() -> dict[str, Any]:
    """The settings of `almanac_mini`, by name. A fixture of the same name in your tests replaces it."""
    return {}


@pytest.fixture
def almanac_mini(almanac_settings: dict[str, Any]) -> Iterator[Mini]:
    """A scheduler and a Kafka of its own for each test; see `almanac.mini.Mini`."""
    with mini(**almanac_settings) as started:
        yield started
