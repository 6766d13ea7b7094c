"""Story 3: a job is queued at one node, and again at another when that one is gone."""
from __future__ import annotations

import time

from cluster_harness import Cluster, drain, until


def test_the_last_of_its_owners_delivers_a_job(cluster: Cluster, queue: str) -> None:
    job = cluster[0].add(queue, "x", "REPLICATE", 3, "RETRY", 2)
    *doomed, spared = cluster.holders(job)
    assert cluster[0] in doomed
    for node in doomed:
        node.kill()
    assert cluster.queued(queue) == 0
    stranger = cluster.strangers(job)[0]
    assert stranger.get(queue) == job
    assert spared.show(job)["additional-deliveries"] >= 1
    assert stranger.ask("ACKJOB", job) == 1


def test_a_job_that_is_not_acknowledged_comes_back_after_its_retry_time(cluster: Cluster, queue: str) -> None:
    job = cluster[0].add(queue, "x", "REPLICATE", 3, "RETRY", 1)
    assert cluster[0].get(queue) == job
    begin = time.monotonic()
    assert cluster[4].get(queue) == job
    assert 0.8 < time.monotonic() - begin < 8
    cluster[4].ask("ACKJOB", job)
    cluster.wait_until_gone(job)


def test_a_lease_outlives_the_node_that_gave_it(cluster: Cluster, queue: str) -> None:
    """The consumer has its full time, though the node that handed the job out is dead."""
    job = cluster[0].add(queue, "x", "REPLICATE", 3, "RETRY", 3)
    assert cluster[0].get(queue) == job
    begin = time.monotonic()
    cluster[0].kill()
    assert cluster[6].get(queue) == job
    assert time.monotonic() - begin > 2


def test_owners_ask_before_they_queue_so_that_no_job_is_queued_twice(cluster: Cluster, queue: str) -> None:
    """Jobs that lie in a queue for long: their other owners ask after every retry time, and are told."""
    asked = cluster.count("cluster_count_willqueue")
    jobs = [job for node in cluster for job in node.add_many(queue, "abcde", "REPLICATE", 3, "RETRY", 1)]
    until(lambda: cluster.count("cluster_count_willqueue") >= asked + 3 * len(jobs))
    assert cluster.queued(queue) == len(jobs)
    assert sorted(drain(cluster, queue, jobs)) == sorted(jobs)
    cluster.wait_until_gone(*jobs)
