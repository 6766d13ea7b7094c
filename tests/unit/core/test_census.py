"""What CLUSTER QSTAT says of jobs that are not queued, and how fast queues are: of a cluster, and of one node."""
from __future__ import annotations

from typing import Any

from tests.unit.core.making import Bench

from holdfast.core import heal, views
from holdfast.core.job import HANDED_OUT
from holdfast.testing.sim.cluster import Cluster


def figures(sim: Cluster, at: str, queue: str) -> dict[str, int]:
    rows: Any = sim.do(at, "CLUSTER", "QSTAT", queue)["reply"]
    words = rows[0][0]
    return {words[i]: words[i + 1] for i in range(2, len(words), 2)}


def test_states_are_summed_over_all_nodes() -> None:
    sim = Cluster(nodes="ABC", seed=1)
    for _ in range(3):
        sim.add_job(at="A", replicate=2, retry_s=60)
    sim.add_job(at="B", replicate=2, retry_s=60, delay_s=50)
    assert sim.consume(at="A")
    assert sim.consume(at="C")
    sim.run_for(seconds=3)
    found = figures(sim, "B", "q")
    assert (found["len"], found["out"], found["delayed"], found["moving"], found["ended"]) == (1, 2, 1, 0, 0)
    assert found["held"] >= 8


def test_each_job_is_in_one_figure_while_a_node_is_away() -> None:
    """At once, and whoever is asked: nobody waits for a walk over all jobs, nor for the node to count as failed."""
    sim = Cluster(nodes="ABC", seed=1)
    for at in "AABBCC":
        sim.add_job(at=at, replicate=3, retry_s=60)
    sim.add_job(at="C", replicate=3, retry_s=60, delay_s=50)
    assert sim.consume(at="C")
    sim.run_for(seconds=3)
    sim.crash("C")
    sim.run_for(seconds=0.1)
    for at in "AB":
        found = figures(sim, at, "q")
        assert (found["len"], found["node-away"], found["out"], found["delayed"]) == (4, 3, 0, 0)
        rows, silent = sim.do(at, "CLUSTER", "AWAY")["reply"]
        away = dict(zip(rows[0][::2], rows[0][1::2], strict=True))
        assert (away["node"], away["jobs"], silent) == (sim.hosts["C"].node_id.decode(), 3, [])
        assert 0 <= away["away-ms"] < 1000 < away["fails-in-ms"] <= 2000
    sim.run_for(seconds=5)
    rows, _ = sim.do("A", "CLUSTER", "AWAY")["reply"]
    assert dict(zip(rows[0][::2], rows[0][1::2], strict=True))["fails-in-ms"] == 0
    sim.restart("C")
    sim.run_for(seconds=5)
    assert sim.do("A", "CLUSTER", "AWAY")["reply"] == [[], []]
    found = figures(sim, "B", "q")
    assert (found["len"] + found["out"] + found["delayed"], found["node-away"]) == (7, 0)


def test_rates_are_of_the_last_second() -> None:
    sim = Cluster(nodes="AB", seed=2)
    sim.run_for(seconds=2)
    for _ in range(40):
        sim.add_job(at="A", replicate=1, retry_s=60)
    seen = []
    for _ in range(30):
        sim.run_for(seconds=0.1)
        seen.append(figures(sim, "B", "q")["in-per-second"])
    assert 10 <= max(seen) <= 80
    assert seen[-1] == 0


def test_a_job_that_moves_to_another_node_is_added_and_handed_out_once() -> None:
    """Added at A and taken at B: in `jobs-in` and `jobs-out` it is at both, and the rates are of what clients did."""
    sim = Cluster(nodes="AB", seed=2)
    sim.run_for(seconds=2)
    for _ in range(40):
        sim.add_job(at="A", replicate=1, retry_s=3600)
    seen = []
    for _ in range(60):
        sim.consume(at="B")
        sim.run_for(seconds=0.01)
        seen.append(figures(sim, "B", "q"))
    assert (seen[-1]["added"], seen[-1]["handed-out"]) == (40, 40)
    assert seen[-1]["jobs-in"] > 40
    assert max(each["out-per-second"] for each in seen) <= 45
    assert figures(sim, "A", "q") == seen[-1]


def lone() -> Bench:
    """A node that has never had a peer, and so no beat: a job each that is delayed, with a worker and dead."""
    bench = Bench()
    bench.do("ADDJOB", "q", "later", "0", "DELAY", "600")
    for _ in range(2):
        bench.do("ADDJOB", "q", "now", "0", "ATTEMPTS", "1")
        bench.do("GETJOB", "FROM", "q")
    taken = next(job for job in bench.node.all_jobs() if job.flags & HANDED_OUT)
    bench.do("NACK", bench.node.id_text(taken))
    return bench


def of_lone(bench: Bench) -> list[int]:
    """As a page asks (CLUSTER QSTAT), and the figures that Prometheus gets."""
    bench.do("CLUSTER", "QSTAT", "*")
    row = dict(zip(views.FIELDS, views.figures(bench.node, bench.node.queues[b"q"]), strict=True))
    return [row[name] for name in (b"out", b"delayed", b"dead-kept")]


def test_a_node_without_peers_counts_for_whoever_asks() -> None:
    bench = lone()
    assert of_lone(bench) == [1, 1, 1]
    bench.do("ADDJOB", "q", "later", "0", "DELAY", "600")
    bench.wait(1000)
    assert of_lone(bench) == [1, 2, 1]


def test_a_node_without_peers_whose_figures_nobody_wants_does_not_count() -> None:
    bench = lone()
    of_lone(bench)
    walks = bench.node.census.number
    bench.wait(60_000)
    assert bench.node.census.number == walks
    bench.do("CLUSTER", "QSTAT", "*")
    assert bench.node.census.number == walks + 1


def test_a_node_without_peers_tells_rates() -> None:
    bench = lone()
    of_lone(bench)
    bench.wait(2000)
    of_lone(bench)
    for _ in range(40):
        bench.do("ADDJOB", "q", "x", "0")
    bench.wait(1000)
    row = views.figures(bench.node, bench.node.queues[b"q"])
    assert row[views.FIELDS.index(b"in-per-second")] == 40


def test_many_jobs_are_counted_in_slices() -> None:
    bench = Bench()
    for number in range(heal.JOBS_PER_BEAT + 5000):
        bench.do("ADDJOB", "q", str(number), "0", "DELAY", "600")
    assert of_lone(bench)[1] == 0  # no walk has come to its end
    bench.wait(1000)
    assert of_lone(bench)[1] == heal.JOBS_PER_BEAT + 5000
