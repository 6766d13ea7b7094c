"""Claims: batches that are read again are the same, are in one pair of hands, and come back if nobody commits them."""
from __future__ import annotations

from holdfast.testing.sim.cluster import Cluster
from holdfast.testing.sim.scenarios.scenario import New, catches, end_well

LEASE_MS = 20_000


class Reader:
    """A pipeline's driver at one node, as far as claims go."""

    def __init__(self, sim: Cluster, at: str, group: str = "g") -> None:
        self.sim = sim
        self.at = at
        self.group = group
        self.epoch = sim.do(at, "CLAIM", "OPEN", group)["count"]
        self.seen: dict[str, list[str]] = {}  # jobs of the claims it has read

    def take(self, seq: int, count: int = 100, ms: int = LEASE_MS) -> tuple[str, int]:
        """Id and number of jobs; ('', 0) if there was nothing."""
        said = self.sim.do(self.at, "CLAIM", "TAKE", self.group, str(self.epoch), str(seq), "COUNT", str(count),
                           "LEASEMS", str(ms), "FROM", "q")
        assert "error" not in said, said
        return (said["reply"][0], said["reply"][1]) if said["reply"] else ("", 0)

    def read(self, claim: str, count: int) -> list[str]:
        """Ids, in the order of the claim; nothing if it is gone. To the checkers the first reading is a hand-out."""
        words = ["CLAIM", "READ", self.group, claim, "0", str(count)]
        f = "admin" if claim in self.seen else "get"
        value = {"queues": ["q"]} if f == "get" else {"words": words}
        _, said = self.sim.command(self.at, f, [word.encode() for word in words], value)
        if "error" in said:
            return []
        ids = [each["id"] for each in said["jobs"]] if f == "get" else [each[1] for each in said["reply"]]
        self.seen.setdefault(claim, ids)
        return ids

    def renew(self, ms: int = LEASE_MS) -> int:
        return int(self.sim.do(self.at, "CLAIM", "RENEW", self.group, str(self.epoch), str(ms)).get("count", -1))

    def commit(self, claim: str) -> int:
        """How many were acknowledged; -1 if it was refused. To the checkers it is the ack of all it had read."""
        words = [word.encode() for word in ("CLAIM", "COMMIT", self.group, str(self.epoch), claim)]
        ids = self.seen.pop(claim, [])
        return int(self.sim.command(self.at, "ack", words, {"ids": ids})[1].get("count", -1))


def add(sim: Cluster, count: int, ttl_s: int = 600) -> set[str]:
    return {sim.add_job(at="A", replicate=3, retry_s=10, ttl_s=ttl_s) for _ in range(count)}


@catches("claim-taken-anew")
def a_batch_asked_for_again_is_the_same_batch(new: New) -> None:
    """The driver dies between the claim and its log, and asks for the same number again: no job is in two claims."""
    sim = new(nodes="ABC", seed=300)
    jobs = add(sim, 6)
    claim = Reader(sim, "A").take(1, 4)
    again = Reader(sim, "A")
    assert again.take(1, 4) == claim, "the same number must be the same claim"
    assert again.read(*claim) == again.read(*claim) and len(again.read(*claim)) == 4
    other = again.take(2, 4)
    assert not set(again.read(*claim)) & set(again.read(*other)), "a job in two live claims"
    assert set(again.read(*claim)) | set(again.read(*other)) == jobs
    assert again.commit(claim[0]) == 4 and again.commit(other[0]) == 2
    assert again.commit(claim[0]) == 0, "a commit that is repeated does nothing"
    end_well(sim, *jobs)


@catches("claim-unfenced")
def a_reader_that_was_replaced_commits_nothing(new: New) -> None:
    """A second driver opens the group: the first, which knows nothing of it, must not end a batch that it may not
    have written."""
    sim = new(nodes="ABC", seed=301)
    jobs = add(sim, 3)
    zombie = Reader(sim, "A")
    claim = zombie.take(1)
    heir = Reader(sim, "A")
    assert zombie.commit(claim[0]) == -1 and zombie.renew() == -1, "FENCED"
    assert heir.take(1) == claim and set(heir.read(*claim)) == jobs
    assert heir.commit(claim[0]) == 3
    end_well(sim, *jobs)


@catches("claim-outlives-lease")
def a_claim_whose_time_is_over_returns_and_can_no_longer_be_committed(new: New) -> None:
    """Nobody renews it: its jobs are queued again, somebody else has one, and a late commit ends none of them."""
    sim = new(nodes="ABC", seed=302)
    jobs = add(sim, 3)
    reader = Reader(sim, "A")
    claim = reader.take(1)
    sim.run_for(seconds=LEASE_MS / 1000 - 2)
    assert reader.renew() == 3
    sim.run_for(seconds=LEASE_MS / 1000 - 2)
    assert len(reader.read(*claim)) == 3, "it was renewed"
    sim.run_for(seconds=15)
    taken = sim.consume(at="A")
    assert taken in jobs, "expired claims return"
    assert reader.read(*claim) == []
    reader.seen.clear()  # it may think what it likes: nothing is acknowledged
    assert reader.commit(claim[0]) == 0
    sim.ack(taken, at="A")
    end_well(sim, *jobs, deliveries=9)


@catches("claims-forgotten")
def a_claim_survives_the_restart_of_its_node(new: New) -> None:
    """The node is killed and comes back with its journal: the same claim, the same epoch, the same jobs."""
    sim = new(nodes="ABC", seed=303)
    jobs = add(sim, 5)
    reader = Reader(sim, "A")
    claim = reader.take(7)
    before = reader.read(*claim)
    sim.run_for(seconds=2)
    sim.crash("A")
    sim.run_for(seconds=3)
    sim.restart("A")
    sim.run_for(seconds=2)
    assert reader.read(*claim) == before, "read again, it must be the same"
    assert reader.renew() == 5
    assert reader.commit(claim[0]) == 5
    end_well(sim, *jobs)


@catches("long-lease-untold")
def the_jobs_of_a_claim_come_back_when_its_node_dies(new: New) -> None:
    """The node of the claim is gone for good. The other holders have its jobs, wait for as long as the claim could
    still be at work, and then hand them out."""
    sim = new(nodes="ABC", seed=304)
    jobs = add(sim, 3)
    reader = Reader(sim, "A")
    assert reader.take(1)[1] == 3
    sim.run_for(seconds=1)
    sim.crash("A", "wipe")
    got = sim.wait_for_job(at="B")
    sim.run_for(seconds=14)
    assert got == [], "handed out while the claim's lease ran"
    sim.run_for(seconds=30)
    assert len(got) == 1 and got[0] in jobs, "and then they come back"


@catches("claim-expires")
def a_jobs_life_does_not_end_while_it_is_claimed(new: New) -> None:
    """Its time to live is over before the batch is written: what is read again must be the same, and its end is the
    commit."""
    sim = new(nodes="ABC", seed=305)
    add(sim, 3, ttl_s=12)
    reader = Reader(sim, "A")
    claim = reader.take(1)
    before = reader.read(*claim)
    sim.run_for(seconds=16)
    assert reader.read(*claim) == before
    assert reader.commit(claim[0]) == 3


@catches("claim-expires-with-restart")
def a_jobs_life_does_not_end_while_it_is_claimed_whatever_restarts(new: New) -> None:
    """The node is killed before the end of that life, or after it."""
    for before_s in (6, 16):
        sim = new(nodes="ABC", seed=306)
        add(sim, 3, ttl_s=15)
        reader = Reader(sim, "A")
        claim = reader.take(1, ms=60_000)
        before = reader.read(*claim)
        sim.run_for(seconds=before_s)
        sim.crash("A")
        sim.restart("A")
        sim.run_for(seconds=20 - before_s)
        assert reader.read(*claim) == before, "read again, it must be the same"
        assert reader.commit(claim[0]) == 3
