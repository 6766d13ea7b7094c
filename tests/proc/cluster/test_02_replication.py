"""Story 2: a job is at as many nodes as was asked for before its producer is answered."""
from __future__ import annotations

import time

from cluster_harness import Cluster, until

NOT_ENOUGH = b"NOREPL Not enough reachable nodes for the requested replication level"
TIMEOUT = b"NOREPL Timeout reached before replicating to the requested number of nodes"


def test_exactly_as_many_copies_as_asked_for(cluster: Cluster, queue: str) -> None:
    for replicate in range(1, 8):
        job = cluster[replicate % 7].add(queue, "x", "REPLICATE", replicate, "RETRY", 60)
        holders = cluster.holders(job)
        assert len(holders) == replicate
        assert cluster[replicate % 7] in holders
        shown = cluster[replicate % 7].show(job)
        assert shown["repl"] == replicate
        assert set(shown["nodes-delivered"]) == {node.id for node in holders}
        assert cluster[replicate % 7].ask("ACKJOB", job) == 1


def test_three_by_default_and_all_on_request(cluster: Cluster, queue: str) -> None:
    assert len(cluster.holders(cluster[0].add(queue, "x"))) == 3
    everywhere = cluster[0].add(queue, "x", "REPLICATE", "all")
    assert cluster[0].show(everywhere)["repl"] == 7
    assert len(cluster.holders(everywhere)) == 7


def test_more_copies_than_nodes_are_refused_at_once(cluster: Cluster, queue: str) -> None:
    begin = time.monotonic()
    assert cluster[0].ask("ADDJOB", queue, "x", 5000, "REPLICATE", 8) == NOT_ENOUGH
    assert time.monotonic() - begin < 2
    cluster[6].kill()
    until(lambda: cluster.sees(cluster[6], "fail"))
    assert cluster[0].ask("ADDJOB", queue, "x", 5000, "REPLICATE", 7) == NOT_ENOUGH
    assert len(cluster.holders(cluster[0].add(queue, "x", "REPLICATE", 6))) == 6
    assert cluster.copies(queue).keys() == {cluster[0].get(queue)}


def test_a_node_that_restarts_is_waited_for(cluster: Cluster, queue: str) -> None:
    """Seven copies of seven nodes, one of which has just gone: it counts until its node-timeout is over."""
    cluster[6].kill()
    until(lambda: cluster[0].counters()["cluster_reachable_nodes"] == 5)
    with cluster[0].client() as producer:
        producer.send("ADDJOB", queue, "x", 20_000, "REPLICATE", 7, "RETRY", 60)
        cluster[6].launch()
        job = producer.read()
    assert isinstance(job, bytes) and len(cluster.holders(job)) == 7


def test_stopped_nodes_are_replaced_by_others_while_there_are_any(cluster: Cluster, queue: str) -> None:
    """Nobody knows yet that they stand still: 50 ms without an answer, and one more node is asked."""
    for node in (cluster[4], cluster[5], cluster[6]):
        node.freeze()
    for _ in range(10):
        begin = time.monotonic()
        job = cluster[0].add(queue, "x", "REPLICATE", 4, "RETRY", 60)
        assert time.monotonic() - begin < 2
        assert len(cluster.holders(job)) == 4


def test_a_timeout_takes_back_what_was_copied(cluster: Cluster, queue: str) -> None:
    """One of seven stands still, so seven copies cannot be had; the six that were made must not be delivered."""
    cluster[6].freeze()
    begin = time.monotonic()
    assert cluster[0].ask("ADDJOB", queue, "x", 300, "REPLICATE", 7, "RETRY", 1) == TIMEOUT
    assert 0.25 < time.monotonic() - begin < 2
    assert cluster.queued(queue) == 0
    cluster[6].thaw()
    until(lambda: all(not node.jobs(queue) for node in cluster))
    assert cluster.queued(queue) == 0


def test_async_and_sync_answer_sooner_and_make_all_copies(cluster: Cluster, queue: str) -> None:
    job = cluster[1].add(queue, "x", "REPLICATE", 3, "ASYNC")
    until(lambda: len(cluster.holders(job)) == 3)

    cluster[6].freeze()
    begin = time.monotonic()
    waits = cluster[0].add(queue, "y", "REPLICATE", 7, "SYNC", 5)
    assert time.monotonic() - begin < 2
    assert len(cluster.holders(waits)) >= 5
    assert cluster[0].ask("ADDJOB", queue, "z", 300, "REPLICATE", 7, "SYNC", 7) == TIMEOUT
    behind = cluster[0].add(queue, "z", "REPLICATE", 7, "ASYNC")
    cluster[6].thaw()
    until(lambda: len(cluster.holders(waits)) == len(cluster.holders(behind)) == 7)
    until(lambda: cluster[0].counters()["cluster_jobs_short_of_copies"] == 0)
    assert b"greater than REPLICATE" in cluster[0].ask("ADDJOB", queue, "z", 300, "REPLICATE", 2, "SYNC", 3)


def test_copies_that_were_asked_of_a_node_that_died_are_made_elsewhere(cluster: Cluster, queue: str) -> None:
    cluster[5].freeze()
    cluster[6].freeze()
    jobs = [cluster[0].add(queue, "x", "REPLICATE", 5, "ASYNC", "RETRY", 60) for _ in range(20)]
    cluster[5].kill()
    cluster[6].kill()
    until(lambda: all(len(cluster.holders(job)) == 5 for job in jobs))


def test_a_node_short_of_memory_keeps_no_copy(cluster: Cluster, queue: str) -> None:
    """Above 75 % it takes no copies, and what is added there goes to others; above 95 % it takes nothing."""
    short = cluster[3]
    ballast = short.add("ballast", bytes(850_000), "REPLICATE", 1)
    assert short.ask("CONFIG", "SET", "maxmemory", "1mb") == b"OK"

    job = short.add(queue, "outside", "REPLICATE", 3, "RETRY", 60)
    assert job[2:10] == short.id[:8]
    holders = cluster.holders(job)
    assert len(holders) == 3 and short not in holders
    assert cluster[0].get(queue) == job  # queued at once, by one of them
    assert cluster[1].ask("ACKJOB", job) in (0, 1)

    six = cluster[0].add(queue, "six", "REPLICATE", 6, "RETRY", 60)
    assert short not in cluster.holders(six)
    assert cluster[0].ask("ADDJOB", queue, "seven", 400, "REPLICATE", 7) == TIMEOUT

    assert short.ask("CONFIG", "SET", "maxmemory", "1gb") == b"OK"
    more = short.add("ballast", bytes(150_000), "REPLICATE", 1)
    assert short.ask("CONFIG", "SET", "maxmemory", "1mb") == b"OK"
    assert short.ask("ADDJOB", queue, bytes(100_000), 400, "REPLICATE", 3).startswith(b"OOM ")
    assert short.ask("ACKJOB", ballast, more) == 2
    assert len(cluster.holders(short.add(queue, "room again", "REPLICATE", 7))) == 7


def test_external_copies_with_holders_that_stand_still_are_delivered_at_once(cluster: Cluster, queue: str) -> None:
    """The node that is asked to queue the job must be one that has said it holds it."""
    short = cluster[3]
    ballast = short.add("ballast", bytes(850_000), "REPLICATE", 1)
    assert short.ask("CONFIG", "SET", "maxmemory", "1mb") == b"OK"
    for node in (cluster[0], cluster[1], cluster[2]):
        node.freeze()
    for number in range(8):
        job = short.add(queue, str(number), "REPLICATE", 3, "RETRY", 100)
        assert cluster[4].get(queue, 5) == job
    assert short.ask("ACKJOB", ballast) == 1
