"""The list of the scheduler: rates, groups, keys, leases, fates and schedules, under faults, and what they cost."""
from __future__ import annotations

from bench import scheduler
from bench.show.lines import ALL_PASS, CLUSTERS, SIMULATOR, Line, bench_lines, mutants, simulated, tests

SWARM_MINUTES = 10


def lines() -> list[Line]:
    found = [
        Line(
            "sim",
            f"{CLUSTERS} clusters simulated, with groups, keys, limits, tenants, leases and schedules at random",
            "no violation",
            lambda: simulated(
                "scheduler-sim",
                [*SIMULATOR, "--seeds", f"0:{CLUSTERS}"],
            ),
        ),
        Line(
            "swarm",
            f"make swarm MINUTES={SWARM_MINUTES}: clusters never simulated before",
            "no violation",
            lambda: simulated("scheduler-swarm", ["make", "swarm", f"MINUTES={SWARM_MINUTES}"]),
        ),
        Line("mutants", "each rule of the cluster taken away in turn, those of the scheduler among them", "all caught",
             mutants),
        Line(
            "scenarios",
            "directed scenarios: rates, bounds, settings, schedules, groups, keys, leases, fates, batches",
            ALL_PASS,
            lambda: tests("scheduler-scenarios", "tests/sim/cluster/test_scenarios.py"),
        ),
        Line(
            "life",
            "a worker or its node killed before, during and after the work",
            "acked or dead, with its tries counted",
            lambda: tests("life", "tests/proc/test_steps_of_a_life.py"),
        ),
        Line(
            "limits",
            "rates, concurrency and bounds over three nodes; tenants; cron; settings",
            ALL_PASS,
            lambda: tests(
                "limits", "tests/unit/core/test_shared_limits.py", "tests/unit/core/test_rules.py",
                "tests/unit/core/test_cron.py", "tests/unit/core/test_schedule.py", "tests/unit/core/test_registers.py",
            ),
        ),
        Line(
            "input",
            "rates of 0, negative and huge, names of 64 KB, schedules that are none, results too long, open batches",
            "clear errors, nothing lost",
            lambda: tests("input", "tests/conformance"),
        ),
    ]
    found += bench_lines("scheduler", scheduler.GOALS)
    return found
