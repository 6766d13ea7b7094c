"""The scenarios and the swarm against the real cluster are told by `make cluster-sim` until they all hold.

The simulator and its checkers themselves are tested with everything else.
"""
from __future__ import annotations

import os

collect_ignore = [] if os.environ.get("CLUSTER_SIM") else ["test_scenarios.py", "test_swarm.py"]
