"""Cuts of several lengths between real nodes, and how long after each of them the links are back.

    python -m netns.links FOLDER SECONDS...

Run within the namespaces of the lab (INSIDE). Prints a line for each cut: its length, and after how many seconds from
its end a job gets copies at all three nodes, wherever it is added.
"""
from __future__ import annotations

import sys
import time
from pathlib import Path

from cluster_harness import until
from harness import ErrorReply

from netns.lab import Lab
from netns.switch import Rule

SETTINGS = {"cluster-node-timeout": "15000"}
TRY_MS = 100
CALM_S = 3.0
"""Between two cuts: a link that is too young is not replaced."""


def has_all_copies(lab: Lab) -> bool:
    for node in lab.nodes:
        if isinstance(node.ask("ADDJOB", "q", "body", TRY_MS, "REPLICATE", 3), ErrorReply):
            return False
    return True


def main() -> None:
    folder, *lengths = sys.argv[1:]
    lab = Lab(Path(folder), 3, 7, SETTINGS)
    last = lab.addresses[2]
    cut = {path: Rule(cut=True) for other in lab.addresses[:2] for path in ((other, last), (last, other))}
    try:
        for length in lengths:
            until(lambda: has_all_copies(lab))
            time.sleep(CALM_S)
            lab.wire.set(cut)
            time.sleep(float(length))
            assert not has_all_copies(lab), "nothing was cut"
            dropped = lab.wire.set({})
            assert sum(dropped.values()), "no packet met the cut"
            healed = time.monotonic()
            until(lambda: has_all_copies(lab))
            print(length, time.monotonic() - healed, flush=True)
    finally:
        lab.stop()


if __name__ == "__main__":
    main()
