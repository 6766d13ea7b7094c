"""What can be asked and set about queues, the same at every door."""
from __future__ import annotations

import asyncio
from typing import Any

import pytest

import holdfast
from holdfast.client import errors


async def test_the_length_of_a_queue(q: Any, name: str) -> None:
    assert await q.length(name) == 0
    await q.add_many(name, ["x"] * 3)
    assert await q.length(name) == 3


async def test_peeking_takes_nothing(q: Any, name: str) -> None:
    await q.add_many(name, ["a", "b", "c"])
    assert [each.body for each in await q.peek(name, 2)] == [b"a", b"b"]
    assert [each.body for each in await q.peek(name, -1)] == [b"c"]
    assert await q.length(name) == 3


async def test_stats_count_what_went_through(q: Any, name: str) -> None:
    assert await q.stats(name) is None
    await q.add(name, "x")
    await q.next(name, timeout=5)
    stats = await q.stats(name)
    assert (stats.name, stats.jobs_in, stats.jobs_out, stats.length) == (name, 1, 1, 0)


async def test_a_job_is_shown(q: Any, name: str) -> None:
    job_id = await q.add(name, "x", retry=30, ttl=600, priority=7)
    view = await q.show(job_id)
    assert (view.id, view.queue, view.state, view.retry, view.body) == (job_id, name, "queued", 30, b"x")
    assert 590 <= view.ttl <= 600


async def test_an_unknown_job_is_shown_as_none(q: Any, name: str) -> None:
    job_id = await q.add(name, "x")
    await q.done(job_id)
    await q.delete(job_id)
    assert await q.show(job_id) is None


async def test_a_job_that_waits_is_explained(q: Any, name: str) -> None:
    job_id = await q.add(name, "x", delay=100)
    why = await q.explain(job_id)
    assert why.id == job_id and why.summary
    assert any(reason.ms_until is not None and reason.ms_until <= 100_000 for reason in why.reasons)


async def test_queues_are_listed(q: Any, name: str) -> None:
    await q.add(name, "x")
    assert name in await q.queues()


async def test_jobs_are_browsed_page_by_page(q: Any, name: str) -> None:
    ids = await q.add_many(name, [b"x"] * 250)
    await q.add(name, "later", delay=100)
    seen = [view.id async for view in q.browse(name, states=("queued",))]
    assert sorted(seen) == sorted(ids)


async def test_a_paused_queue_takes_and_gives_nothing(q: Any, name: str) -> None:
    await q.add(name, "x")
    assert await q.pause(name) == "all"
    with pytest.raises(holdfast.Paused):
        await q.add(name, "y")
    assert await q.try_next(name) is None
    await q.resume(name)
    assert (await q.next(name, timeout=5)).text == "x"


async def test_only_one_side_can_be_paused(q: Any, name: str) -> None:
    await q.pause(name, "out")
    await q.add(name, "x")
    assert await q.try_next(name) is None
    await q.resume(name)
    assert await q.try_next(name) is not None


async def test_a_queue_is_bounded_by_a_setting(q: Any, name: str) -> None:
    await q.configure(name, maxlen=1)
    await q.add(name, "x")
    with pytest.raises(holdfast.MaxLen):
        await q.add(name, "y")
    assert (await q.settings(name))["maxlen"] in (1, b"1")


async def test_a_queue_is_flushed(q: Any, name: str) -> None:
    await q.add_many(name, ["x"] * 5)
    assert await q.flush(name) == 5
    assert await q.length(name) == 0


async def test_jobs_are_deleted(q: Any, name: str) -> None:
    first, second = await q.add_many(name, ["x", "y"])
    assert await q.delete(first) == 1
    assert (await q.next(name, timeout=5)).id == second


async def test_a_job_is_moved_to_another_queue(q: Any, name: str) -> None:
    job_id = await q.add(name, "x")
    assert await q.move(job_id, name + "-other")
    assert (await q.next(name + "-other", timeout=5)).id == job_id


async def test_a_job_gets_another_priority(q: Any, name: str) -> None:
    await q.add(name, "first")
    second = await q.add(name, "second")
    assert await q.prioritize(second, 9)
    assert (await q.next(name, timeout=5)).text == "second"


async def test_a_worker_is_listed_while_it_beats(q: Any, name: str) -> None:
    await q.beat(name, seconds=60, facts={"host": "here"})
    found = {each.name: each.facts for each in await q.workers()}
    assert found[name]["host"] == "here"


async def test_any_command_can_be_sent(q: Any) -> None:
    assert await q.call("PING") == b"PONG"
    with pytest.raises(errors.BadRequest):
        await q.call("NOSUCHCOMMAND")


async def test_many_at_once_get_their_own_answers(q: Any, name: str) -> None:
    ids = await asyncio.gather(*(q.add(name, str(n)) for n in range(100)))
    views = await asyncio.gather(*(q.show(job_id) for job_id in ids))
    assert [view.body for view in views] == [b"%d" % n for n in range(100)]


async def test_a_closed_queue_says_so(url: str) -> None:
    queue = await holdfast.aopen("memory:" if url.startswith("file") else url)  # the folder is in use
    await queue.close()
    with pytest.raises(holdfast.Closed):
        await queue.length("q")
