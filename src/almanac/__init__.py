"""Almanac delivers a Kafka message to a topic of your choice at a time of your choice: exactly once, never early.

    with almanac.Runner(almanac.Settings(bootstrap_servers="kafka:9092")) as runner:
        runner.wait()

What is public is loaded when it is used: Spark takes a second to import, and most programs that import `almanac` only
schedule messages.
"""

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

__all__ = ["AlmanacError", "Replaced", "Runner", "Settings", "SettingsError", "Unreachable", "UsageError"]

if TYPE_CHECKING:
    from almanac.errors import AlmanacError, SettingsError, Unreachable, UsageError
    from almanac.runner import Replaced, Runner
    from almanac.settings import Settings
else:
    _HOMES = {"Replaced": "almanac.runner", "Runner": "almanac.runner", "Settings": "almanac.settings"}

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(_HOMES.get(name, "almanac.errors")), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
