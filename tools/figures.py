"""Puts the figures of bench/results/core.json into README.md, between two markers.

`make bench PART=core` calls it after measuring, `make docs` at any time; a test fails when the block is not what
this would write. Without a result the block says how to get one.
"""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
RESULT = ROOT / "bench" / "results" / "core.json"
BEGIN = "<!-- figures: written by tools/figures.py from bench/results/core.json -->"
END = "<!-- end of figures -->"
NONE_YET = "Nothing has been measured yet: run `make bench PART=core`."


def row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def speed_table(document: dict[str, Any]) -> list[str]:
    lines = [
        row(["command", "beside", "pipeline", "redis, µs", "Holdfast, µs", "redis ÷ Holdfast"]),
        row(["---", "---", "---:", "---:", "---:", "---:"]),
    ]
    for each in document["speed"]:
        spread = f"**{each['ratio']:.2f}** ({each['ratio_min']:.2f} to {each['ratio_max']:.2f})"
        lines.append(
            row([
                each["command"], each["beside"], str(each["pipeline"]), f"{each['redis']['cpu_us_per_op']:.2f}",
                f"{each['ours']['cpu_us_per_op']:.2f}", spread,
            ])
        )
    return lines


def sentences(document: dict[str, Any]) -> list[str]:
    node, pauses, settings = document["memory"]["node"], document["pauses"], document["settings"]
    short = [figure for figure in document["figures"].values() if figure["verdict"] != "pass"]
    lines = [
        f"CPU time of the server per command, median of {settings['rounds']} alternating rounds, "
        f"{settings['connections']} connections, {settings['body_bytes']}-byte bodies; above 1 Holdfast needs "
        f"less than redis-server {document['machine']['redis']}. "
        f"{document['machine']['python']}, {document['machine']['cores']} cores.",
        f"A pending job of {settings['body_bytes']} bytes takes {node['rss_bytes_per_job']:.0f} bytes of memory "
        f"(at {node['jobs']:,} jobs). While {pauses['jobs']:,} jobs were loaded, the longest pause of Python's "
        f"collector was {pauses['gc_longest_ms']:.0f} ms.",
    ]
    for figure in short:
        lines.append(f"Falls short of its goal: {figure['title']}, {figure['value']} (goal {figure['goal']}).")
    return lines


def block() -> str:
    if not RESULT.exists():
        return NONE_YET
    document = json.loads(RESULT.read_text("utf-8"))
    first, *others = sentences(document)
    return "\n\n".join([first, "\n".join(speed_table(document)), *others])


def with_figures(text: str) -> str:
    """The text of README.md with the block as it should be."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit("README.md has lost the markers around its figures")
    return f"{before}{BEGIN}\n\n{block()}\n\n{END}{after}"


def main() -> None:
    text = README.read_text("utf-8")
    fresh = with_figures(text)
    if fresh != text:
        README.write_text(fresh, "utf-8")
        print("written: the figures in README.md")


if __name__ == "__main__":
    main()
