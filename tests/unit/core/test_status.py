"""The plain word for what a job is doing: SHOW says it, JSCAN finds by it, EXPLAIN begins with it."""
from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.core.making import Bench, Mesh

from holdfast.core import explain, federate, states
from holdfast.core.commands.scan import Scan
from holdfast.core.job import ASKING, IN_DOUBT, MOVING, Job
from holdfast.testing.sim.cluster import Cluster


def made(bench: Bench, *options: str) -> bytes:
    reply = bench.do("ADDJOB", "q", "x", "0", *options) or b""
    return reply[1:-2]


def flagged(flag: int) -> Callable[[Bench], bytes]:
    """A job that was taken out of its queue, in a state that needs other nodes to come about."""
    def make(bench: Bench) -> bytes:
        jid = put_off(bench)
        found = bench.node.find(jid)
        assert found is not None
        found.flags |= flag
        return jid
    return make


def leased(bench: Bench, *options: str) -> bytes:
    jid = made(bench, *options)
    assert jid in (bench.do("GETJOB", "FROM", "q") or b"")
    return jid


def retrying(bench: Bench) -> bytes:
    jid = leased(bench)
    bench.do("NACK", jid, "DELAY", "30")
    return jid


def dead(bench: Bench) -> bytes:
    jid = leased(bench, "ATTEMPTS", "1")
    bench.do("NACK", jid)
    return jid


def put_off(bench: Bench) -> bytes:
    jid = made(bench)
    bench.do("DEQUEUE", jid)
    return jid


def in_line(bench: Bench) -> bytes:
    made(bench, "GROUP", "g")
    return made(bench, "GROUP", "g")


def paused_when_its_time_came(bench: Bench) -> bytes:
    jid = made(bench, "DELAY", "5", "RETRY", "30")
    bench.do("PAUSE", "q", "in")
    bench.wait(6000)
    return jid


CASES: list[tuple[bytes, Callable[[Bench], bytes]]] = [
    (states.QUEUED, made),
    (states.DELAYED, lambda bench: made(bench, "DELAY", "60")),
    (states.LEASED, leased),
    (states.LEASED, lambda bench: leased(bench, "RETRY", "0")),
    (states.RETRYING, retrying),
    (states.DEAD, dead),
    (states.IN_LINE, in_line),
    (states.PUT_OFF, put_off),
    (states.PUT_OFF, paused_when_its_time_came),
    (states.MOVING, flagged(MOVING)),
    (states.ASKING, flagged(ASKING)),
    (states.IN_DOUBT, flagged(IN_DOUBT)),
]


def told(bench: Bench, jid: bytes) -> bytes:
    """The status in what SHOW says."""
    lines = (bench.step(2, "SHOW", jid).reply or b"").split(b"\r\n")  # session 1 may be waiting
    return lines[lines.index(b"status") + 2]


def found_by(bench: Bench, word: bytes, jid: bytes) -> bool:
    return jid in (bench.do("JSCAN", "STATE", word) or b"")


@pytest.mark.parametrize(("word", "make"), CASES)
def test_a_job_is_shown_found_and_explained_by_one_word(word: bytes, make: Callable[[Bench], bytes]) -> None:
    bench = Bench()
    jid = make(bench)
    assert told(bench, jid) == word == explain.look(bench.node, jid).state
    # Disque's `queued` is also said of a job in line, as QLEN counts it.
    also = {states.QUEUED} if word == states.IN_LINE else set()
    assert {each for each in states.ABOUT if found_by(bench, each, jid)} == {word} | also


def test_a_job_that_waits_for_its_copies_is_not_accepted_yet() -> None:
    mesh = Mesh("b")
    job: Job = mesh.add("REPLICATE", "2")
    assert told(mesh, mesh.node.id_text(job)) == states.ACCEPTING
    assert mesh.confirm(job, 0)
    assert told(mesh, mesh.node.id_text(job)) == states.QUEUED


def test_a_copy_is_called_a_copy_and_is_not_listed() -> None:
    """With Disque's words alone, a list of active jobs had the copies in it: three lines for one job."""
    sim = Cluster(nodes="ABC", seed=1)
    job = sim.add_job(at="A", replicate=3, retry_s=60)
    sim.run_for(seconds=1)
    assert sim.copies(job) == {"A": "queued", "B": "active", "C": "active"}
    listed = [word for each in states.LISTED for word in ("STATE", each.decode())]
    pages = [str(sim.do(at, "JSCAN", *listed)["reply"]).count(job) for at in "ABC"]
    copies = [str(sim.do(at, "JSCAN", "STATE", "copy")["reply"]).count(job) for at in "ABC"]
    assert (pages, copies) == ([1, 0, 0], [0, 1, 1])


def test_a_job_of_a_node_that_is_away_is_listed_by_one_of_its_holders() -> None:
    sim = Cluster(nodes="ABC", seed=1)
    jobs = [sim.add_job(at="C", replicate=3, retry_s=60) for _ in range(20)]
    sim.crash("C")
    sim.run_for(seconds=1)
    pages = [str(sim.do(at, "JSCAN", "COUNT", "100", "STATE", "node-away")["reply"]) for at in "AB"]
    listed = [[job for job in jobs if job in page] for page in pages]
    assert sorted(listed[0] + listed[1]) == sorted(jobs)
    assert listed[0] and listed[1]
    for at in "AB":
        state, summary, reasons = sim.do(at, "EXPLAIN", jobs[0])["reply"][1:4]
        name = sim.hosts["C"].node_id[:8].decode()
        assert (state, reasons[0][0]) == ("node-away", "node-away")
        assert f"node {name} (away for 1 s, counts as failed in 1 s if it stays so) has this job" in summary
        assert 1_000 < reasons[0][2] < 5_000, "when another queues it"
    sim.run_for(seconds=5)
    assert sim.do("A", "EXPLAIN", jobs[0])["reply"][1] == "queued"
    assert [str(sim.do(at, "JSCAN", "STATE", "node-away")["reply"]).count("DI") for at in "AB"] == [0, 0]
    takers = [[at for at in "AB" if sim.copies(job)[at] == "queued"] for job in jobs]
    assert {len(names) for names in takers} == {1}, "taken up by one of them"
    sim.restart("C")
    sim.run_for(seconds=5)
    assert [str(sim.do(at, "JSCAN", "STATE", "node-away")["reply"]).count("DI") for at in "ABC"] == [0, 0, 0]


def test_a_job_that_was_on_its_way_to_a_node_that_is_away_waits_for_it() -> None:
    mesh = Mesh("bc")
    job: Job = mesh.add("REPLICATE", "1", "RETRY", "60")
    peer = mesh.peers[0]
    federate.move(mesh.node, job.queue.pop() or job, peer)
    assert told(mesh, mesh.node.id_text(job)) == states.MOVING
    mesh.node.link_down(peer)
    assert told(mesh, mesh.node.id_text(job)) == states.NODE_AWAY
    assert b"was on its way to node" in explain.look(mesh.node, mesh.node.id_text(job)).summary()


def test_every_word_can_be_a_filter_and_every_word_has_its_case() -> None:
    for word in states.ABOUT:
        Scan().read([b"JSCAN", b"STATE", word], 1, of_jobs=True)
    assert {word for word, _ in CASES} == set(states.LISTED) - {states.ACCEPTING, states.NODE_AWAY}
