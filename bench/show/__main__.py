"""Runs a list of promises and judges it: `python -m bench.show node`. See the package for what a list is."""
from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from bench import common
from bench.show import cluster, console, doors, journal, node, pipeline, promises, scheduler, security, setup
from bench.show.judging import chosen, show
from bench.show.lines import Line

RESULTS = common.ROOT / "bench" / "results"

LISTS: dict[str, Callable[[], list[Line]]] = {
    "node": node.lines,
    "cluster": cluster.lines,
    "journal": journal.lines,
    "scheduler": scheduler.lines,
    "doors": doors.lines,
    "pipeline": pipeline.lines,
    "console": console.lines,
    "security": security.lines,
    "setup": setup.lines,
    "promises": promises.lines,
}


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.show", description="Run and judge a list of promises."
    )
    parser.add_argument("name", choices=sorted(LISTS))
    parser.add_argument(
        "--only", metavar="KEYS", help="some lines, separated by commas; the published file stays"
    )
    parser.add_argument("--list", action="store_true", help="print the lines and their keys, run nothing")
    given = parser.parse_args(words)
    common.end_on_sigterm()
    lines = chosen(LISTS[given.name](), given.only)
    if given.list:
        for line in lines:
            print(f"{line.key:16} {line.title}; goal: {line.goal}")
        return common.EXIT_PASS
    # A table of some lines is not the table: keep what the last whole run wrote.
    return show(given.name, lines, RESULTS if given.only is None else None)


if __name__ == "__main__":
    sys.exit(main())
