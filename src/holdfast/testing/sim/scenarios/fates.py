"""Tokens, failures, deaths, results: what one node decides all must know, and whoever comes late, too."""
from __future__ import annotations

from holdfast.testing.history import OK
from holdfast.testing.sim.faults import Faults
from holdfast.testing.sim.scenarios.scenario import New, catches, end_well


@catches("stale-token-accepted")
def a_worker_that_was_too_slow_is_told(new: New) -> None:
    """Its lease ends, another gets the job, and then it says that it is done."""
    sim = new(nodes="AB", seed=200)
    job = sim.add_job(at="A", replicate=2, retry_s=2)
    taken, slow = sim.take(at="A")
    assert taken == job
    sim.run_for(seconds=3)
    again, quick = sim.take(at="A")
    assert again == job and quick != slow
    assert sim.under("ack", job, slow, at="A") == "LEASELOST"
    assert sim.under("keepalive", job, slow, at="A", ms=1_000) == "lost"
    assert sim.under("ack", job, quick, at="A") == "1"
    end_well(sim, job, deliveries=2)


@catches("token-not-asked")
def another_node_asks_the_one_that_gave_the_lease(new: New) -> None:
    """A consumer of A speaks to B, which holds a copy and no lease: A says whether the token is worth anything."""
    sim = new(nodes="ABC", seed=201)
    job = sim.add_job(at="A", replicate=2, retry_s=2, holders="AB")
    _, slow = sim.take(at="A")
    sim.run_for(seconds=3)
    again, quick = sim.take(at="A")
    assert again == job
    assert sim.under("nack", job, slow, at="B") == "LEASELOST", "a stale NACK was taken by a node that could have asked"
    assert sim.under("ack", job, slow, at="C") == "LEASELOST"
    assert sim.under("keepalive", job, quick, at="C", ms=5_000) == "ok"
    assert sim.under("ack", job, quick, at="B", result="fine") == "1"
    end_well(sim, job, deliveries=2)


@catches("token-not-asked")
def one_command_about_the_leases_of_several_nodes(new: New) -> None:
    """A worker has jobs of A, of B and of C, two of them no longer. It says so of all at A, which asks the others."""
    sim = new(nodes="ABC", seed=207)
    late = sim.add_job(at="B", replicate=3, retry_s=2, queue="late")
    _, slow = sim.take(at="B", queue="late")
    sim.run_for(seconds=3)
    again, quick = sim.take(at="B", queue="late")
    assert again == late
    jobs = {name: sim.add_job(at=name, replicate=3, retry_s=60, queue=name) for name in "ABC"}
    tokens = {name: sim.take(at=name, queue=name)[1] for name in "ABC"}
    pairs = [word for name in "ABC" for word in (jobs[name], tokens[name])]
    words = ["ACKJOBS", *pairs, late, slow, late, quick, jobs["C"], tokens["C"]]
    _, reply = sim.command("A", "ack", [word.encode() for word in words], {"ids": [*jobs.values(), late]})
    said = reply["replies"]
    assert said[:3] == [1, 1, 1]
    assert str(said[3]).startswith("LEASELOST"), "a stale token was believed by a node that could have asked"
    assert said[4:] == [1, 0]
    end_well(sim, *jobs.values())
    end_well(sim, late, deliveries=2)


@catches("lease-told-as-work")
def a_lease_ends_though_another_hand_out_is_kept(new: New) -> None:
    """A has the job out; somebody queues it at B by hand, and the consumer there asks for more time. That is none for
    A's consumer, whose lease ends when it was to end."""
    sim = new(nodes="ABC", seed=208)
    job = sim.add_job(at="A", replicate=3, retry_s=20)
    _, slow = sim.take(at="A")
    cut = sim.cut("B", from_="A")  # or A would be told to queue it
    sim.run_for(seconds=10)
    assert sim.about("enqueue", "ENQUEUE", job, "B") == 1
    again, quick = sim.take(at="B")
    assert again == job
    sim.end_fault(cut)
    sim.run_for(seconds=3)
    assert sim.under("keepalive", job, quick, at="B", ms=30_000) == "ok"
    sim.run_for(seconds=8)
    assert sim.under("ack", job, slow, at="A") == "LEASELOST", "A's lease was over, and B's consumer has the job"
    got = [sim.wait_for_job(at=name) for name in "ABC"]
    sim.run_for(seconds=2)
    assert got == [[], [], []], "handed out a third time while B's lease runs"
    assert sim.under("ack", job, quick, at="B") == "1"
    end_well(sim, job, deliveries=2)


@catches()
def more_time_asked_for_at_another_holder_is_more_time(new: New) -> None:
    """A's consumer says at B, without its token, that it is at work: A, too, gives it that time."""
    sim = new(nodes="ABC", seed=209)
    job = sim.add_job(at="A", replicate=3, retry_s=3, attempts=1)
    _, token = sim.take(at="A")
    sim.run_for(seconds=2.5)
    assert sim.working(job, at="B") >= 0
    sim.run_for(seconds=2)
    assert sim.under("ack", job, token, at="A") == "1", "it was told that it has the job for three more seconds"
    end_well(sim, job, deliveries=1)


@catches("answers-not-awaited")
def one_that_is_slow_to_answer_can_be_asked(new: New) -> None:
    """As above, but the answer takes longer than a node waits for most others."""
    sim = new(nodes="ABC", seed=214, faults=Faults(latency_ms=(800, 800)))
    job = sim.add_job(at="A", retry_s=2)
    _, slow = sim.take(at="A")
    sim.run_for(seconds=3)
    again, quick = sim.take(at="A")
    assert again == job
    assert sim.under("ack", job, slow, at="B") == "LEASELOST", "taken for work done, though another has the job"
    assert sim.under("ack", job, quick, at="A") == "1"
    end_well(sim, job, deliveries=2)


@catches("nack-by-stranger")
def where_nobody_can_be_asked_work_done_is_done_and_nothing_else(new: New) -> None:
    """The node that gave the lease is cut off: another takes the ack, but does not give the job back."""
    sim = new(nodes="ABC", seed=202)
    one = sim.add_job(at="A", replicate=2, retry_s=30, holders="AB")
    two = sim.add_job(at="A", replicate=2, retry_s=30, holders="AB")
    _, first = sim.take(at="A")
    _, second = sim.take(at="A")
    sim.run_for(seconds=0.5)
    sim.cut("A")
    sim.run_for(seconds=8)
    assert sim.under("nack", one, first, at="B") == "UNREACHED"
    assert sim.under("keepalive", one, first, at="B", ms=1_000) == "unknown"
    assert sim.copies(one)["B"] == "active"
    assert sim.under("ack", two, second, at="B") == "1"
    sim.heal()
    sim.run_for(seconds=5)
    assert two not in sim.views()["A"] or sim.views()["A"][two].state in ("acked", "tombstone")
    assert sim.under("ack", one, first, at="A") == "1"
    end_well(sim, one, two)


@catches("long-lease-untold")
def a_lease_longer_than_the_retry_time_is_told(new: New) -> None:
    """The worker asked for twenty seconds of a job whose holders count on three; then its node dies."""
    sim = new(nodes="ABC", seed=203)
    job = sim.add_job(at="A", replicate=2, retry_s=3, holders="AB")
    taken, _ = sim.take(at="A", lease_ms=20_000)
    assert taken == job
    sim.run_for(seconds=1)
    sim.crash("A")
    got = sim.wait_for_job(at="B")
    sim.run_for(seconds=12)
    assert got == [], "two workers at once"
    sim.run_for(seconds=20)
    assert got == [job]
    end_well(sim)


@catches("lease-token-forgotten")
def a_restart_keeps_tokens(new: New) -> None:
    """The node is started again while a worker has a job: its token is good, and nobody else's is."""
    sim = new(nodes="AB", seed=204)
    job = sim.add_job(at="A", replicate=1, retry_s=20)
    taken, token = sim.take(at="A")
    assert taken == job
    sim.run_for(seconds=2)
    sim.crash("A")
    sim.restart("A")
    sim.run_for(seconds=2)
    assert sim.under("keepalive", job, token, at="A", ms=20_000) == "ok"
    assert sim.under("keepalive", job, token[:-1] + "f", at="A", ms=20_000) == "lost"
    assert sim.under("ack", job, token, at="A") == "1"
    end_well(sim, job)


@catches("dead-not-spread")
def a_dead_job_is_not_revived_by_a_holder(new: New) -> None:
    """It dies at A, and A is lost for a while. B's timer would queue it."""
    sim = new(nodes="ABC", seed=205)
    job = sim.add_job(at="A", replicate=2, retry_s=2, holders="AB", attempts=1)
    _, token = sim.take(at="A")
    assert sim.under("nack", job, token, at="A") == "1"
    sim.run_for(seconds=1)
    sim.crash("A")
    got = sim.wait_for_job(at="B")
    sim.run_for(seconds=15)
    assert got == [], "a dead job was handed out"
    assert sim.list_dead(at="B") == [job]
    end_well(sim)


@catches("death-told-once")
def who_was_away_when_it_died_hears_of_it(new: New) -> None:
    """B is cut off when the job dies at A. They meet again for a moment, then A is gone."""
    sim = new(nodes="ABC", seed=206)
    job = sim.add_job(at="A", replicate=2, retry_s=12, holders="AB", attempts=1)
    _, token = sim.take(at="A")
    cut = sim.cut("B")
    sim.run_for(seconds=9)
    assert sim.under("nack", job, token, at="A") == "1"
    sim.run_for(seconds=1)
    sim.end_fault(cut)
    sim.run_for(seconds=2)
    sim.crash("A")
    got = sim.wait_for_job(at="B")
    sim.run_for(seconds=30)
    assert got == [], "a dead job was handed out"
    assert sim.list_dead(at="C") == [job]
    end_well(sim)


@catches("death-not-kept")
def a_restart_does_not_revive_the_dead(new: New) -> None:
    sim = new(nodes="AB", seed=207)
    job = sim.add_job(at="A", replicate=1, retry_s=2)
    _, token = sim.take(at="A")
    assert sim.under("reject", job, token, at="A") == "1"
    sim.run_for(seconds=2)
    sim.crash("A")
    sim.restart("A")
    got = sim.wait_for_job(at="A")
    sim.run_for(seconds=10)
    assert got == [], "a dead job was handed out"
    assert sim.list_dead(at="B") == [job], "and it must still be there"
    end_well(sim)


@catches("retry-without-round")
def an_old_word_of_its_death_does_not_count_any_more(new: New) -> None:
    """The job dies at A while B is cut off; it is sent back at A. What B then says of it, or hears, is old."""
    sim = new(nodes="ABC", seed=208)
    job = sim.add_job(at="A", replicate=3, retry_s=30, holders="ABC", attempts=1)
    _, token = sim.take(at="A")
    assert sim.under("nack", job, token, at="A") == "1"
    sim.run_for(seconds=2)
    assert sorted(sim.copies(job).values()) == ["dead", "dead", "dead"]
    cut = sim.cut("B")
    sim.run_for(seconds=8)
    assert sim.under("retry", job, "", at="A") == "1"
    sim.run_for(seconds=1)
    sim.end_fault(cut)
    sim.run_for(seconds=5)
    states = sorted(sim.copies(job).values())
    assert states == ["active", "active", "queued"], f"sent back, and yet {sim.copies(job)}"
    assert sim.consume_and_ack(at="C") == job
    end_well(sim, job, deliveries=2)


@catches("tries-stay")
def failures_at_two_nodes_add_up(new: New) -> None:
    """One attempt fails at A, the next at B: that was the last."""
    sim = new(nodes="AB", seed=209)
    job = sim.add_job(at="A", replicate=2, retry_s=10, holders="AB", attempts=2)
    _, token = sim.take(at="A")
    got = sim.take
    assert sim.under("nack", job, token, at="A") == "1"
    taken, token = got(at="B")
    assert taken == job, "given to who waits at B"
    assert sim.under("nack", job, token, at="B") == "1"
    sim.run_for(seconds=1)
    assert sim.list_dead(at="A") == [job], f"two failures of two, and it is {sim.copies(job)}"
    end_well(sim)


@catches("no-claim")
def who_had_it_out_sees_to_what_comes_next(new: New) -> None:
    """Nothing is heard of the worker, all nodes are well: the job waits before its second attempt, and after that it
    is dead, whichever holder comes first in its order."""
    for seed in range(210, 216):
        sim = new(nodes="ABC", seed=seed)
        job = sim.add_job(at="A", replicate=3, retry_s=2, holders="ABC", attempts=2, backoff_s=16)
        taken, _ = sim.take(at="A")
        assert taken == job
        got = [sim.wait_for_job(at=name) for name in "ABC"]
        sim.run_for(seconds=9)
        assert got == [[], [], []], "handed out again without the wait"
        sim.run_for(seconds=20)
        assert sorted(map(len, got)) == [0, 0, 1]
        sim.run_for(seconds=10)
        assert sim.list_dead(at="B") == [job], f"two failures of two, and it is {sim.copies(job)}"
        end_well(sim)


@catches("wait-is-no-claim")
def a_failed_job_comes_back_when_its_wait_is_over(new: New) -> None:
    """Added at A, given to B, and there it fails again and again. Each of the three may be the first in its order, but
    B has counted: nobody else takes it for one whose consumer was not heard of again."""
    for seed in range(240, 246):
        sim = new(nodes="ABC", seed=seed)
        job = sim.add_job(at="A", replicate=3, retry_s=60, backoff_s=1)
        for failures in range(3):
            assert sim.take(at="B", timeout_ms=5_000)[0] == job, f"it did not come back after {failures} failures"
            last = [op for op in sim.history.ops if op.f == "get" and op.type == OK][-1].value["jobs"][0]
            assert last["attempt"] == 1 + failures, f"attempt {last['attempt']} after {failures} failures"
            assert sim.under("nack", job, last["token"], at="B") == "1"
        assert sim.consume_and_ack(at="C", timeout_ms=9_000) == job
        end_well(sim, job, deliveries=4)


@catches("result-stays-behind")
def a_result_is_known_to_every_holder(new: New) -> None:
    """The ack comes in at A, which is lost after it has been collected: who waits at C hears of the result from B."""
    sim = new(nodes="ABC", seed=216)
    job = sim.add_job(at="A", replicate=2, retry_s=10, holders="AB")
    _, token = sim.take(at="A")
    assert sim.under("ack", job, token, at="A", result="forty-two") == "1"
    sim.run_for(seconds=2)
    sim.crash("A")
    sim.run_for(seconds=3)
    assert sim.wait_for_end(job, at="C") == ("done", "forty-two")
    end_well(sim, job)


@catches("result-not-kept")
def a_result_outlives_a_restart(new: New) -> None:
    sim = new(nodes="AB", seed=217)
    job = sim.add_job(at="A", replicate=1, retry_s=10)
    _, token = sim.take(at="A")
    assert sim.under("ack", job, token, at="A", result="forty-two") == "1"
    sim.run_for(seconds=2)
    sim.crash("A")
    sim.restart("A")
    sim.run_for(seconds=2)
    assert sim.wait_for_end(job, at="B") == ("done", "forty-two")
    end_well(sim, job)


@catches("result-ends-with-job")
def a_result_outlives_the_collection_of_its_ack(new: New) -> None:
    sim = new(nodes="ABC", seed=218)
    job = sim.add_job(at="A", replicate=2, retry_s=10, holders="AB")
    _, token = sim.take(at="A")
    assert sim.under("ack", job, token, at="C", result="forty-two") == "1"
    sim.run_for(seconds=60)
    assert sim.copies(job) == {}
    assert sim.wait_for_end(job, at="C") == ("done", "forty-two")
    end_well(sim, job)


@catches("cancel-forgotten")
def what_was_called_off_does_not_come_back(new: New) -> None:
    """CANCEL comes in at C while a worker of A has the job; nothing is heard of that worker again."""
    sim = new(nodes="ABC", seed=219)
    job = sim.add_job(at="A", replicate=2, retry_s=3, holders="AB")
    taken, token = sim.take(at="A")
    assert taken == job
    assert sim.under("call-off", job, "", at="C") == "asked"
    assert sim.under("keepalive", job, token, at="B", ms=3_000) == "cancelled", "told, at whichever node it asks"
    got = sim.wait_for_job(at="B")
    sim.run_for(seconds=12)
    assert got == [], "called off, and handed out"
    end_well(sim, job)


@catches("release-counts")
def giving_back_without_blame_uses_up_nothing(new: New) -> None:
    sim = new(nodes="AB", seed=220)
    job = sim.add_job(at="A", replicate=2, retry_s=10, holders="AB", attempts=2)
    for f in ("release", "release", "nack"):
        taken, token = sim.take(at="A")
        assert taken == job
        assert sim.under(f, job, token, at="A") == "1"
    assert sim.consume_and_ack(at="A") == job, f"one failure of two, and it is {sim.copies(job)}"
    end_well(sim, job, deliveries=4)


@catches("taken-forgets-ending")
def a_job_called_off_on_its_way_is_called_off_for_all(new: New) -> None:
    """At most once, given by B to A, which is slow to say that it took it: B ends it, then hears that it is gone."""
    sim = new(nodes="ABC", seed=216)
    got = sim.wait_for_job(at="A")
    sim.run_for(seconds=1)
    late = sim.hold("A", "B")
    job = sim.add_job(at="B", retry_s=0)
    sim.run_for(seconds=0.1)
    assert got == [job]
    assert sim.under("call-off", job, "", at="B") == "cancelled"
    sim.run_for(seconds=0.5)
    sim.end_fault(late)
    sim.run_for(seconds=10)
    assert [sim.wait_for_end(job, at=name)[0] for name in "ABC"] == ["deleted"] * 3, "taken for done"
    end_well(sim, job)
