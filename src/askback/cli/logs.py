"""The log of a server: on standard error, as lines of text or as JSON objects."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from askback.settings.sections import LogSettings

_TEXT = "%(asctime)s %(levelname)s %(name)s %(message)s"
_FIELDS = ("run", "engine", "path", "error")
"""What a record may say beside its message, as `extra`."""
_CHATTY = ("httpx", "httpcore", "mcp", "uvicorn")
"""They log addresses and ids of sessions, which may be secret, and every step of a connection."""


def _details(record: logging.LogRecord) -> dict[str, str]:
    return {name: str(record.__dict__[name]) for name in _FIELDS if record.__dict__.get(name)}


class TextFormatter(logging.Formatter):
    """One line, with the run that it is about at its end."""

    def __init__(self) -> None:
        super().__init__(_TEXT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - of the base class
        details = "".join(f" {name}={' '.join(text.split())}" for name, text in _details(record).items())
        return super().formatMessage(record) + details


class JsonFormatter(logging.Formatter):
    """One JSON object per line, in ASCII: a message cannot forge another line."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_details(record),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields)


def configure(settings: LogSettings) -> None:
    """Send the log of this process to standard error. Other packages log nothing below `info`."""
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if settings.format == "json" else TextFormatter())
    logging.basicConfig(level=max(level, logging.INFO), handlers=[handler])
    logging.getLogger("askback").setLevel(level)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
    for name in ("uvicorn.error", "uvicorn.asgi"):
        logging.getLogger(name).addFilter(_rename)


def _rename(record: logging.LogRecord) -> bool:
    """The HTTP library reports only problems, under our name: its start and stop are announced by the command."""
    record.name = "askback.http"
    return True
