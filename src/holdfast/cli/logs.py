"""How a log is written: lines for people, or a JSON object per line for programs that collect logs.

    {"time": "2030-01-31T12:00:00.123+00:00", "level": "error", "logger": "holdfast.worker", "message": "job … failed",
     "job": "DI…", "task": "send", "error": "Traceback …"}

What a line is about (a job, a task, a node) is a field of its own where whoever logs says so with `extra`.
"""
from __future__ import annotations

import datetime
import json
import logging
import os
import re
import sys
from typing import Any, Final

TEXT: Final = "text"
JSON: Final = "json"
FORMS: Final = (TEXT, JSON)

UNSEEN: Final = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")

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


class TextLines(logging.Formatter):
    """Lines for people. What others have named (a queue, a user that nobody is) may hold line ends, and codes that a
    terminal obeys or that turn a line around: here these are seen, and do nothing. A traceback keeps its lines; each of
    them begins with a space, so that none looks like a line of the log."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = visible(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        return "\n".join(" " + visible(line) for line in super().formatException(ei).split("\n"))


def visible(text: str) -> str:
    """With control characters, also those of writing from right to left, as escapes."""
    return UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def formatter(form: str, text: str, **about: Any) -> logging.Formatter:
    """`text` is the format of lines for people."""
    return JsonLines(**about) if form == JSON else TextLines(text)


def file_handler(path: str) -> logging.StreamHandler[Any]:
    """A log in a file, for its owner alone where it is new: it names queues, users and jobs."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    return logging.FileHandler(path)


def start(form: str, level: str, text: str = "%(asctime)s %(levelname)s %(message)s") -> None:
    """All that this process logs, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(form, text))
    logging.basicConfig(level=level.upper(), handlers=[handler])
