"""Jobs are never out of reach: crashes hide none, a node that dies takes none along, and no restart puts one off."""
from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import pack

import pytest
from cluster_harness import PATIENCE_S, SETTINGS, Cluster, Member, until

Figure = Callable[[str, float, float], None]

CALM_S = 0.1
BACK_S = 2.0
"""From when a node that was killed has its links again."""
FAILED_S = 5.0
"""From when a node counts as failed."""
JOBS = 100
RETRY_S = 300
"""As by default."""
LEASE_S = 12
DELAY_S = 20
ROUNDS = 3
"""Other programs on the machine only ever make a round slower: the quietest counts."""
TOLD_S = 2.0
"""So long after a hand-out every holder has heard of it, on a busy machine too."""
CLOCK = Path(__file__).parents[1] / "netns" / "clock.c"


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("reach"), 3, SETTINGS)
    yield cluster
    cluster.stop()


def queued(cluster: Cluster) -> int:
    return sum(node.ask("QLEN", "q") for node in cluster)


def take_all(node: Member, got: set[bytes], ending: threading.Event) -> None:
    """A worker that is never done: it takes what there is and acknowledges it."""
    with node.client() as client:
        while not ending.is_set():
            reply = client.ask("GETJOB", "TIMEOUT", 200, "COUNT", 20, "FROM", "q")
            if reply:
                got.update(job[1] for job in reply)
                client.ask("ACKJOB", *(job[1] for job in reply))


def test_a_job_meets_a_worker_that_waits_anywhere(cluster: Cluster, figure: Figure) -> None:
    """Added at one node, wanted at another, on a calm cluster: the slowest of many."""
    a, b, _ = cluster

    def slowest() -> float:
        took: list[float] = []
        with b.client() as worker:
            for number in range(JOBS):
                worker.send("GETJOB", "FROM", "q")
                until(lambda: b.qstat("q").get("blocked", 0) == 1)
                began = time.monotonic()
                job = a.add("q", str(number))
                assert worker.read()[0][1] == job
                took.append(time.monotonic() - began)
                b.ask("ACKJOB", job)
        return max(took)

    best = min(slowest() for _ in range(ROUNDS))
    figure(f"the slowest of {JOBS} jobs, from its ADDJOB until a worker at another node has it, s", best, CALM_S)


def test_crashes_one_after_the_other_hide_no_job(cluster: Cluster, figure: Figure) -> None:
    """Jobs wait at the third node. It is killed and started, then the second, then the first, twice."""
    cluster[2].add_many("q", [str(n) for n in range(JOBS)], "RETRY", RETRY_S)
    slowest = 0.0
    for number in (2, 1, 0, 2, 0, 1):
        cluster[number].kill()
        until(lambda number=number: not any(
            node.counters()["cluster_reachable_nodes"] > 1 for node in cluster if node.number != number))
        cluster[number].start()
        cluster.settle()
        linked = time.monotonic()
        until(lambda: queued(cluster) == JOBS)
        slowest = max(slowest, time.monotonic() - linked)
    figure(f"from the links of a node that was killed until all {JOBS} jobs are queued, s", slowest, BACK_S)


def test_a_node_that_dies_takes_no_waiting_job_along(cluster: Cluster, figure: Figure) -> None:
    """Jobs wait at each of three nodes, one of which is killed for good. All come to workers at the others."""
    a, b, c = cluster
    jobs = {job for node in cluster for job in node.add_many("q", [str(n) for n in range(JOBS)], "RETRY", RETRY_S)}
    got: set[bytes] = set()
    ending = threading.Event()
    c.kill()
    workers = [threading.Thread(target=take_all, args=(node, got, ending)) for node in (a, b)]
    for worker in workers:
        worker.start()
    try:
        until(lambda: "fail" in a.flags()[c.id] and "fail" in b.flags()[c.id])
        failed = time.monotonic()
        until(lambda: got == jobs)
        figure(
            f"from when a node counts as failed until all {JOBS} jobs that waited there were handed out, s",
            time.monotonic() - failed, FAILED_S,
        )
    finally:
        ending.set()
        for worker in workers:
            worker.join()


def test_what_a_dead_node_had_out_is_out(cluster: Cluster, figure: Figure) -> None:
    """Workers have jobs of a node that dies. They have them for all of their time, and then others get them."""
    a, b, c = cluster
    c.add_many("q", [str(n) for n in range(JOBS)], "RETRY", LEASE_S)
    with c.client() as worker:
        leased = {job[1] for job in worker.ask("GETJOB", "COUNT", JOBS, "FROM", "q")}
    since = time.monotonic()
    assert len(leased) == JOBS
    until(lambda: all(
        node.show(job)["next-awake-within"] > 1000 * (LEASE_S + 0.5 - (time.monotonic() - since))
        for node in (a, b) for job in list(leased)[:10]
    ), TOLD_S)
    c.kill()
    first = b.get("q", LEASE_S + PATIENCE_S)
    took = time.monotonic() - since
    assert first in leased
    figure("how much of its time a worker of a dead node was short of, s", max(0.0, LEASE_S - took), 0.01)
    figure("from the end of the leases of a dead node until another worker has the first, s", took - LEASE_S, FAILED_S)


def test_restarts_put_nothing_off(cluster: Cluster, figure: Figure) -> None:
    """One job is delayed, another is out, while every node is killed and started: both come when they would have."""
    a, b, c = cluster
    began = time.monotonic()
    delayed = a.add("delayed", "x", "DELAY", DELAY_S, "RETRY", RETRY_S)
    out = a.add("q", "x", "RETRY", DELAY_S)
    with a.client() as worker:
        assert worker.ask("GETJOB", "FROM", "q")[0][1] == out
    since = time.monotonic()
    for node in (a, b, a, c, a):
        node.kill()
        node.start()
        cluster.settle()
    settled = time.monotonic()
    late = []
    with b.client() as one, c.client() as two:
        for client, queue in ((one, "delayed"), (two, "q")):
            client.send("GETJOB", "TIMEOUT", 60_000, "FROM", queue)
        for client, job, due in ((one, delayed, began + DELAY_S), (two, out, since + DELAY_S)):
            assert client.read(DELAY_S + PATIENCE_S)[0][1] == job
            assert time.monotonic() > due - 0.1, "before its time"
            late.append(time.monotonic() - max(due, settled))
    figure("how much later than its time a job comes after five restarts, s", max(late), BACK_S)


@pytest.fixture
def clock(tmp_path: Path) -> Path:
    library = tmp_path / "clock.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(CLOCK), "-ldl"], check=True)
    return library


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("hours", [1, -1])
def test_a_wrong_clock_at_a_restart_ends_no_lease(
    cluster: Cluster, clock: Path, tmp_path: Path, figure: Figure, copies: int, hours: int
) -> None:
    """A worker has the job when its node is started with a clock that is wrong. It keeps the job to the end of its
    time, and then another gets it."""
    a, b, _ = cluster
    skew = tmp_path / "skew"
    skew.write_bytes(pack("<q", hours * 3_600_000))
    job = b.add("q", "x", "RETRY", LEASE_S, "REPLICATE", copies)
    with b.client() as worker:
        assert worker.ask("GETJOB", "FROM", "q")[0][1] == job
    since = time.monotonic()
    b.kill()
    b.environ = {"LD_PRELOAD": str(clock), "NETNS_SKEW": str(skew)}
    b.start()
    cluster.settle()
    assert a.get("q", LEASE_S + PATIENCE_S) == job
    took = time.monotonic() - since
    figure(f"how much of its time a worker is short of, clock {hours:+d} h, s", max(0.0, LEASE_S - took), 0.01)
    figure(f"how much later the job comes, clock {hours:+d} h, s", took - LEASE_S, FAILED_S)
