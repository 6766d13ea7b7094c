"""The table of jobs by sequence number: pages come, go and are found in order."""
from __future__ import annotations

import random

from holdfast.core.job import PAGE_SLOTS, Job, Origin, Page
from holdfast.core.limits import NEVER

from .making import make_job


def put(origin: Origin, seq: int) -> Job:
    job = make_job(seq, origin=origin)
    origin.put(job)
    return job


def numbers(pages: list[Page]) -> list[int]:
    return [page.number for page in pages]


def test_against_a_dict() -> None:
    """Sequence numbers that grow, as those of this node, and any at all, as those of others may come."""
    for seed in range(40):
        rng = random.Random(seed)
        origin = Origin(b"DI00000000")
        jobs: dict[int, Job] = {}
        seq = 10 * PAGE_SLOTS
        for _ in range(600):
            if rng.randrange(2):
                seq = seq + 1 if seed % 2 else rng.randrange(12 * PAGE_SLOTS)
                if seq not in jobs:
                    jobs[seq] = put(origin, seq)
            elif jobs:
                gone = rng.choice(list(jobs)[:40])
                origin.remove(jobs.pop(gone))
            for key in (seq, rng.randrange(14 * PAGE_SLOTS)):
                assert origin.get(key) is jobs.get(key)
            if rng.randrange(8) == 0:
                first, most = rng.randrange(14 * PAGE_SLOTS), rng.choice([1, 2, 100])
                pages = [page for page in origin.pages_from(first, 100) if page.live]
                wanted = {key // PAGE_SLOTS for key in jobs if key // PAGE_SLOTS >= first // PAGE_SLOTS}
                assert numbers(pages) == sorted(wanted)
                assert len(origin.pages_from(first, most)) <= most
        assert origin.count == len(jobs) == sum(page.live for page in origin.pages.values())
        assert all(page.live or page is origin.put_page for page in origin.pages.values())
        assert len(origin.order) <= 64 + 2 * len(origin.pages) + 1


def test_an_empty_page_is_dropped_once_it_is_not_the_one_being_filled() -> None:
    origin = Origin(b"DI00000000")
    first, second = put(origin, 0), put(origin, PAGE_SLOTS)
    page = origin.pages[0]
    page.wake = 5
    origin.remove(first)
    assert list(origin.pages) == [1] and page.wake == NEVER
    origin.remove(second)
    assert list(origin.pages) == [1]  # still being filled
    put(origin, 2 * PAGE_SLOTS)
    assert list(origin.pages) == [2]


def test_a_page_that_was_dropped_can_come_again() -> None:
    """A copy from another node may be older than what is here."""
    origin = Origin(b"DI00000000")
    old = put(origin, 5)
    assert origin.get(5) is old
    origin.remove(old)
    put(origin, PAGE_SLOTS)  # page 0 is empty and no longer filled: dropped
    again = put(origin, 5)
    assert origin.get(5) is again
    assert numbers(origin.pages_from(0, 10)) == [0, 1]


def test_a_page_that_comes_again_is_listed_once() -> None:
    origin = Origin(b"DI00000000")
    put(origin, 0)
    origin.remove(put(origin, PAGE_SLOTS))
    put(origin, 1)  # page 1, the last in order, is dropped
    put(origin, PAGE_SLOTS)
    assert numbers(origin.pages_from(0, 10)) == [0, 1]


def test_pages_from_begins_with_the_page_of_the_number() -> None:
    origin = Origin(b"DI00000000")
    for number in (3, 1, 7):
        put(origin, number * PAGE_SLOTS + 5)
    assert numbers(origin.pages_from(0, 10)) == [1, 3, 7]
    assert numbers(origin.pages_from(0, 2)) == [1, 3]
    assert numbers(origin.pages_from(3 * PAGE_SLOTS + 100, 10)) == [3, 7]
    assert numbers(origin.pages_from(4 * PAGE_SLOTS, 10)) == [7]
    assert numbers(origin.pages_from(8 * PAGE_SLOTS, 10)) == []
