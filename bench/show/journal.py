"""The list of the journal: crashes at every point, kills, faults of the disk, overflow, history, and what it costs."""
from __future__ import annotations

from bench import journal
from bench.show.lines import ALL_PASS, CLUSTERS, SIMULATOR, Line, bench_lines, simulated, tests

LOSSES = "tests/proc/test_losses.py"
JOURNAL = "tests/proc/test_journal.py"
FOLDERS = "tests/proc/test_folders.py"
DISKS = "tests/proc/test_disks.py"
HISTORY = "tests/proc/test_history.py"
OWN = "tests/proc/test_own_journal.py"
OVERFLOW = "tests/proc/test_overflow.py"
OVERFLOW_MB = 10_240
KILLS = 100  # for each of two policies
MOVES_S = 60


def lines() -> list[Line]:
    found = [
        Line(
            "points",
            "a crash at every write and sync of append, rotation, snapshot and rewrite, all torn lengths",
            "nothing answered is lost, nothing at most once comes twice",
            lambda: tests("points", "tests/unit/journal/test_crashes.py"),
        ),
        Line(
            "kills",
            f"SIGKILL of a real node {2 * KILLS} times, at random, under load",
            "nothing answered is lost, nothing at most once comes twice",
            lambda: tests("kills", f"{JOURNAL}::test_a_node_killed_at_random_keeps_every_word", KILLS=str(KILLS)),
        ),
        Line(
            "moves",
            "a crash at every step of moving a queue to a journal of its own and back, and of switching the journal on",
            "nothing answered is lost, nothing at most once comes twice, all or nothing is there",
            lambda: tests(
                "moves", "tests/unit/journal/test_own.py", "tests/unit/journal/test_beginning.py", OWN_SEEDS="60"
            ),
        ),
        Line(
            "move-kills",
            f"SIGKILL of a real node for {MOVES_S} s, in the middle of moving a queue to a journal of its own and back",
            "nothing answered is lost, no job comes twice",
            lambda: tests("move-kills", "-s", OWN, figure=r"\d+ kills", MOVES_S=str(MOVES_S)),
        ),
        Line(
            "kept",
            "what rewrites have replaced is kept up to a bound, over a crash at every step and on a real node",
            ALL_PASS,
            lambda: tests("kept", "tests/unit/journal/test_old.py", "tests/proc/test_journal_kept.py"),
        ),
        Line(
            "sim",
            f"{CLUSTERS} clusters simulated with power cuts and restarts",
            "no violation",
            lambda: simulated(
                "journal-sim", [*SIMULATOR, "--seeds", f"0:{CLUSTERS}"]
            ),
        ),
        Line(
            "faults",
            "disk full, sync error, torn end, damage, wrong owner, a folder in use, in the way, read-only or forbidden",
            ALL_PASS,
            lambda: tests("faults", "tests/unit/journal", JOURNAL, FOLDERS, DISKS, KILLS="1"),
        ),
        Line(
            "overflow",
            f"{OVERFLOW_MB // 1024} GB of queued bodies on a node with maxmemory 1gb",
            "less than 1.5 GB resident, adding and getting go on, order kept",
            lambda: tests("overflow", "-s", OVERFLOW, figure=r"highest rss \d+ MB", OVERFLOW_MB=str(OVERFLOW_MB)),
        ),
        Line(
            "history-points",
            "history: a crash at every step, every torn length, rotation, retention, a full disk, a failed sync",
            "no reader misses or is shown twice what is there",
            lambda: tests("history-points", "tests/unit/journal/test_history.py", "tests/unit/core/test_history.py"),
        ),
        Line(
            "history-kills",
            f"history over {KILLS // 5} kills of a real node under load",
            "all that was answered is told, once and in order",
            lambda: tests("history-kills", HISTORY, KILLS=str(KILLS)),
        ),
        Line(
            "restart",
            "a clean restart under load",
            "no job in flight is doubled",
            lambda: tests("restart", f"{JOURNAL}::test_a_clean_restart_under_load_doubles_no_job_in_flight"),
        ),
    ]
    found += [
        Line(
            "rolling",
            "three nodes with journals restarted one after the other under load, without waiting",
            "nothing lost",
            lambda: tests("rolling", f"{LOSSES}::test_nodes_with_journals_restart_one_after_the_other_without_waiting"),
        ),
    ]
    found += bench_lines("journal", journal.GOALS)
    return found
