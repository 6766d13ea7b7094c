"""Commands that a node answers with the help of others: asked at any node, they are about the whole cluster."""
from __future__ import annotations

from typing import Any

from holdfast.core import home, quota
from holdfast.testing.sim.clients import Client
from holdfast.testing.sim.cluster import Cluster
from holdfast.testing.sim.mutants import switches
from holdfast.testing.sim.scenarios.keys import group_at, key_at, owner_of


def kill(sim: Cluster, at: str, *, holders: str, error: str = "bad") -> str:
    """A job that is dead."""
    job = sim.add_job(at=at, replicate=len(holders), retry_s=30, holders=holders)
    taken, token = sim.take(at=at)
    assert taken == job
    sim.do(at, "NACK", job, "TOKEN", token, "ERROR", error, "DEAD")
    sim.run_for(seconds=0.5)
    return job


def reply(sim: Cluster, at: str, *words: str) -> Any:
    said = sim.do(at, *words)
    return said.get("reply", said.get("count", said.get("error")))


def test_dead_jobs_of_all_nodes_are_listed_page_by_page() -> None:
    sim = Cluster(nodes="ABCD", seed=1)
    jobs = [kill(sim, at, holders=holders) for at, holders in zip("ABCAB", ("AB", "BC", "C", "AD", "BD"), strict=True)]
    seen: list[str] = []
    cursor = "0"
    for _ in range(9):
        cursor, rows = reply(sim, "D", "DEAD", "LIST", "COUNT", "2", "CURSOR", cursor)
        seen += [row[0] for row in rows]
        if cursor == "0":
            break
    assert seen == sorted(jobs), "each once, in the order of ids"


def test_dead_jobs_are_sent_back_and_deleted_wherever_they_are() -> None:
    sim = Cluster(nodes="ABCD", seed=2)
    mended = [kill(sim, "A", holders="AB", error="no route"), kill(sim, "B", holders="BC", error="no route")]
    lost = kill(sim, "C", holders="CA", error="nonsense")
    assert reply(sim, "D", "DEAD", "RETRY", "ERROR", "no *") == 2
    sim.run_for(seconds=1)
    for job in mended:
        states = sorted(sim.copies(job).values())
        assert states == ["active", "queued"], f"queued once, not {sim.copies(job)}"
    assert reply(sim, "D", "DEAD", "DELETE", lost, mended[0]) == 1
    sim.settle()
    assert sim.copies(lost) == {}
    assert reply(sim, "B", "DEAD", "LIST") == ["0", []]


def test_any_node_explains_a_job() -> None:
    sim = Cluster(nodes="ABC", seed=3)
    job = sim.add_job(at="A", replicate=2, retry_s=30, holders="AB")
    for at in "ABC":
        said = reply(sim, at, "EXPLAIN", job)
        assert said[1] == "queued" and said[3][0][0] == "nobody-waits", f"{at} says {said}"
    sim.crash("A")
    sim.run_for(seconds=1)
    said = reply(sim, "C", "EXPLAIN", job)
    assert said[1] == said[3][0][0] == "node-away", "B has a copy, and knows which node has the job"
    sim.run_for(seconds=9)
    assert reply(sim, "C", "EXPLAIN", job)[1] == "queued", "B has taken it up"
    sim.crash("B")
    sim.run_for(seconds=10)
    said = reply(sim, "C", "EXPLAIN", job)
    assert said[1] == "unknown" and "2 nodes cannot be reached" in said[2]


def believers(sim: Cluster, at: str, job: str) -> list[str]:
    return [reason[1] for reason in reply(sim, at, "EXPLAIN", job)[3] if reason[0] == "believers"]


def test_those_who_believe_to_decide_about_a_key_are_told_of() -> None:
    sim = Cluster(nodes="ABC", seed=7)
    group = group_at(sim, "ABC")
    jobs = [sim.add_keyed(at="C", group=group, replicate=2, retry_s=60)[0] for _ in range(2)]
    assert [believers(sim, at, jobs[1]) for at in "ABC"] == [[], [], []], "all agree on who decides"
    sim.cut("A")
    sim.run_for(seconds=60)
    assert owner_of(sim, "C", home.GROUP, group) == "B" and owner_of(sim, "A", home.GROUP, group) == "A"
    may = "cannot be reached, and may believe to decide about group " + group + " as well"
    assert believers(sim, "A", jobs[1]) == [f"2 nodes {may}"]
    assert believers(sim, "B", jobs[1]) == believers(sim, "C", jobs[1]) == [f"1 node {may}"]
    sim.heal()
    sim.settle()
    assert [believers(sim, at, jobs[1]) for at in "ABC"] == [[], [], []]


def test_two_that_can_be_asked_are_counted() -> None:
    """A is cut off from B alone, which takes over because C lets it: a rule that is broken on purpose."""
    sim = Cluster(nodes="ABC", seed=8, mutants=switches("takeover-grabs") | {"lower-epoch-goes-on"})
    group = group_at(sim, "ABC")
    jobs = [sim.add_keyed(at="C", group=group, replicate=3, retry_s=60)[0] for _ in range(2)]
    sim.cut("A", from_="B")
    sim.run_for(seconds=60)
    first, second = sorted(sim.hosts[name].node_id[:8].decode() for name in "AB")
    words = f"2 nodes believe that they decide about group {group} ({first}, {second}): until they agree each does so"
    assert believers(sim, "C", jobs[1]) == [f"{words} for itself"]


def test_a_job_that_waits_elsewhere_gets_another_priority_and_queue() -> None:
    sim = Cluster(nodes="ABC", seed=4)
    first = sim.add_job(at="A", replicate=2, retry_s=30, holders="AB")
    second = sim.add_job(at="A", replicate=2, retry_s=30, holders="AB")
    assert reply(sim, "C", "PRIORITY", second, "9") == 1
    assert reply(sim, "B", "MOVE", first, "r") == 1
    sim.run_for(seconds=1)
    assert sim.consume(at="A") == second
    assert reply(sim, "C", "PRIORITY", second, "3") == 0, "a worker has it"
    sim.crash("A")
    sim.run_for(seconds=45)
    assert reply(sim, "B", "QLEN", "r") == 1, "the copy knows of its new queue"


def test_who_waits_at_a_node_that_does_not_know_the_job_is_told() -> None:
    sim = Cluster(nodes="ABC", seed=5)
    job = sim.add_job(at="A", replicate=2, retry_s=30, holders="AB")
    waiting = Client(sim, "w", sim.hosts["C"])
    ends: list[Any] = []
    waiting.send("wait", [b"WAITJOB", job.encode()], {"about": [job]}, lambda _, value: ends.append(value["ends"]))
    sim.run_for(seconds=2)
    assert ends == []
    _, token = sim.take(at="A")
    sim.under("ack", job, token, at="B", result="fine")
    sim.run_for(seconds=1)
    assert ends == [[[job, "done", "fine"]]]


def test_nobody_says_no_while_a_node_cannot_be_asked() -> None:
    sim = Cluster(nodes="ABC", seed=6)
    job = sim.add_job(at="A", replicate=1, retry_s=30)
    sim.crash("A")
    sim.run_for(seconds=10)
    began = sim.now
    assert sim.wait_for_end(job, at="C", timeout_ms=3_000) == ("unknown", None)
    assert sim.now - began >= 3_000, "it may come back, and be told"
    strange = job[:10] + "0" * 32 + job[42:]
    sim.restart("A")
    sim.run_for(seconds=5)
    began = sim.now
    assert sim.wait_for_end(strange, at="C", timeout_ms=30_000) == ("unknown", None)
    assert sim.now - began < 1_000, "all have said that they do not know it"


def test_workers_of_all_nodes_are_listed() -> None:
    sim = Cluster(nodes="ABC", seed=7)
    for at in "ABC":
        reply(sim, at, "WORKER", "BEAT", f"w{at}", "30", "jobs", "2")
    assert [row[0] for row in reply(sim, "B", "WORKER", "LIST")] == ["wA", "wB", "wC"]
    sim.crash("A")
    sim.run_for(seconds=10)
    assert [row[0] for row in reply(sim, "B", "WORKER", "LIST")] == ["wB", "wC"]


def test_figures_of_a_queue_are_summed_up() -> None:
    sim = Cluster(nodes="AB", seed=8)
    kill(sim, "A", holders="AB")
    job = sim.add_job(at="B", replicate=2, retry_s=30, holders="AB")
    _, token = sim.take(at="B")
    sim.under("nack", job, token, at="B")
    sim.consume_and_ack(at="B")
    sim.run_for(seconds=3)
    [row], missing = reply(sim, "A", "CLUSTER", "QSTAT", "q")
    told = dict(zip(row[::2], row[1::2], strict=True))
    figures = (told["acked"], told["nacked"], told["dead"], told["dead-kept"])
    assert figures == (1, 2, 1, 1), "each counted once, at the node where it happened"
    assert missing == []


def test_limits_kept_elsewhere_are_reasons_once_somebody_wants_a_job() -> None:
    """A has the tokens and the places of all. Nobody asked B for a job, so B asked A for nothing, and cannot tell."""
    sim = Cluster(nodes="ABC", seed=9)
    for limit, code in ((("RATE", "1/h", "BURST", "1"), "rate"), (("CONCURRENCY", "1"), "concurrency")):
        kind, queue = (home.DOMAIN, b"") if code == "rate" else (home.QUOTA, b"%d" % quota.OUT_OF_DOMAIN)
        domain = key_at(sim, kind, "ABC", queue)
        assert reply(sim, "A", "DOMAIN", "SET", domain, *limit) == "OK"
        words = ["x", "1000", "REPLICATE", "1", "RETRY", "60", "DOMAIN", domain]
        reply(sim, "A", "ADDJOB", code, *words)
        assert sim.take(at="A", queue=code)[0], "it has the only token, or place"
        sim.run_for(seconds=3)
        job = reply(sim, "B", "ADDJOB", code, *words)
        assert [reason[0] for reason in reply(sim, "C", "EXPLAIN", job)[3]] == ["nobody-waits"]
        assert sim.take(at="B", queue=code, timeout_ms=500) == ("", "")
        said = reply(sim, "C", "EXPLAIN", job)[3]
        assert code in [reason[0] for reason in said], said


def test_what_the_giver_of_a_lease_was_asked_for_may_have_been_done() -> None:
    """A hears B, and B does not hear A: the job is given back, and B must not say that nothing was done."""
    sim = Cluster(nodes="ABC", seed=10)
    job = sim.add_job(at="A", replicate=1, retry_s=60, holders="A")
    _, token = sim.take(at="A")
    late = sim.hold("A", "B")
    assert sim.under("nack", job, token, at="B") == "UNKNOWN"
    assert sim.copies(job) == {"A": "queued"}
    sim.end_fault(late)


def add_to_group(sim: Cluster, at: str, body: str, group: str) -> str:
    """Somebody at a node adds a job to a group; what came of it is in the history, under the name that is returned."""
    words = ["ADDJOB", "q", body, "8000", "REPLICATE", "3", "RETRY", "30", "GROUP", group]
    Client(sim, f"adds-{body}", sim.hosts[at]).send("add", [word.encode() for word in words], {
        "queue": "q", "body": body, "replicate": 3, "retry": 30, "ttl": 600, "delay": 0, "async": False,
        "timeout": 8000, "group": group, "skips": False,
    })
    return f"adds-{body}"


def test_an_answer_to_the_life_before_is_not_taken_for_one_to_this() -> None:
    """A passes an ADDJOB on to B, which waits for a copy at C. A dies, starts anew, passes on another; then B has the
    first one's copies, and says so."""
    sim = Cluster(nodes="ABC", seed=3)
    group = group_at(sim, "B")
    add_to_group(sim, "C", "warm", group)  # B is its home from now on
    sim.run_for(seconds=1)
    late = sim.hold("C", "B")
    add_to_group(sim, "A", "first", group)
    sim.run_for(seconds=0.3)
    sim.crash("A")
    sim.restart("A")
    sim.run_for(seconds=1)
    second = add_to_group(sim, "A", "second", group)
    sim.run_for(seconds=0.3)
    sim.end_fault(late)
    sim.run_for(seconds=3)
    answers = [op.value.get("id") for op in sim.history.ops if op.process == second and op.type == "ok"]
    assert len(answers) == 1
    sim.consume_everything()
    sim.run_for(seconds=10)
    bodies = [job["body"] for op in sim.history.ops if op.f == "get" and op.type == "ok"
              for job in op.value["jobs"] if job["id"] == answers[0]]
    assert bodies == ["second"]
    sim.check()
