"""As plain Python a few whole clusters are simulated (CLUSTERS); hunting mutants takes the compiled form."""
from __future__ import annotations

from holdfast import form

collect_ignore = ["test_mutants.py"] if form.PURE else []
