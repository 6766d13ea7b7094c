"""Story 14: groups, unique keys and batches mean the same at every node, also when the node that decides dies."""
from __future__ import annotations

from cluster_harness import Cluster, Member, pairs, until


def home_of(cluster: Cluster, queue: str) -> Member:
    """Jobs with keys are queued at the home of their key, and only there."""
    homes = until(lambda: [node for node in cluster.living() if node.ask("QLEN", queue)])
    assert len(homes) == 1
    return homes[0]


def test_a_group_is_in_order_wherever_its_jobs_are_added_and_fetched(cluster: Cluster, queue: str) -> None:
    jobs = [cluster[i % 7].add(queue, f"{i}", "GROUP", "g", "RETRY", 60) for i in range(14)]
    for i, job in enumerate(jobs):
        assert cluster[(i * 3) % 7].get(queue) == job
        assert cluster[(i + 1) % 7].has_none(queue)
        cluster[(i * 5) % 7].ask("ACKJOB", job)
    cluster.wait_until_gone(*jobs)


def test_a_group_goes_on_when_its_home_is_killed(cluster: Cluster, queue: str) -> None:
    jobs = [cluster[i % 7].add(queue, f"{i}", "GROUP", "g", "RETRY", 2, "REPLICATE", 3) for i in range(4)]
    home = home_of(cluster, queue)
    home.kill()
    others = cluster.living()
    for i, job in enumerate(jobs):
        taker = others[i % len(others)]
        assert until(lambda taker=taker: taker.get(queue, 15), 40) == job
        others[(i + 1) % len(others)].ask("ACKJOB", job)
    home.start()
    cluster.settle()
    cluster.wait_until_gone(*jobs)


def test_a_key_is_taken_at_every_node_and_stays_so_when_its_home_is_killed(cluster: Cluster, queue: str) -> None:
    words = ["UNIQUE", "k", "RETRY", 300, "REPLICATE", 3]
    job = cluster[0].add(queue, "body", *words)
    assert {node.add(queue, "other body", *words) for node in cluster} == {job}
    home = home_of(cluster, queue)
    home.kill()
    others = cluster.living()
    assert until(lambda: others[0].ask("ADDJOB", queue, "x", 15_000, *words) == job, 40)
    others[1].ask("ACKJOB", job)
    again = until(lambda: others[2].add(queue, "body", *words).replace(job, b""))
    others[3].ask("ACKJOB", again)
    home.start()
    cluster.settle()
    cluster.wait_until_gone(job, again)


def test_the_job_after_a_batch_comes_once_when_all_are_over(cluster: Cluster, queue: str) -> None:
    jobs = [cluster[i].add(queue, f"{i}", "BATCH", queue, "INDEX", i, "RETRY", 60) for i in range(7)]
    final = cluster[3].ask("BATCH", "CLOSE", queue, 7, "THEN", queue + "-after", "sum up")
    for i, job in enumerate(jobs):
        assert cluster[i].has_none(queue + "-after")
        cluster[(i + 2) % 7].ask("ACKJOB", job)
    assert cluster[5].get(queue + "-after") == final
    told = pairs(cluster[6].ask("BATCH", "GET", queue))
    assert told["state"] == b"complete" and told["done"] == 7
    cluster[4].ask("ACKJOB", final)
    cluster.wait_until_gone(final, *jobs)
