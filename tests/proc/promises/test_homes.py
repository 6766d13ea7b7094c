"""Keys and schedules after the node that decided about them is dead, replaced or silent; and who hides whom.

Node-timeout is the default where a closed connection tells, and four seconds where only silence does.
"""
from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from cluster_harness import IN_MEMORY, Cluster, Member, until
from harness import ErrorReply

Figure = Callable[[str, float, float], None]

PATIENT = {**IN_MEMORY, "cluster-node-timeout": "15000"}
SILENT_MS = 4000
SILENT = {**IN_MEMORY, "cluster-node-timeout": str(SILENT_MS)}
TOLD_S = 1.0
"""After a closed connection."""
MISSED_S = SILENT_MS / 1000 + 1.0
"""After silence."""
KEYS = 60
"""So many that each of three nodes decides about some."""
TRY_MS = 150
"""How long one attempt waits for the home of its key."""
SCHEDULES = 30
EVERY_S = 1.0
LEARNT_S = 5.0
"""A newcomer knows who is there."""


@contextlib.contextmanager
def cluster_of(folder: Path, size: int, settings: dict[str, str]) -> Iterator[Cluster]:
    cluster = Cluster(folder, size, settings)
    try:
        use_keys(cluster[0], "first")
        time.sleep(3)  # who is first in the order of a slot gets it when it has been there for two seconds
        yield cluster
    finally:
        cluster.stop()


def use_keys(node: Member, name: str) -> list[bytes]:
    """Unique jobs and jobs of groups, under keys of which each node decides some: those that were refused."""
    line = node.client()
    for number in range(KEYS):
        line.send("ADDJOB", "q", "body", TRY_MS, "REPLICATE", 2, "UNIQUE", f"{name}-{number}")
        line.send("ADDJOB", "q", "body", TRY_MS, "REPLICATE", 2, "GROUP", f"{name}-{number}")
    answers = [line.read() for _ in range(2 * KEYS)]
    line.close()
    return [each for each in answers if isinstance(each, ErrorReply)]


def until_decided(node: Member, since: float, name: str) -> float:
    """Seconds since then until keys are decided about, whichever they are: adds under new ones are all answered."""
    rounds = iter(range(1_000_000))
    until(lambda: not use_keys(node, f"{name}-{next(rounds)}"))
    return time.monotonic() - since


def replace(node: Member) -> None:
    """A container without a volume: the next one has its address, and another id."""
    node.kill()
    shutil.rmtree(node.folder / "data")
    node.start()


def test_keys_of_a_killed_home_are_decided_elsewhere(tmp_path: Path, figure: Figure) -> None:
    with cluster_of(tmp_path, 3, PATIENT) as cluster:
        a, b, c = cluster
        for number, at in enumerate((a, b)):
            killed = time.monotonic()
            c.kill()
            figure("keys of a home after kill -9, s", until_decided(at, killed, f"killed-{number}"), TOLD_S)
            c.start()
            until(lambda: len(a.flags()) == 3 and cluster.is_whole())
            time.sleep(3)


def test_keys_of_a_silent_home_are_decided_elsewhere(tmp_path: Path, figure: Figure) -> None:
    with cluster_of(tmp_path, 3, SILENT) as cluster:
        a, _, c = cluster
        frozen = time.monotonic()
        c.freeze()
        figure("keys of a home after SIGSTOP, s", until_decided(a, frozen, "frozen"), MISSED_S)
        c.thaw()


def test_strangers_and_members_that_nobody_forgets_make_no_difference(tmp_path: Path, figure: Figure) -> None:
    with cluster_of(tmp_path, 3, PATIENT) as cluster:
        a, b, c = cluster
        for generation in range(3):
            replace(c)
            came = time.monotonic()
            took = until_decided(a, came, f"stranger-{generation}")
            figure(f"keys once stranger {generation + 1} is ready, s", took, TOLD_S)
            until(lambda: all(c.id in node.flags() for node in (a, b)))
            time.sleep(3)
        assert len(a.flags()) == 6, "three members are dead, and nobody forgot them"
        killed = time.monotonic()
        c.kill()
        figure("keys of the last stranger after kill -9, s", until_decided(b, killed, "last"), TOLD_S)


def test_every_schedule_has_an_owner(tmp_path: Path, figure: Figure) -> None:
    """Each entry runs every second: that is when it is seen that it has an owner."""
    with cluster_of(tmp_path, 3, PATIENT) as cluster:
        a, _, c = cluster
        names = [f"cron-{number}" for number in range(SCHEDULES)]
        for name in names:
            a.ask("CRON", "SET", name, "@every 1s", name, "body", "RETRY", 60)
        made = {name: a.get(name, 5) for name in names}
        killed, at = time.monotonic(), time.time_ns()
        c.kill()
        for name in names:
            while a.show(made[name])["ctime"] <= at:
                made[name] = a.get(name, 5)
        figure("all schedules run again after kill -9, s", time.monotonic() - killed, TOLD_S + EVERY_S)


def test_the_dead_do_not_hide_the_living(tmp_path: Path, figure: Figure) -> None:
    """Three members are dead and not forgotten. A newcomer is told of one node, and learns of the other."""
    with cluster_of(tmp_path, 5, SILENT) as cluster:
        a, b, *others = cluster
        for node in others:
            node.kill()
        until(lambda: all(a.flags()[node.id] - {"myself"} for node in others))
        newcomer = cluster.grow()
        newcomer.start()
        ready = time.monotonic()
        until(lambda: b.id in newcomer.flags() and not newcomer.flags()[b.id])
        job = newcomer.add("hello", "body", "REPLICATE", 3)
        assert b.get("hello") == job
        figure("a newcomer among three dead members reaches who is alive, s", time.monotonic() - ready, LEARNT_S)
