"""What it costs that nodes seal what they say to each other: `make bench PART=seal`.

Three nodes, jobs added with REPLICATE 3, got and acknowledged, until the last node has collected the last job: CPU time
of all nodes per job, and how many frames they sent, of what size. Beside it, in one process: the CPU time to seal a
frame of that size and to open it again, both with its nonce, as the nodes do. The figure is the share of the second in
the first. It is steadier than a comparison with a build that seals nothing; for that, see bench.before.

Exit codes and `--quick` are as in bench.core.
"""
from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import cluster, common
from bench.before import Build, cluster_round
from bench.common import Server
from bench.core import QUICK_RESULTS
from bench.goals import Document, Goal, Judged, conduct, judge
from holdfast.shell import seal

GOALS = (
    Goal("seal-1", "sealing, share in the CPU per replicated job at pipeline 1", 0.05, at_least=False),
    Goal("seal-32", "sealing, share in the CPU per replicated job at pipeline 32", 0.03, at_least=False),
)
SEALED_MOST = 4_000_000  # bytes in one measurement of the cipher
FRAMES_MOST = 5_000


@dataclass(frozen=True, slots=True)
class Size:
    rounds: int
    requests: dict[int, int]  # by pipeline


FULL = Size(5, {1: 20_000, 32: 100_000})
QUICK = Size(1, {1: 1_000, 32: 3_000})


def frame_us(size: int) -> float:
    """CPU time to seal and open a frame of so many bytes; the least of some runs."""
    pair = seal.seals(bytes(32), bytes(32))
    data = bytes(size)
    count = max(10, min(FRAMES_MOST, SEALED_MOST // max(1, size)))
    runs = []
    for _ in range(7):
        began = time.process_time_ns()
        for number in range(count):
            pair.into.decrypt(seal.nonce(number), pair.out.encrypt(seal.nonce(number), data, None), None)
        runs.append((time.process_time_ns() - began) / count / 1000)
    return min(runs)


def sent(nodes: list[Server]) -> tuple[int, int]:
    """Frames, and their bytes."""
    return tuple(sum(cluster.fact(node, f"cluster_stats_{what}_sent") for node in nodes)
                 for what in ("messages", "bytes"))  # type: ignore[return-value]


def measure(size: Size) -> dict[str, dict[str, float]]:
    found = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, cluster.cluster_of(cluster.NODES) as nodes:
        for pipeline, requests in size.requests.items():
            build, shares = Build("this", common.NODE_COMMAND), []
            for number in range(size.rounds + 1):
                frames, data = sent(nodes)
                cluster_round(build, nodes, pipeline, requests, Path(folder) / "ids")
                more, more_data = sent(nodes)
                if number == 0:
                    build.costs.clear()  # that warmed up
                    continue
                frames, data = more - frames, more_data - data
                cost = frame_us(data // max(1, frames)) * frames / requests
                shares.append((cost / build.costs[f"cluster-{pipeline}"][-1], cost, frames / requests, data / frames))
            share, cost, per_job, mean = (statistics.median(each) for each in zip(*shares, strict=True))
            found[f"seal-{pipeline}"] = {
                "value": round(share, 4), "job_us": round(statistics.median(build.costs[f"cluster-{pipeline}"]), 2),
                "sealing_us": round(cost, 3), "frames_per_job": round(per_job, 3), "frame_bytes": round(mean),
            }
    return found


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.seal", description="What sealing the bus costs.")
    parser.add_argument("--quick", action="store_true", help="few jobs; judges nothing")
    parser.add_argument("--out", type=Path, help="folder for seal.json (build/quick)")
    given = parser.parse_args(words)

    def measured() -> tuple[Document, list[Judged]]:
        figures = measure(QUICK if given.quick else FULL)
        judged = judge(GOALS, lambda key: figures[key]["value"])
        rows: dict[str, Any] = {
            item.goal.key: {
                "title": item.goal.title, **figures[item.goal.key], "goal": item.goal.text(), "verdict": item.verdict,
            }
            for item in judged
        }
        return {"machine": common.machine(), "settings": {"quick": given.quick}, "figures": rows}, judged

    def publish(document: Document) -> None:
        folder = given.out or QUICK_RESULTS
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "seal.json").write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        for figure in document["figures"].values():
            print(f"{figure['verdict']:>11}  {figure['title']}: {figure['value']:.2%} ({figure['sealing_us']} of "
                  f"{figure['job_us']} µs, {figure['frames_per_job']} frames of {figure['frame_bytes']} bytes)")

    return conduct(measured, publish, json_only=False, is_quick=given.quick)


if __name__ == "__main__":
    sys.exit(main())
