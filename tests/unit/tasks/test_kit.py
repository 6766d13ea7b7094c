"""The kit for tests of tasks: what it sees, runs and breaks."""
from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

import holdfast
from holdfast.testing.chaos import Chaos
from holdfast.testing.kit import Kit, result_of

pytest_plugins = ["pytester"]


class Shop:
    """An app with a few tasks, and what they did."""

    def __init__(self) -> None:
        self.app = holdfast.App("memory:", retries=2, backoff=10)
        self.did: Counter[str] = Counter()
        app, did = self.app, self.did

        @app.task(name="greet", queue="mail", result=True)
        def greet(name: str, *, loud: bool = False) -> str:
            did[name] += 1
            return name.upper() if loud else name

        @app.task(name="double")
        async def double(number: int) -> int:
            await asyncio.sleep(0)
            did[f"double {number}"] += 1
            return 2 * number

        @app.task(name="fail")
        def fail() -> None:
            did["fail"] += 1
            raise ValueError("no")

        @app.task(name="chain")
        def chain(depth: int) -> None:
            if depth:
                chain.add(depth - 1)

        self.greet, self.double, self.fail, self.chain = greet, double, fail, chain


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def kit(shop: Shop, holdfast_kit: Callable[[holdfast.App], Kit]) -> Kit:
    return holdfast_kit(shop.app)


def test_what_was_added_is_seen_and_nothing_runs(shop: Shop, kit: Kit) -> None:
    shop.greet.add("ada", loud=True)
    shop.greet.using(delay=60).add("alan")
    kit.assert_added(shop.greet, args=["ada"], kwargs={"loud": True}, queue="mail", delay=0)
    kit.assert_added(shop.greet, args=["alan"], delay=60, count=1)
    kit.assert_not_added(shop.double)
    assert not shop.did


def test_what_was_not_added_is_told_with_what_was(shop: Shop, kit: Kit) -> None:
    shop.greet.add("ada")
    with pytest.raises(AssertionError, match=r"(?s)found 0\. Of this task there are.*ada.*in mail"):
        kit.assert_added(shop.greet, args=["bob"])
    with pytest.raises(AssertionError, match="expected 2 jobs of greet"):
        kit.assert_added(shop.greet, count=2)
    with pytest.raises(AssertionError, match="1 jobs of greet were added"):
        kit.assert_not_added(shop.greet)


def test_drain_runs_what_is_due_and_what_that_adds(shop: Shop, kit: Kit) -> None:
    shop.chain.add(3)
    assert [each.args for each in kit.drain()] == [[3], [2], [1], [0]]
    assert kit.pending() == []


def test_async_tasks_run_in_drain_and_in_a_loop(shop: Shop, kit: Kit) -> None:
    shop.double.add(4)
    (ran,) = kit.drain()
    assert (ran.kind, ran.result) == ("done", 8)

    async def main() -> None:
        added = await shop.double.aadd(5)
        with pytest.raises(AssertionError, match="adrain"):
            kit.drain()
        (ran,) = await kit.adrain()
        assert ran.result == 10
        assert await added.await_result(1) == 10

    asyncio.run(main())


def test_the_clock_stands_until_it_is_moved(shop: Shop, kit: Kit) -> None:
    shop.greet.using(delay=3600).add("later")
    assert kit.drain() == []
    kit.clock.advance(3599)
    assert kit.drain() == []
    kit.clock.advance(1)
    assert [each.args for each in kit.drain()] == [["later"]]


def test_a_failing_task_is_tried_again_after_its_backoff_and_dies(shop: Shop, kit: Kit) -> None:
    shop.fail.add()
    (first,) = kit.drain()
    assert first.kind == "failed" and isinstance(first.error, ValueError)
    assert kit.drain() == []
    assert [each.kind for each in kit.settle()] == ["failed", "failed"]
    assert [each.error for each in kit.queue.dead()] == ["ValueError: no"]


def test_inline_runs_at_once_and_raises(shop: Shop, kit: Kit) -> None:
    with kit.inline():
        added = shop.greet.add("ada", loud=True)
        assert shop.did["ada"] == 1
        assert added.wait(1) == "ADA" == result_of(shop.app, added.id)
        with pytest.raises(ValueError, match="no"):
            shop.fail.add()
        assert len(shop.double.add_many([shop.double.call(1), shop.double.call(2)])) == 2
    shop.greet.add("bob")
    assert shop.did["bob"] == 0


def test_a_unique_task_waits_once_per_arguments(holdfast_app: holdfast.App) -> None:
    @holdfast_app.task(name="sync", unique=True)
    def sync(user: str) -> None: ...

    assert sync.add("a").id == sync.add("a").id != sync.add("b").id


def test_under_chaos_everything_is_done_in_the_end(shop: Shop, kit: Kit) -> None:
    chaos = Chaos(7, drop_acks=0.3, kill_worker=0.3, skew=0.2)
    with kit.under(chaos):
        for number in range(40):
            shop.greet.using(attempts=100).add(str(number))
        ran = kit.settle()
    assert set(shop.did) == {str(number) for number in range(40)}
    assert max(shop.did.values()) > 1, "chaos that never makes a handler run twice tests nothing"
    assert {each.kind for each in ran} == {"done", "killed", "untold", "lost"}
    assert chaos.story


def test_the_same_seed_is_the_same_story(shop: Shop) -> None:
    stories = []
    for _ in range(2):
        chaos = Chaos(11, drop_acks=0.3, kill_worker=0.3, skew=0.1)
        with Kit(shop.app) as kit, kit.under(chaos):
            for number in range(20):
                shop.greet.using(attempts=100).add(str(number))
            kit.settle()
        stories.append(chaos.story)
    assert stories[0] == stories[1] and len(stories[0]) > 5


def test_producers_meet_partitions_and_lost_answers(shop: Shop, kit: Kit) -> None:
    refused = unknown = added = 0
    with kit.under(Chaos(3, partition=0.1, lose_answers=0.2)):
        for number in range(100):
            try:
                shop.greet.add(str(number))
                added += 1
            except holdfast.Refused:
                refused += 1
            except holdfast.Unknown:
                unknown += 1
    assert refused and unknown
    assert len(kit.pending()) == added + unknown  # here an unknown add always happened; a producer can't know


def test_an_idempotent_add_survives_a_lost_answer(shop: Shop, kit: Kit) -> None:
    class Once(Chaos):
        def loses_answer(self, argv: object) -> bool:
            self.lost = getattr(self, "lost", 0) + 1
            return self.lost == 1

    with kit.under(Once(1)):
        shop.greet.using(idempotent=True).add("ada")
    kit.assert_added(shop.greet, args=["ada"], count=1)


def test_a_failing_test_shows_the_seed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_it(holdfast_chaos):
            holdfast_chaos(drop_acks=0.5)
            assert False
        """
    )
    result = pytester.runpytest("-p", "holdfast.testing.pytest_plugin")
    result.stdout.fnmatch_lines(["*chaos*", "Chaos(*, drop_acks=0.5); HOLDFAST_CHAOS_SEED=* plays it again"])


def test_settle_waits_for_the_tokens_of_a_rate(
    holdfast_app: holdfast.App, holdfast_kit: Callable[[holdfast.App], Kit]
) -> None:
    """Ten jobs of a domain that lets one out per second: nine seconds, and no round in which nothing can be done."""
    kit = holdfast_kit(holdfast_app)
    calls: list[float] = []

    @holdfast_app.task(queue="calls", domain="api")
    def call(number: int) -> None:
        calls.append(kit.clock.now)

    kit.queue.limit("api", rate="1/s", burst=1)
    for number in range(10):
        call.add(number)
    assert [each.kind for each in kit.settle()] == ["done"] * 10
    assert 8.9 < calls[-1] - calls[0] < 10.1


def test_settle_says_what_no_time_will_change(
    holdfast_app: holdfast.App, holdfast_kit: Callable[[holdfast.App], Kit]
) -> None:
    kit = holdfast_kit(holdfast_app)
    task = holdfast_app.task(queue="q", name="t")(lambda: None)
    task.add()
    kit.queue.pause("q", "out")
    with pytest.raises(AssertionError, match=r"1 jobs wait, and no time will change that.*paused"):
        kit.settle()


def test_a_schedule_runs_at_each_of_its_times(
    holdfast_app: holdfast.App, holdfast_kit: Callable[[holdfast.App], Kit]
) -> None:
    """A day is jumped over, and each hour has its job: none is missed as if the cluster had been down."""
    kit = holdfast_kit(holdfast_app)
    ticks: list[int] = []

    @holdfast_app.task(queue="ticks", cron="0 * * * *")
    def tick() -> None:
        ticks.append(1)

    assert holdfast_app.schedule_all() == 1 and holdfast_app.schedule_all() == 1
    kit.clock.advance(86_400)
    assert len(kit.drain()) == len(ticks) == 24
    assert kit.settle() == []
