"""Log lines, for people or as JSON."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

QUIET = {
    "kopf": logging.WARNING,
    "aiohttp.access": logging.WARNING,
    "asyncio": logging.WARNING,
    "urllib3": logging.ERROR,  # what becomes of a request, we say
}


class JsonFormatter(logging.Formatter):
    """One object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up(form: str, level: str) -> None:
    """Sets up logging to standard error; frameworks speak only when something is wrong, or with DEBUG."""
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if form == "json" else text)
    logging.basicConfig(level=level, handlers=[handler], force=True)
    if level != "DEBUG":
        for name, least in QUIET.items():
            logging.getLogger(name).setLevel(least)
