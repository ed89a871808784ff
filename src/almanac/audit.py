"""Who created, moved, cancelled or fired what, and who held what back: a line of JSON each, and never a payload.

The file is `log/audit.jsonl` in the data folder; the logger `almanac.audit` says the same.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from almanac import errors
from almanac.settings import Settings

log = logging.getLogger("almanac.audit")


class Audit:
    """Appends to the audit log. Thread-safe; several processes may share the file."""

    def __init__(self, settings: Settings) -> None:
        self.path = Path(settings.data_folder).expanduser().absolute() / "log" / "audit.jsonl"
        self._group = settings.group_id
        self._lock = threading.Lock()

    @contextmanager
    def act(self, act: str, who: str, **about: Any) -> Iterator[dict[str, Any]]:
        """Records what is done in the block, also if it fails; what becomes known meanwhile is put into the dict."""
        told: dict[str, Any] = dict(about)
        try:
            yield told
        except BaseException as error:
            self.write(act, who, **told, outcome="failed", error=errors.brief(error))
            raise
        self.write(act, who, **{"outcome": "done", **told})

    def write(self, act: str, who: str, **about: Any) -> None:
        """One line. That it cannot be written is logged, and stops nobody: the logger has it too."""
        shown = {name: _shown(value) for name, value in about.items()}
        line = json.dumps({"at": int(time.time() * 1000), "group": self._group, "act": act, "who": who, **shown})
        log.info("%s", line)
        try:
            with self._lock:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(line + "\n")
        except OSError as error:
            log.error("%s could not be written: %s", self.path, error.strerror)


def _shown(value: Any) -> Any:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value
