"""How the program logs: lines for people, or one JSON object a line."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

from almanac.settings import Settings

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
"""What every log record has; anything else was given as `extra`."""


class JsonLines(logging.Formatter):
    """time, level, logger, message, what was given as `extra`, and the exception if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {key: value for key, value in vars(record).items() if key not in _PLAIN}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure(settings: Settings, stream: TextIO | None = None) -> None:
    """Sets up the log of this process, on stderr unless told otherwise; a second call replaces the first."""
    handler = logging.StreamHandler(stream or sys.stderr)
    plain = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if settings.log_json else plain)
    logging.basicConfig(level=settings.log_level, handlers=[handler], force=True)
    # py4j logs every command that crosses to the JVM, and with a traceback what a stopped stream's batch ran into.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
