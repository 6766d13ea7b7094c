"""Runs tests side by side: `python -m tools.lanes [--lanes 2] PATH…`, each path in a pytest process of its own.

Most tests with real processes wait more than they compute, so two at a time halve the time of `make test` on two cores.
A lane takes the next path as soon as it is free: name the long ones first. What a path printed is shown in one piece
when it is done, with its time; the last line says which ones failed. What follows `--` is handed to pytest.
"""
from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed


def run(path: str, options: Sequence[str]) -> tuple[str, int, float, str]:
    """The path, pytest's exit code, seconds, and what it printed."""
    start = time.monotonic()
    command = [sys.executable, "-m", "pytest", *options, path]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    return path, done.returncode, time.monotonic() - start, done.stdout


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    ours, options = given, []
    if "--" in given:
        ours, options = given[: given.index("--")], given[given.index("--") + 1 :]
    parser = argparse.ArgumentParser(description="Run tests side by side.")
    parser.add_argument("--lanes", type=int, default=2, help="how many at a time (2)")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a folder or file of tests, long ones first")
    chosen = parser.parse_args(ours)

    start = time.monotonic()
    failed: list[str] = []
    with ThreadPoolExecutor(chosen.lanes) as lanes:
        for each in as_completed([lanes.submit(run, path, options) for path in chosen.paths]):
            path, code, seconds, printed = each.result()
            good = code == 0
            if not good:
                failed.append(path)
            print(f"-- {path}: {'passed' if good else f'FAILED (exit code {code})'} in {seconds:.0f} s")
            print(printed.rstrip(), flush=True)
    verdict = f"FAILED: {', '.join(failed)}" if failed else "all passed"
    print(f"== {len(chosen.paths)} parts in {time.monotonic() - start:.0f} s: {verdict}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
