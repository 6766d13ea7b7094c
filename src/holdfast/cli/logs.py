"""How a log is written: lines for people, or a JSON object per line for programs that collect logs.

    {"time": "2030-01-31T12:00:00.123+00:00", "level": "error", "logger": "holdfast.worker", "message": "job … failed",
     "job": "DI…", "task": "send", "error": "Traceback …"}

What a line is about (a job, a task, a node) is a field of its own where whoever logs says so with `extra`.
"""
from __future__ import annotations

import datetime
import json
import logging
import sys
from typing import Any, Final

TEXT: Final = "text"
JSON: Final = "json"
FORMS: Final = (TEXT, JSON)

USUAL: Final = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "color_message"}
"""What each record has; the rest somebody has added. `color_message` is uvicorn's: the message again, for terminals."""


class JsonLines(logging.Formatter):
    def __init__(self, **about: Any) -> None:
        """`about`: fields of every line."""
        super().__init__()
        self.about = about

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        fields = {
            "time": when.isoformat(timespec="milliseconds"), "level": record.levelname.lower(), "logger": record.name,
            "message": record.getMessage(), **self.about,
        }
        fields |= {name: value for name, value in vars(record).items() if name not in USUAL}
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False, default=str)


def formatter(form: str, text: str, **about: Any) -> logging.Formatter:
    """`text` is the format of lines for people."""
    return JsonLines(**about) if form == JSON else logging.Formatter(text)


def start(form: str, level: str, text: str = "%(asctime)s %(levelname)s %(message)s") -> None:
    """All that this process logs, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(form, text))
    logging.basicConfig(level=level.upper(), handlers=[handler])
