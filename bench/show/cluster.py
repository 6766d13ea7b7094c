"""The list of the cluster: simulated and real nodes under faults, what it costs, and nothing lost."""
from __future__ import annotations

import re

from bench import cluster
from bench.show.lines import ALL_PASS, CLUSTERS, SIMULATOR, Answer, Line, bench_lines, mutants, run, simulated, tests

LOSSES = "tests/proc/test_losses.py"
SWARM_MINUTES = 30
FRESH = 200  # of the simulated clusters, never run before
CLUSTERS_SECONDS_MAX = 60.0
BAD_FRAMES = 100_000


def netns() -> Answer:
    """Ten minutes of faults on a real network. Where there can be no namespaces it has told us nothing."""
    done = run("netns", ["make", "netns", "MINUTES=10"])
    facts = dict(re.findall(r"^(operations|collected|violations) +(.*)$", done.output, re.MULTILINE))
    if not facts:
        return (done.output.strip().splitlines()[-1:] or ["no output"])[0], None
    return "; ".join(f"{name} {text}" for name, text in facts.items()), done.code == 0


def lines() -> list[Line]:
    found = [
        Line(
            "sim",
            "clusters of 3 to 5 nodes simulated under faults, some of them never run before",
            f"≥ {CLUSTERS} in ≤ {CLUSTERS_SECONDS_MAX:.0f} s, nothing broken, nothing idle, the same when run again",
            lambda: simulated(
                "sim", [*SIMULATOR, "--seeds", f"0:{CLUSTERS - FRESH}", "--fresh", str(FRESH)],
                CLUSTERS_SECONDS_MAX,
            ),
        ),
        Line("mutants", "each rule of the cluster taken away in turn", "every one is noticed", mutants),
        Line(
            "swarm",
            f"make swarm MINUTES={SWARM_MINUTES}",
            "no violation",
            lambda: simulated("swarm", ["make", "swarm", f"MINUTES={SWARM_MINUTES}"]),
        ),
        Line(
            "stories",
            "Disque's thirteen test stories on seven real nodes",
            ALL_PASS,
            lambda: tests("stories", "tests/proc/cluster"),
        ),
        Line(
            "frames",
            f"{BAD_FRAMES:,} malformed or spoofed bus frames",
            "link closed, node unharmed",
            lambda: tests(
                "frames", "tests/wire/test_bad_frames.py", "tests/proc/test_bus.py", BAD_FRAMES=str(BAD_FRAMES)
            ),
        ),
    ]
    found += bench_lines("cluster", cluster.GOALS)
    found += [
        Line(
            "cores",
            "nodes behind one port: spread, settings, figures, signals, a node that dies",
            ALL_PASS,
            lambda: tests("cores", "tests/proc/test_cores.py"),
        ),
        Line(
            "netns",
            "make netns MINUTES=10: 5 nodes, 13 kinds of fault",
            "300 operations/s, nothing lost or twice, acks collected in 60 s",
            netns,
        ),
        Line(
            "kills",
            "kill -9 of any replicate - 1 nodes under load",
            "nothing lost, producers go on within 5 s",
            lambda: tests("kills", f"{LOSSES}::test_any_two_nodes_are_killed_and_the_producers_go_on"),
        ),
        Line(
            "rolling",
            "rolling restart of all nodes under load",
            "nothing lost",
            lambda: tests("rolling", f"{LOSSES}::test_all_nodes_restart_one_after_the_other_under_load"),
        ),
    ]
    return found
