"""tools/ is a package at the root of the repository, not an installed one: tests find it from here."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
