"""A lane against a sorted list: the same jobs in the same order, whatever is done to it."""
from __future__ import annotations

import random
from bisect import insort

import pytest

from holdfast.core.job import Job
from holdfast.core.lane import BLOCK_JOBS, Lane

from .making import make_job

Key = tuple[int, int, int]


def order(job: Job) -> Key:
    return job.ctime, job.seq, job.rnd


def peek(lane: Lane, count: int, newest: bool = False) -> list[Key]:
    found: list[Job] = []
    if newest:
        lane.latest(count, found)
    else:
        lane.oldest(count, found)
    return [order(job) for job in found]


@pytest.mark.parametrize("seed", range(12))
def test_against_a_sorted_list(seed: int) -> None:
    """Each seed has its own mix: some lanes stay short, some grow to many blocks and are emptied again."""
    rng = random.Random(seed)
    lane = Lane(5)
    queued: list[Key] = []
    jobs: dict[Key, Job] = {}
    away: list[Job] = []  # taken, and likely to come back to their old place
    clock = 0
    shares = [rng.choice([1, 4]), rng.choice([0, 2]), rng.choice([1, 3]), rng.choice([1, 2]), rng.choice([0, 2]), 1]
    for turn in range(4000):
        if turn % 1000 == 500:  # the other way round: what grew now shrinks
            shares = [1, 1, 6, 2, 3, 1]
        elif turn % 1000 == 0:
            shares = [8, 2, 1, 2, 1, 1]
        what = rng.choices(["push", "insert", "pop", "return", "remove", "peek"], shares)[0]
        if what == "push":
            for _ in range(rng.choice([1, 1, 5, 40])):
                clock += rng.choice([0, 1, 3])
                put(lane, make_job(len(jobs), clock, rng.randrange(3)), queued, jobs)
        elif what == "insert":
            put(lane, make_job(len(jobs), rng.randrange(clock + 1), rng.randrange(3)), queued, jobs)
        elif what == "return" and away:
            put(lane, away.pop(rng.randrange(len(away))), queued, jobs)
        elif what == "pop":
            for _ in range(rng.choice([1, 1, 5, 40])):
                job = lane.pop()
                assert (job and order(job)) == (queued.pop(0) if queued else None)
                if job is not None:
                    away.append(job)
        elif what == "remove" and queued:
            job = jobs[queued.pop(rng.choice([0, -1, rng.randrange(len(queued))]))]
            lane.remove(job)
            away.append(job)
        elif what == "peek":
            count = rng.choice([0, 1, 7, 10_000])
            assert peek(lane, count) == queued[:count]
            assert peek(lane, count, newest=True) == queued[::-1][:count]
        assert lane.size == len(queued)
    assert peek(lane, 10**6) == queued


def put(lane: Lane, job: Job, queued: list[Key], jobs: dict[Key, Job]) -> None:
    lane.push(job)
    jobs[order(job)] = job
    insort(queued, order(job))


def test_a_block_that_grows_in_the_middle_is_split() -> None:
    lane = Lane(5)
    for i in range(2):
        lane.push(make_job(i, i * 1_000_000))
    for i in range(2, 4 * BLOCK_JOBS):
        lane.push(make_job(i, 1_000_000 - i))
    assert len(lane.blocks) > 1
    assert all(len(block.items) <= 2 * BLOCK_JOBS for block in lane.blocks)
    assert peek(lane, 10**6) == sorted(peek(lane, 10**6))


def test_what_was_taken_leaves_no_blocks_behind() -> None:
    lane = Lane(5)
    for i in range(10 * BLOCK_JOBS):
        lane.push(make_job(i, i + 1))
    for _ in range(10 * BLOCK_JOBS):
        lane.pop()
    assert lane.pop() is None
    assert len(lane.blocks) == 1 and not lane.head.items


def test_jobs_of_the_same_time_are_in_the_order_of_their_ids() -> None:
    lane = Lane(5)
    for seq, rnd in [(2, 0), (1, 9), (1, 3), (3, 0)]:
        lane.push(make_job(seq, 7, rnd))
    assert peek(lane, 9) == [(7, 1, 3), (7, 1, 9), (7, 2, 0), (7, 3, 0)]
