"""python -m tests.conformance.rewrite [name ...]: write what the node answers now into the transcripts.

For `make rewrite-scripts`. The transcripts say what the node *should* answer: read the diff before you
believe it.
"""
from __future__ import annotations

import sys

from .transcript import files, rewritten


def main(names: list[str]) -> None:
    for path in files():
        if names and path.stem not in names:
            continue
        before = path.read_text()
        after = rewritten(before)
        if after != before:
            path.write_text(after)
            print(f"rewritten: {path}")


if __name__ == "__main__":
    main(sys.argv[1:])
