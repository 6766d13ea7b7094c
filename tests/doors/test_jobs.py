"""What a job goes through, the same at every door: added, taken, answered for, waited for."""
from __future__ import annotations

import asyncio
from typing import Any

import pytest

import holdfast
from holdfast.client import errors


async def test_a_job_comes_out_as_it_went_in(q: Any, name: str) -> None:
    job_id = await q.add(name, b"\x00\xff binary \r\n")
    job = await q.next(name, timeout=5)
    assert (job.id, job.queue, job.body) == (job_id, name, b"\x00\xff binary \r\n")
    assert await job.done()


async def test_text_is_sent_as_utf8(q: Any, name: str) -> None:
    await q.add(name, "grüße")
    job = await q.next(name, timeout=5)
    assert job.text == "grüße" and job.body == "grüße".encode()


async def test_an_empty_body_is_a_body(q: Any, name: str) -> None:
    await q.add(name, b"")
    assert (await q.next(name, timeout=5)).body == b""


async def test_jobs_come_in_the_order_they_were_added(q: Any, name: str) -> None:
    for number in range(5):
        await q.add(name, str(number))
    assert [job.text for job in await q.take(name, count=5)] == list("01234")


async def test_a_higher_priority_comes_first(q: Any, name: str) -> None:
    for priority in (0, 9, 5):
        await q.add(name, str(priority), priority=priority)
    jobs = await q.take(name, count=3)
    assert [job.text for job in jobs] == ["9", "5", "0"]
    assert [job.priority for job in jobs] == [9, 5, 0]


async def test_many_are_added_in_one_call(q: Any, name: str) -> None:
    ids = await q.add_many(name, [f"{n}" for n in range(50)])
    assert len(set(ids)) == 50 and await q.length(name) == 50
    assert [job.id for job in await q.take(name, count=50)] == ids


async def test_adding_none_is_nothing(q: Any, name: str) -> None:
    assert await q.add_many(name, []) == []


async def test_next_raises_empty_when_time_is_up(q: Any, name: str) -> None:
    with pytest.raises(holdfast.Empty):
        await q.next(name, timeout=0.01)


async def test_try_next_gives_none(q: Any, name: str) -> None:
    assert await q.try_next(name) is None
    assert await q.try_next(name, timeout=0.01) is None


async def test_take_gives_what_is_there(q: Any, name: str) -> None:
    await q.add_many(name, ["a", "b"])
    assert len(await q.take(name, count=10)) == 2
    assert await q.take(name, count=10) == []


async def test_one_who_waits_gets_a_job_when_it_comes(q: Any, name: str) -> None:
    waiting = asyncio.create_task(q.next(name, timeout=10))
    while not (stats := await q.stats(name)) or not stats.blocked:
        await asyncio.sleep(0.002)
    await q.add(name, "late")
    assert (await waiting).text == "late"


async def test_the_first_queue_that_has_a_job_gives_it(q: Any, name: str) -> None:
    await q.add(name + "-b", "x")
    assert (await q.next(name + "-a", name + "-b", timeout=5)).queue == name + "-b"


async def test_jobs_are_iterated_until_none_comes(q: Any, name: str) -> None:
    await q.add_many(name, ["a", "b", "c"])
    seen = []
    async for job in q.jobs(name, timeout=0):
        seen.append(job.text)
        await job.done()
    assert seen == ["a", "b", "c"]


async def test_done_twice_is_done_once(q: Any, name: str) -> None:
    job_id = await q.add(name, "x")
    assert await q.done(job_id) == 1
    assert await q.done(job_id) == 0


async def test_many_are_done_in_one_call(q: Any, name: str) -> None:
    await q.add_many(name, [b"x"] * 20)
    jobs = await q.take(name, count=20)
    assert await q.done(*jobs) == 20
    assert await q.length(name) == 0


async def test_jobs_without_tokens_are_done_as_well(q: Any, name: str) -> None:
    await q.add_many(name, [b"x"] * 20)
    jobs = await q.take(name, count=20, fenced=False)
    assert all(job.token == "" for job in jobs)
    assert await q.done(*jobs) == 20


async def test_nothing_done_is_nothing(q: Any) -> None:
    assert await q.done() == 0 and await q.fail() == 0 and await q.release() == 0


async def test_a_block_that_ends_well_is_done(q: Any, name: str) -> None:
    job_id = await q.add(name, "x")
    async with await q.next(name, timeout=5):
        pass
    view = await q.show(job_id)
    assert view is None or view.state == "acked"


async def test_a_block_that_raises_fails_the_job(q: Any, name: str) -> None:
    await q.add(name, "x")
    with pytest.raises(ValueError):
        async with await q.next(name, timeout=5):
            raise ValueError("oh")
    job = await q.next(name, timeout=5)
    assert job.attempt == 2 and job.nacks == 1


async def test_a_failed_job_comes_back_with_its_count(q: Any, name: str) -> None:
    await q.add(name, "x")
    assert await (await q.next(name, timeout=5)).fail("broken")
    assert (await q.next(name, timeout=5)).nacks == 1


async def test_a_failed_job_waits_as_long_as_it_is_told(q: Any, name: str) -> None:
    job_id = await q.add(name, "x")
    await (await q.next(name, timeout=5)).fail(after=3600)
    assert await q.try_next(name) is None
    view = await q.show(job_id)
    assert view is not None and view.next_requeue_ms > 3_500_000


async def test_a_released_job_uses_up_no_attempt(q: Any, name: str) -> None:
    await q.add(name, "x", attempts=1)
    for _ in range(3):
        assert await (await q.next(name, timeout=5)).release()
    assert (await q.next(name, timeout=5)).nacks == 0


async def test_the_last_attempt_makes_a_job_dead(q: Any, name: str) -> None:
    job_id = await q.add(name, "x", attempts=2)
    for _ in range(2):
        await (await q.next(name, timeout=5)).fail("no luck")
    assert await q.try_next(name) is None
    (dead,) = await q.dead(queue=name)
    assert (dead.id, dead.queue, dead.error) == (job_id, name, "no luck")


async def test_a_worker_can_give_a_job_up(q: Any, name: str) -> None:
    await q.add(name, "x")
    await (await q.next(name, timeout=5)).fail("hopeless", dead=True)
    (dead,) = await q.dead(queue=name)
    assert dead.error == "hopeless"


async def test_dead_jobs_can_be_tried_again(q: Any, name: str) -> None:
    job_id = await q.add(name, "x", attempts=1)
    await (await q.next(name, timeout=5)).fail()
    assert await q.retry_dead(job_id) == 1
    assert (await q.next(name, timeout=5)).id == job_id
    assert await q.dead(queue=name) == []


async def test_dead_jobs_can_be_deleted_by_a_filter(q: Any, name: str) -> None:
    for error in ("boom one", "boom two", "other"):
        await q.add(name, "x")
        await (await q.next(name, timeout=5)).fail(error, dead=True)
    assert await q.delete_dead(queue=name, error="boom*") == 2
    assert [each.error for each in await q.dead(queue=name)] == ["other"]


async def test_headers_travel(q: Any, name: str) -> None:
    await q.add(name, "x", headers={"trace": "abc", "lang": "dé"})
    job = await q.next(name, timeout=5)
    assert job.headers == {"trace": "abc", "lang": "dé"}


async def test_a_parent_travels(q: Any, name: str) -> None:
    parent = await q.add(name, "x")
    await q.add(name + "2", "y", parent=parent)
    assert (await q.next(name + "2", timeout=5)).keys["parent"] == parent


async def test_every_hand_out_has_a_token_of_its_own(q: Any, name: str) -> None:
    await q.add(name, "x")
    first = await q.next(name, timeout=5)
    await first.release()
    second = await q.next(name, timeout=5)
    assert first.token and second.token and first.token != second.token


async def test_a_stale_token_is_refused(q: Any, name: str) -> None:
    await q.add(name, "x")
    stale = await q.next(name, timeout=5)
    await q.release(stale.id)
    fresh = await q.next(name, timeout=5)
    with pytest.raises(holdfast.LeaseLost):
        await stale.done()
    with pytest.raises(holdfast.LeaseLost):
        await stale.fail()
    assert await fresh.done()


async def test_among_many_a_stale_one_is_not_counted(q: Any, name: str) -> None:
    await q.add_many(name, ["x", "y"])
    stale, good = await q.take(name, count=2)
    await q.release(stale.id)
    assert await q.done(stale, good) == 1


async def test_a_lease_can_be_extended(q: Any, name: str) -> None:
    job_id = await q.add(name, "x", retry=1000)
    job = await q.next(name, timeout=5, lease=60)
    view = await q.show(job_id)
    assert view is not None and 50_000 < view.next_requeue_ms <= 60_000
    assert await job.extend(500) == 500
    view = await q.show(job_id)
    assert view is not None and 490_000 < view.next_requeue_ms <= 500_000


async def test_a_lost_lease_cannot_be_extended(q: Any, name: str) -> None:
    await q.add(name, "x")
    job = await q.next(name, timeout=5)
    await q.release(job.id)
    with pytest.raises(holdfast.LeaseLost):
        await job.extend(60)


async def test_the_retry_time_can_begin_again(q: Any, name: str) -> None:
    job_id = await q.add(name, "x", retry=77)
    assert await q.extend(job_id) == 77.0


async def test_a_lease_that_ends_brings_the_job_back(q: Any, name: str) -> None:
    await q.add(name, "x")
    await q.next(name, timeout=5, lease=0.05)
    again = await q.next(name, timeout=10)
    assert again.attempt == 2 and again.additional_deliveries == 1


async def test_many_leases_are_kept_in_one_call(q: Any, name: str) -> None:
    await q.add_many(name, ["x"] * 3)
    jobs = await q.take(name, count=3)
    await q.release(jobs[1].id)
    assert await q.keep(jobs, 60) == ["ok", "lost", "ok"]
    assert await q.keep([], 60) == []


async def test_progress_is_shown(q: Any, name: str) -> None:
    job_id = await q.add(name, "x")
    job = await q.next(name, timeout=5)
    assert await job.progress(0.4, "four of ten")
    view = await q.show(job_id)
    assert view is not None and view.more["progress-text"] == b"four of ten"


async def test_a_waiting_job_is_cancelled_at_once(q: Any, name: str) -> None:
    job_id = await q.add(name, "x")
    assert await q.cancel(job_id) == "cancelled"
    assert await q.try_next(name) is None


async def test_the_worker_of_a_cancelled_job_is_told(q: Any, name: str) -> None:
    job_id = await q.add(name, "x")
    job = await q.next(name, timeout=5)
    assert await q.cancel(job_id) == "asked"
    assert await q.keep([job], 60) == ["cancelled"]
    assert not await job.progress(0.5)
    await job.release()
    assert await q.try_next(name) is None


async def test_cancelling_what_is_not_there_says_so(q: Any, name: str) -> None:
    job_id = await q.add(name, "x")
    await q.done(job_id)
    assert await q.cancel(job_id) == "unknown"


async def test_waiting_for_a_job_brings_its_result(q: Any, name: str) -> None:
    job_id = await q.add(name, "x")
    waiting = asyncio.create_task(q.wait(job_id, timeout=10))
    job = await q.next(name, timeout=5)
    await job.done(b"42")
    (waited,) = await waiting
    assert (waited.id, waited.state, waited.result, waited.is_over) == (job_id, "done", b"42", True)


async def test_a_result_is_there_for_those_who_come_later(q: Any, name: str) -> None:
    job_id = await q.add(name, "x")
    await (await q.next(name, timeout=5)).done(b"later")
    assert (await q.wait(job_id, timeout=5))[0].result == b"later"


async def test_waiting_ends_when_time_is_up(q: Any, name: str) -> None:
    job_id = await q.add(name, "x")
    (waited,) = await q.wait(job_id, timeout=0.01)
    assert waited.state == "waiting" and not waited.is_over


async def test_waiting_for_one_of_many(q: Any, name: str) -> None:
    first, second = await q.add_many(name, ["x", "y"])
    job = await q.next(name, timeout=5)
    await job.done(b"r")
    states = {each.id: each.state for each in await q.wait(first, second, timeout=5, any=True)}
    assert states == {first: "done", second: "waiting"}


async def test_waiting_for_a_dead_job_says_so(q: Any, name: str) -> None:
    job_id = await q.add(name, "x")
    await (await q.next(name, timeout=5)).fail("why", dead=True)
    assert (await q.wait(job_id, timeout=5))[0].state == "dead"


async def test_at_most_once_is_handed_out_once(q: Any, name: str) -> None:
    await q.add(name, "x", retry=0, replicate=1)
    job = await q.next(name, timeout=5)
    assert not await job.fail()
    assert await q.try_next(name) is None


async def test_a_delayed_job_waits_and_can_be_run_now(q: Any, name: str) -> None:
    job_id = await q.add(name, "x", delay=3600)
    assert await q.try_next(name) is None
    assert await q.run_now(job_id)
    assert (await q.next(name, timeout=5)).id == job_id


async def test_at_is_a_delay_by_the_clock(q: Any, name: str) -> None:
    import time

    job_id = await q.add(name, "x", at=time.time() + 1000)
    view = await q.show(job_id)
    assert view is not None and 990 <= view.delay <= 1001


async def test_a_full_queue_refuses(q: Any, name: str) -> None:
    await q.add(name, "x", maxlen=1)
    with pytest.raises(holdfast.MaxLen):
        await q.add(name, "y", maxlen=1)


async def test_a_unique_key_is_taken_until_its_job_is_done(q: Any, name: str) -> None:
    first = await q.add(name, "x", unique="k")
    assert await q.add(name, "y", unique="k") == first
    await (await q.next(name, timeout=5)).done()
    assert await q.add(name, "z", unique="k") != first


async def test_a_duplicate_can_be_rejected(q: Any, name: str) -> None:
    first = await q.add(name, "x", unique="k")
    with pytest.raises(holdfast.Duplicate) as caught:
        await q.add(name, "y", unique="k", on_duplicate="reject")
    assert caught.value.existing == first


async def test_an_idempotent_add_may_be_sent_twice(q: Any, name: str) -> None:
    first = await q.add(name, "x", unique="same", idempotent=True)
    assert await q.add(name, "x", unique="same", idempotent=True) == first
    other = await q.add(name, "x", idempotent=True)
    assert other != first and await q.length(name) == 2


async def test_a_group_runs_one_at_a_time_in_order(q: Any, name: str) -> None:
    for number in range(3):
        await q.add(name, str(number), group="g")
    first = await q.next(name, timeout=5)
    assert first.text == "0" and await q.try_next(name) is None
    await first.done()
    assert (await q.next(name, timeout=5)).text == "1"


async def test_ids_and_jobs_may_be_mixed(q: Any, name: str) -> None:
    await q.add(name, "x")
    other = await q.add(name + "2", "y")
    job = await q.next(name, timeout=5)
    assert await q.done(job, other) == 2


async def test_what_is_no_id_is_a_bad_request(q: Any) -> None:
    with pytest.raises(errors.BadId):
        await q.done("not an id")


async def test_a_wrong_option_is_named(q: Any, name: str) -> None:
    with pytest.raises(TypeError, match="did you mean 'retry'"):
        await q.add(name, "x", retri=3)


async def test_a_body_of_another_kind_is_refused_before_it_is_sent(q: Any, name: str) -> None:
    with pytest.raises(TypeError, match=r"json\.dumps"):
        await q.add(name, {"a": 1})
