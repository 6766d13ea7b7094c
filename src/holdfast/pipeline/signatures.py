"""What failures of one kind have in common: their text without numbers, ids, addresses and quoted words. No Spark.

`stages/failures.py` does the same steps in Spark.
"""
from __future__ import annotations

import re
from typing import Final

SIGNATURE_MAX: Final = 160
"""Characters of a signature: a line on a screen and a bit."""
NO_WORDS: Final = "(no error given)"
STEPS: Final = [
    (r"(?s)\n.*", ""),                                   # the first line says it
    (r"DI[0-9a-f]{44}SQ", "<job>"),
    (r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F-]{9,}", "<id>"),
    (r"0x[0-9a-fA-F]+", "<n>"),
    (r"'[^']*'|\"[^\"]*\"", "<…>"),
    (r"\b[0-9a-fA-F]{12,}\b", "<id>"),
    (r"[0-9]+", "<n>"),
    (r"(<n>[.:,])+<n>", "<n>"),                          # addresses, times, versions
    (r"\s+", " "),
]
"""Patterns that mean the same to Python and to Java."""


def signature(error: str) -> str:
    """What is the same in failures of one kind."""
    for pattern, by in STEPS:
        error = re.sub(pattern, by, error)
    return error.strip(" ")[:SIGNATURE_MAX] or NO_WORDS
