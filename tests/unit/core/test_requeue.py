"""Holders that ask: how often."""
from __future__ import annotations

from holdfast.testing.sim.cluster import Cluster

ASKS_MAX = 60
"""Of one holder in 400 seconds, with a retry time of one: it waits a second longer each time, unless the other asks."""


def test_a_job_that_stays_queued_is_asked_after_more_and_more_rarely() -> None:
    """Two holders wait for a third; whoever of them asks makes the other one ask, too, which is no news to either."""
    sim = Cluster(nodes="ABC", seed=1)
    sim.add_job(at="A", replicate=3, retry_s=1)
    sim.run_for(seconds=400)
    asked = {name: host.node.counters.get("willqueue", 0) for name, host in sim.hosts.items() if host.node is not None}
    assert 0 < asked["B"] <= ASKS_MAX
    assert 0 < asked["C"] <= ASKS_MAX
