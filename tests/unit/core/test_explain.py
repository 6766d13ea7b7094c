"""EXPLAIN: every reason is named, whatever others there are."""
from __future__ import annotations

from itertools import combinations

import pytest

from holdfast.core import explain
from holdfast.testing.sim.cluster import Cluster

from .making import Bench, Mesh

KEEPS = {
    "delayed": ("delayed", "its delay has not ended"),
    "group": ("group", "1 job of group g is before it"),
    "paused": ("paused", "its queue is paused (out)"),
    "places of the queue": ("concurrency", "its queue may have 1 job out at a time, and has"),
    "rate of the queue": ("rate", "its queue has its next token in 3600.0 s"),
    "places of the domain": ("concurrency", "domain d may have 1 job out at a time, and has"),
    "rate of the domain": ("rate", "domain d has its next token in 3600.0 s"),
}
"""What keeps a job back, in the order in which it is told."""


def reasons(bench: Bench, jid: bytes) -> list[tuple[str, str]]:
    return [(each.code.decode(), each.words.decode()) for each in explain.look(bench.node, jid).reasons]


def codes(bench: Bench, jid: bytes) -> list[str]:
    return [code for code, _ in reasons(bench, jid)]


def add(bench: Bench, queue: str, *options: str) -> bytes:
    return (bench.do("ADDJOB", queue, "x", "0", *options) or b"")[1:-2]


def kept_by(bench: Bench, what: tuple[str, ...]) -> bytes:
    """A job with all of that against it."""
    if "places of the queue" in what:
        bench.do("QUEUE", "SET", "q", "concurrency", "1")
    if "rate of the queue" in what:
        bench.do("QUEUE", "SET", "q", "rate", "1/h", "burst", "1")
    if "places of the domain" in what:
        bench.do("DOMAIN", "SET", "d", "CONCURRENCY", "1")
    if "rate of the domain" in what:
        bench.do("DOMAIN", "SET", "d", "RATE", "1/h", "BURST", "1")
    add(bench, "q")
    add(bench, "other", "DOMAIN", "d")
    assert bench.do("GETJOB", "FROM", "q") and bench.do("GETJOB", "FROM", "other")
    options = ["DOMAIN", "d"]
    if "group" in what:
        add(bench, "q", "GROUP", "g")
        options += ["GROUP", "g"]
    if "delayed" in what:
        options += ["DELAY", "60"]
    if "paused" in what:
        bench.do("PAUSE", "q", "out")
    return add(bench, "q", *options)


@pytest.mark.parametrize("count", range(len(KEEPS) + 1))
def test_what_keeps_a_job_is_told_together(count: int) -> None:
    """Each set of so many reasons."""
    for what in combinations(KEEPS, count):
        bench = Bench()
        expected = [KEEPS[each] for each in what]
        if "delayed" not in what and "group" not in what:
            at = 1 if "paused" in what else 0
            expected.insert(at, ("nobody-waits", "nobody asks for jobs of its queue"))
        assert reasons(bench, kept_by(bench, what)) == expected, what


def test_a_job_behind_others_is_told_that_nobody_asks() -> None:
    bench = Bench()
    add(bench, "q")
    job = add(bench, "q")
    bench.do("PAUSE", "q", "all", "FOR", "5")
    assert codes(bench, job) == ["paused", "behind", "nobody-waits"]
    assert explain.look(bench.node, job).reasons[0].ms == 5000


def test_what_waits_for_its_next_attempt_has_other_reasons_too() -> None:
    """With ONFAIL skip another one of its group is before it meanwhile; without it, it keeps its turn."""
    for onfail, before in (("skip", ["group"]), ("hold", [])):
        bench = Bench()
        job = add(bench, "q", "GROUP", "g", "ONFAIL", onfail)
        add(bench, "q", "GROUP", "g")
        bench.do("GETJOB", "FROM", "q")
        bench.do("NACK", job, "DELAY", "30")
        bench.do("GETJOB", "NOHANG", "FROM", "q")
        bench.do("PAUSE", "q", "out")
        assert codes(bench, job) == ["backing-off", *before, "paused"]


def test_a_delayed_job_goes_before_those_accepted_later() -> None:
    bench = Bench()
    first = add(bench, "q", "GROUP", "g", "DELAY", "60")
    add(bench, "q", "GROUP", "g")
    last = add(bench, "q", "GROUP", "g", "DELAY", "60")
    assert codes(bench, first) == ["delayed"], "the one whose turn it is has not gone out"
    assert codes(bench, last) == ["delayed", "group"]
    bench.do("GETJOB", "FROM", "q")
    assert codes(bench, first) == ["delayed", "group"]


def test_a_pause_for_those_who_add_keeps_back_what_is_not_queued() -> None:
    bench = Bench()
    queued = add(bench, "q")
    delayed = add(bench, "q", "DELAY", "5", "RETRY", "30")
    taken = add(bench, "q")
    bench.do("DEQUEUE", taken)
    bench.do("PAUSE", "q", "in")
    paused = "its queue is paused (in): it is not queued"
    assert codes(bench, queued) == ["nobody-waits"]
    assert reasons(bench, delayed) == [KEEPS["delayed"], ("paused", paused)]
    assert reasons(bench, taken)[1] == ("paused", paused + " again")
    bench.wait(6000)
    assert codes(bench, delayed) == ["put-off", "paused"], "its delay is over, and it was not queued"


def test_what_a_worker_has_has_no_other_reason() -> None:
    bench = Bench()
    job = kept_by(bench, ())
    once = add(bench, "q", "RETRY", "0")
    bench.do("GETJOB", "COUNT", "2", "FROM", "q")
    bench.do("PAUSE", "q", "all")
    bench.do("QUEUE", "SET", "q", "concurrency", "1", "rate", "1/h")
    assert codes(bench, job) == codes(bench, once) == ["leased"]


def test_a_job_that_waits_for_copies_has_other_reasons_too() -> None:
    mesh = Mesh("b")
    first = mesh.add("REPLICATE", "2", "DELAY", "60")
    assert codes(mesh, mesh.node.id_text(first)) == ["copies", "delayed"]
    mesh.step(2, "PAUSE", "q", "out")
    assert codes(mesh, mesh.node.id_text(first)) == ["copies", "delayed", "paused"]
    mesh.confirm(first, 0)
    assert codes(mesh, mesh.node.id_text(first)) == ["delayed", "paused"]


def test_an_at_most_once_job_that_was_given_back_is_not_said_to_be_with_a_worker() -> None:
    bench = Bench()
    job = add(bench, "q", "RETRY", "0")
    bench.do("CLIENT", "SETNAME", "w1")
    bench.do("GETJOB", "WITHMETA", "FROM", "q")
    bench.do("NACK", job)
    bench.wait(104_000)
    assert reasons(bench, job) == [
        ("leased", "at most once, and it was handed out to w1, 104 s ago: it is not queued again"),
    ]


def test_a_job_whose_home_is_lost_waits_for_its_worker_not_for_a_delay() -> None:
    sim = Cluster(nodes="ABC", seed=5)
    sim.run_for(seconds=2)
    job = sim.do("A", "ADDJOB", "q", "x", "1000", "GROUP", "g", "RETRY", "60", "REPLICATE", "3")["reply"]
    sim.run_for(seconds=1)
    lost = next(name for name, state in sim.copies(job).items() if state == "queued")
    assert sim.consume(at=lost) == job
    sim.run_for(seconds=1)
    sim.crash(lost, "kill")
    sim.run_for(seconds=20)
    found = [explain.look(host.node, job.encode()) for host in sim.hosts.values() if host.node is not None]
    best = max(found, key=lambda each: each.weight)
    assert [reason.code for reason in best.reasons] == [b"put-off"] and 30_000 < best.reasons[0].ms < 60_000
    assert best.reasons[0].words.startswith(b"a node that had it cannot be reached")


def test_jobs_of_other_tenants_that_have_their_turns_are_before_it() -> None:
    """A 0 to 3, then B: B is the second to go out, and A 3 the last."""
    bench = Bench()
    jobs = [add(bench, "q", "TENANT", tenant) for tenant in "aaaab"]
    behind = ["", "2 jobs are", "3 jobs are", "4 jobs are", "1 job is"]
    for job, words in zip(jobs, behind, strict=True):
        told = [said for code, said in reasons(bench, job) if code == "behind"]
        assert told == ([f"{words} before it in its queue"] if words else [])
