"""The version, in one place: pyproject.toml repeats it, and a test compares the two."""
from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
