"""A log for programs: one JSON object per line, whatever is logged."""
from __future__ import annotations

import json
import logging
import subprocess
import sys
from datetime import datetime
from typing import Any

from holdfast.cli import logs


def line(form: str = logs.JSON, message: str = "%s", args: tuple[object, ...] = ("x",), **more: Any) -> str:
    record = logging.LogRecord("holdfast.worker", logging.WARNING, __file__, 1, message, args, more.pop("error", None))
    vars(record).update(more)
    return logs.formatter(form, "%(levelname)s %(message)s", core=2).format(record)


def test_a_line_is_an_object_with_its_fields() -> None:
    found = json.loads(line(message="job %s: %s", args=("DI1", "no"), job="DI1"))
    assert datetime.fromisoformat(found.pop("time")).utcoffset() is not None
    assert found == {"level": "warning", "logger": "holdfast.worker", "message": "job DI1: no", "core": 2, "job": "DI1"}


def test_what_has_several_lines_or_is_no_text_stays_on_one() -> None:
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        text = line(message="a\n%s", args=(b"\xff",), error=sys.exc_info(), job=b"\xff")
    assert "\n" not in text
    found = json.loads(text)
    assert found["message"] == "a\nb'\\xff'" and found["error"].endswith("ValueError: first\nsecond")


def test_a_message_is_told_once_and_without_colours() -> None:
    found = json.loads(line(color_message="\x1b[1mx\x1b[0m"))
    assert found["message"] == "x" and "color_message" not in found


def test_people_get_lines() -> None:
    assert line(logs.TEXT) == "WARNING x"


def test_a_node_that_was_told_to_logs_nothing_else() -> None:
    words = [sys.executable, "-m", "holdfast", "node", "--port", "0", "--set", "log-format=json"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as node:
        assert node.stderr is not None
        told = []
        for each in node.stderr:
            told.append(json.loads(each))
            if told[-1]["message"].startswith("ready on"):
                node.terminate()
    assert node.returncode == 0 and told[-1]["message"] == "stopped"
    assert {each["level"] for each in told} == {"info"}
