"""Tasks without a worker: what is in a job, which options it gets, what is refused."""
from __future__ import annotations

import asyncio
import functools
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import holdfast
from holdfast.client.adding import AddOptions
from holdfast.client.errors import BadRequest
from holdfast.core import limits
from holdfast.tasks import bodies
from holdfast.tasks.outcomes import Outcome
from holdfast.testing.kit import Kit


@pytest.fixture
def app(holdfast_app: holdfast.App) -> holdfast.App:
    return holdfast_app


def nothing(*args: Any, **kwargs: Any) -> None: ...


def test_a_call_is_still_a_call(app: holdfast.App) -> None:
    @app.task
    def double(number: int) -> int:
        """Twice as much."""
        return 2 * number

    @app.task
    async def triple(number: int) -> int:
        return 3 * number

    assert double(4) == 8 and asyncio.run(triple(4)) == 12
    assert double.__doc__ == "Twice as much." and "double" in repr(double)


def test_a_body_is_json_that_anybody_can_write(app: holdfast.App) -> None:
    task = app.task(name="t", queue="q")(nothing)
    task.add(1, "two", [3], key={"four": None})
    (job,) = app.queue.take("q")
    assert json.loads(job.body) == {"task": "t", "args": [1, "two", [3]], "kwargs": {"key": {"four": None}}}
    assert bodies.read(b'{"task": "t"}') == bodies.Envelope("t")


def test_msgpack_knows_bytes_and_json_says_what_to_do() -> None:
    body = bodies.write("msgpack", "t", (b"\x00",), {})
    assert bodies.read(body).args == [b"\x00"]
    with pytest.raises(TypeError, match="codec='msgpack'"):
        bodies.write("json", "t", (b"\x00",), {})
    with pytest.raises(TypeError, match="cannot be written as json"):
        bodies.write("json", "t", (object(),), {})
    for codec, value in (("json", {"a": [1, None]}), ("msgpack", b"\x00"), ("json", ""), ("json", 0)):
        assert bodies.read_value(bodies.write_value(codec, value)) == value  # type: ignore[arg-type]
    assert bodies.read_value(None) is None and bodies.read_value(b"") is None
    with pytest.raises(TypeError, match="JSON has no bytes"):
        bodies.write_value("json", b"x")


@dataclass
class Point:
    x: float


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, -math.inf, [1.5, [math.nan]], {"a": None, "b": (math.inf,)}, {math.nan}, Point(math.nan)],
    ids=str,
)
def test_json_has_no_nan_and_whoever_adds_one_is_told(value: Any) -> None:
    """It would be null, and the task would run with None."""
    for args, kwargs in (((value,), {}), ((), {"key": value})):
        with pytest.raises(TypeError, match=r"^t: JSON has neither NaN nor infinity"):
            bodies.write("json", "t", args, kwargs)
        bodies.write("msgpack", "t", args, kwargs)


def test_what_is_none_or_says_null_may_be_added() -> None:
    given = [None, "null", Point(1.5), {"null": [None]}, 1e308]
    assert bodies.read(bodies.write("json", "t", tuple(given), {})).args == [None, "null", {"x": 1.5}, *given[3:]]
    assert math.isnan(bodies.read(bodies.write("msgpack", "t", (math.nan,), {})).args[0])


NO_CALLS = [b"", b"x", b"{}", b"[1]", b'{"task": 3}', b'{"task": "t", "args": 3}', b"\x80", b"\xff"]


@pytest.mark.parametrize("body", NO_CALLS)
def test_what_is_no_call_says_so(body: bytes) -> None:
    with pytest.raises(bodies.NoTask):
        bodies.read(body)


def test_options_of_a_task_are_options_of_its_jobs(app: holdfast.App) -> None:
    task = app.task(
        name="t", queue="q", retries=4, backoff=(2, 60), priority=8, ttl=500, group="g",
        domain=lambda user: f"d-{user}", tenant=lambda user: user,
    )(nothing)
    task.add("ada")
    (job,) = app.queue.take("q")
    view = app.queue.show(job.id)
    assert view is not None and 490 < view.ttl <= 500 and job.priority == 8
    assert (view.more["attempts"], view.more["backoff-ms"], view.more["backoff-most-ms"]) == (5, 2000, 60_000)
    assert {name: job.keys[name] for name in ("group", "domain", "tenant")} == {
        "group": "g", "domain": "d-ada", "tenant": "ada",
    }


def test_retries_none_is_for_ever(app: holdfast.App) -> None:
    app.task(name="t", queue="q", retries=None)(nothing).add()
    view = app.queue.show(app.queue.take("q")[0])
    assert view is not None and "attempts" not in view.more


def test_unique_tasks(app: holdfast.App) -> None:
    by_args = app.task(name="a", queue="q", unique=True)(nothing)
    by_user = app.task(name="b", queue="q", unique=lambda user, page: user)(nothing)
    assert by_args.add(1, x=2).id == by_args.add(1, x=2).id != by_args.add(2, x=2).id
    assert by_user.add("ada", 1).id == by_user.add("ada", 2).id != by_user.add("bob", 1).id


def test_many_share_a_command_and_unique_ones_do_not(app: holdfast.App, monkeypatch: pytest.MonkeyPatch) -> None:
    many: list[int] = []
    original = holdfast.Queue.add_many

    def counted(self: holdfast.Queue, queue: str, given: list[bytes], **options: Any) -> list[str]:
        many.append(len(given))
        return original(self, queue, given, **options)

    monkeypatch.setattr(holdfast.Queue, "add_many", counted)
    plain = app.task(name="a", queue="a")(nothing)
    assert len({each.id for each in plain.add_many(plain.call(n) for n in range(2500))}) == 2500
    assert many == [1000, 1000, 500]
    unique = app.task(name="b", queue="b", unique=True)(nothing)
    assert len({each.id for each in unique.add_many(unique.call(n % 2) for n in range(4))}) == 2
    assert many == [1000, 1000, 500]
    grouped = app.task(name="c", queue="c", group=lambda n: str(n // 2))(nothing)
    grouped.add_many(grouped.call(n) for n in range(4))
    assert many[3:] == [2, 2]

    async def main() -> None:
        assert len(await plain.aadd_many(plain.call(n) for n in range(3))) == 3
        assert len(await unique.aadd_many([unique.call(7)])) == 1

    asyncio.run(main())


def indexes(app: holdfast.App, added: list[Any]) -> list[int]:
    shown = [app.queue.call("SHOW", each.id) for each in added]
    return [int(words[words.index(b"index") + 1]) for words in shown]


def test_members_of_a_batch_have_an_index_each_however_many_there_are(app: holdfast.App) -> None:
    """More than a command takes, jobs that cannot share one, and both."""
    plain = app.task(name="a", queue="a")(nothing).using(batch=("all", 7))
    assert indexes(app, plain.add_many(plain.call(n) for n in range(2001))) == [*range(7, 2008)]
    grouped = app.task(name="c", queue="c", group=lambda n: str(n % 2))(nothing).using(batch=("odd", 0))
    assert indexes(app, grouped.add_many(grouped.call(n) for n in (1, 1, 2, 1, 2, 2))) == [*range(6)]
    unique = app.task(name="b", queue="b", unique=True)(nothing).using(batch=("each", 0))
    assert indexes(app, unique.add_many(unique.call(n) for n in range(3))) == [0, 1, 2]

    async def main() -> list[Any]:
        return await unique.aadd_many(unique.call(n) for n in range(3, 6))

    assert indexes(app, asyncio.run(main())) == [0, 1, 2]


def test_a_middleware_may_give_each_member_its_index() -> None:
    class Numbers(holdfast.Middleware):
        count = 10

        def before_add(self, task: str, options: AddOptions) -> AddOptions:
            self.count += 5
            return {**options, "batch": ("all", self.count)}

    app = holdfast.App("memory:", middleware=[Numbers()])
    task = app.task(name="a", queue="a")(nothing)
    assert indexes(app, task.add_many(task.call(n) for n in range(3))) == [15, 20, 25]


def test_what_is_no_batch_is_said(app: holdfast.App) -> None:
    task = app.task(name="a", queue="a")(nothing).using(batch="all")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="batch is a name and an index"):
        task.add_many(task.call(n) for n in range(3))


def test_two_tasks_cannot_have_one_name(app: holdfast.App) -> None:
    app.task(name="t")(nothing)
    app.task(name="t")(nothing)  # the same one again, as a reload makes it
    with pytest.raises(holdfast.BadRequest, match="two tasks have the name"):
        app.task(name="t")(lambda: 3)


def test_a_task_needs_a_name_others_find_it_by(app: holdfast.App) -> None:
    with pytest.raises(holdfast.BadRequest, match="pass name="):
        app.task(queue="q")(lambda: None)


def test_raw_tasks_have_a_queue_each(app: holdfast.App) -> None:
    task = app.task(name="r", queue="raw", raw=True)(nothing)
    task.add(b"\x01")
    assert app.queue.take("raw")[0].body == b"\x01"
    with pytest.raises(TypeError, match="one argument, bytes"):
        task.add("text")
    with pytest.raises(holdfast.BadRequest, match="gets every job"):
        app.task(name="s", queue="raw", raw=True)(nothing)


def test_an_async_task_cannot_have_a_process(app: holdfast.App) -> None:
    async def work() -> None: ...

    with pytest.raises(holdfast.BadRequest, match="only a plain function"):
        app.task(name="t", runs_in="process")(work)


def test_current_job_is_for_handlers(app: holdfast.App, holdfast_kit: Callable[[holdfast.App], Kit]) -> None:
    seen: list[tuple[int, dict[str, str]]] = []

    @app.task(name="t", queue="q")
    def work() -> None:
        job = holdfast.current_job()
        job.progress(0.5, "half")
        seen.append((job.attempt, job.headers))

    work.using(headers={"a": "b"}).add()
    kit = holdfast_kit(app)
    work.using(headers={"a": "b"}).add()
    kit.drain()
    assert seen == [(1, {"a": "b"})]
    with pytest.raises(holdfast.BadRequest, match="no job is running here"):
        holdfast.current_job()


class Trace(holdfast.Middleware):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def before_add(self, task: str, options: AddOptions) -> AddOptions:
        return {**options, "headers": {"trace": task}}

    def before_run(self, job: holdfast.RunningJob) -> None:
        self.seen.append(f"before {job.headers['trace']}")

    def after_run(self, job: holdfast.RunningJob, outcome: Outcome) -> None:
        self.seen.append(f"after {outcome.kind}")


def test_middleware_is_around_every_task() -> None:
    trace = Trace()
    app = holdfast.App("memory:", middleware=[trace], retries=0)

    @app.task(name="good")
    def good() -> None: ...

    @app.task(name="bad")
    async def bad() -> None:
        raise ValueError

    with Kit(app) as kit:
        good.add()
        bad.add()
        kit.drain()
    assert trace.seen == ["before good", "after done", "before bad", "after failed"]


def test_a_hook_that_raises_fails_the_job() -> None:
    class Broken(holdfast.Middleware):
        def after_run(self, job: holdfast.RunningJob, outcome: Outcome) -> None:
            raise ValueError("hook")

    app = holdfast.App("memory:", middleware=[Broken()], retries=0)
    task = app.task(name="t")(nothing)
    with Kit(app) as kit:
        task.add()
        (ran,) = kit.drain()
    assert ran.kind == "failed" and str(ran.error) == "hook"


def test_waiting_for_a_result(app: holdfast.App, holdfast_kit: Callable[[holdfast.App], Kit]) -> None:
    kit = holdfast_kit(app)

    @app.task(name="t", retries=0)
    def work(number: int) -> int:
        if number < 0:
            raise ValueError("negative")
        return number + 1

    quiet = app.task(name="n")(nothing)
    good, bad, none = work.add(1), work.add(-1), quiet.add()
    kit.drain()
    assert good.wait(1) == 2
    with pytest.raises(holdfast.TaskFailed, match="dead: ValueError: negative"):
        bad.wait(1)
    with pytest.raises(holdfast.TaskFailed, match="result=True"):
        none.wait(1)


def test_the_url_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_URL", "holdfast://somewhere")
    assert holdfast.App().url == "holdfast://somewhere"
    monkeypatch.delenv("HOLDFAST_URL")
    assert holdfast.App().url == "memory:"
    with pytest.raises(holdfast.BadRequest, match="json or msgpack"):
        holdfast.App(codec="pickle")  # type: ignore[arg-type]


def test_sync_and_async_see_the_same_embedded_queue() -> None:
    app = holdfast.App("memory:")
    task = app.task(name="t", queue="q")(nothing)
    task.add()

    async def main() -> int:
        await task.aadd()
        return await (await app.aqueue()).length("q")

    assert asyncio.run(main()) == 2
    app.close()


def test_a_task_on_a_schedule_runs_when_its_time_comes(
    app: holdfast.App, holdfast_kit: Callable[[holdfast.App], Kit]
) -> None:
    did: list[int] = []

    @app.task(queue="clock", cron="*/5 * * * *", zone="Europe/Berlin", priority=7, retries=1)
    def tidy(depth: int = 3) -> None:
        assert holdfast.current_job().priority == 7
        did.append(depth)

    kit = holdfast_kit(app)
    assert app.schedule_all() == 1
    (entry,) = app.queue.schedules()
    assert (entry.name, entry.when, entry.zone, entry.queue) == (tidy.name, "*/5 * * * *", "Europe/Berlin", "clock")
    assert app.schedule_all() == 1 and len(app.queue.schedules()) == 1, "each worker says so when it starts"
    assert kit.drain() == []
    for _ in range(3):
        kit.clock.advance(300)
        kit.drain()
    assert did == [3, 3, 3]
    tidy.add(depth=1)  # It is a task like any other, too.
    kit.drain()
    assert did[-1] == 1


def test_a_schedule_that_cannot_work_is_refused_where_it_is_written(app: holdfast.App) -> None:
    with pytest.raises(holdfast.BadRequest, match="without arguments"):

        @app.task(cron="@daily")
        def greet(name: str) -> None: ...

    with pytest.raises(holdfast.BadRequest, match="without arguments"):

        @app.task(cron="@daily", raw=True)
        def take(body: bytes) -> None: ...

    with pytest.raises(holdfast.BadRequest, match="zone"):

        @app.task(zone="Europe/Berlin")
        def lost() -> None: ...

    assert app.tasks == {}

    @app.task(cron="at noon")
    def lunch() -> None: ...

    with pytest.raises(holdfast.BadRequest, match="five fields"):
        app.schedule_all()


def test_a_key_is_made_of_the_arguments_by_their_names_however_they_are_passed() -> None:
    app = holdfast.App("memory:")

    @app.task(name="order", queue="q", group=lambda user, **_: user, tenant=lambda shop: shop)
    def order(user: str, number: int, shop: str = "main") -> None: ...

    for added in (order.add("ann", 1), order.add("ann", number=1), order.add(number=1, user="ann", shop="main")):
        view = app.queue.show(added.id)
        assert view is not None and (view.more["group"], view.more["tenant"]) == (b"ann", b"main")


def test_a_key_with_names_of_its_own_gets_the_arguments_as_they_are() -> None:
    app = holdfast.App("memory:")

    @app.task(name="order", queue="q", group=lambda first, *rest: f"{first}-{len(rest)}")
    def order(user: str, number: int) -> None: ...

    view = app.queue.show(order.add("ann", 1).id)
    assert view is not None and view.more["group"] == b"ann-1"


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1, 2, 3), {}), ((1,), {"c": 2}), ((1,), {"a": 2})])
def test_a_call_that_cannot_work_is_refused_where_it_is_made(args: tuple[int, ...], kwargs: dict[str, int]) -> None:
    app = holdfast.App("memory:")

    @app.task(name="t", queue="q")
    def task(a: int, b: int = 0) -> None: ...

    with pytest.raises(TypeError, match="t cannot be called so"):
        task.add(*args, **kwargs)
    with pytest.raises(TypeError, match="t cannot be called so"):
        task.add_many([(args, kwargs)])
    assert app.queue.length("q") == 0


def test_a_function_behind_a_decorator_takes_what_the_decorator_takes() -> None:
    app = holdfast.App("memory:")

    def with_database(function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return function("database", *args, **kwargs)

        return call

    @app.task(name="t", queue="q")
    @with_database
    def task(database: str, a: int) -> None: ...

    task.add(1)
    assert app.queue.length("q") == 1


def test_what_a_task_cannot_be_is_said_when_it_is_made() -> None:
    app = holdfast.App("memory:")
    for wrong, words in [
        ({"runs_in": "processes"}, "not in 'processes'"), ({"timeout": 0}, "more than 0"),
        ({"retries": -2}, "0 or more"),
    ]:
        with pytest.raises(holdfast.BadRequest, match=words):
            app.task(name="t", **wrong)(print)  # type: ignore[call-overload]
    task = app.task(name="t")(print)
    with pytest.raises(TypeError, match="did you mean 'delay'"):
        task.using(dely=5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"add_many takes calls"):
        task.add_many([1, 2])  # type: ignore[list-item]


def test_a_task_does_not_expire_unless_told(app: holdfast.App, holdfast_kit: Callable[[holdfast.App], Kit]) -> None:
    """A backlog over a long holiday is still there; one with a time of its own is found among the dead."""
    kit = holdfast_kit(app)
    plain = app.task(name="plain", queue="slow")(nothing)
    short = app.task(name="short", queue="slow", ttl=timedelta(hours=2), on_expire="dead")(nothing)
    gone = app.task(name="gone", queue="slow", ttl=60, on_expire="drop")(nothing)
    for task in (plain, short, gone):
        task.add()
    kit.clock.advance(3 * 3600)
    assert [each.task for each in kit.pending()] == ["plain"]
    (dead,) = kit.queue.dead()
    assert (dead.cause, dead.error) == ("expired", "its time was over before it was done")
    with pytest.raises(holdfast.TaskFailed, match="is dead: its time was over"):
        app.job(dead.id).result()
    kit.clock.advance(90 * 86_400)
    assert [each.task for each in kit.pending()] == ["plain"] and kit.queue.dead() == []


def test_a_queue_says_how_long_tasks_live(app: holdfast.App, holdfast_kit: Callable[[holdfast.App], Kit]) -> None:
    kit = holdfast_kit(app)
    task = app.task(name="t", queue="q")(nothing)
    kit.queue.configure("q", ttl=3600)
    task.add()
    task.using(ttl=7200).add()
    task.using(delay=86_400).add()
    lives = sorted(each.view.ttl for each in kit.pending())
    assert lives == [3600, 7200, 86_400 + 3600], "a delayed job lives from the end of its delay"


def test_times_are_timedeltas_and_datetimes(app: holdfast.App, holdfast_kit: Callable[[holdfast.App], Kit]) -> None:
    kit = holdfast_kit(app)
    task = app.task(
        name="t", retry=timedelta(minutes=2), backoff=(timedelta(seconds=1), timedelta(minutes=1)),
        timeout=timedelta(seconds=5),
    )(nothing)
    task.using(delay=timedelta(days=60)).add()
    task.using(at=datetime.fromtimestamp(kit.clock.now, UTC) + timedelta(days=400)).add()
    assert sorted(round(each.delay / 86_400) for each in kit.pending()) == [60, 400]
    assert {each.view.retry for each in kit.pending()} == {120} and task.timeout == 5.0
    app.queue.add("q", "x", delay=timedelta(hours=30), ttl=timedelta(days=3), retry=timedelta(seconds=9))
    with pytest.raises(TypeError, match="a datetime without a zone"):
        task.using(at=datetime(2030, 1, 1)).add()  # that is what is refused
    with pytest.raises(TypeError, match="unix seconds or a datetime, not str"):
        task.using(at="tomorrow").add()  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="delay is a number of seconds or a timedelta, not str"):
        task.using(delay="1h").add()  # type: ignore[arg-type]


def test_what_the_decorator_takes(app: holdfast.App) -> None:
    task = app.task(name="t", retry=0, sync=1, unique=True, window=60)(nothing)
    options = task.options_for((), {})
    assert (options["retry"], options["sync"], options["window"], options["ttl"]) == (0, 1, 60, None)
    with pytest.raises(BadRequest, match="window says how long a unique key stays taken"):
        app.task(name="u", window=60)
    with pytest.raises(TypeError, match="retry is a number of seconds"):
        app.task(name="v", retry="soon")  # type: ignore[call-overload]


def test_a_job_by_its_id(app: holdfast.App, holdfast_kit: Callable[[holdfast.App], Kit]) -> None:
    kit = holdfast_kit(app)
    task = app.task(name="t", queue="q")(len)
    done, waits = task.add("four"), task.using(delay=60).add("later")
    kit.drain()
    found = app.job(done.id)
    assert found == done and found.state() == "done" and found.result() == 4
    assert waits.state() == "waiting" and asyncio.run(waits.astate()) == "waiting"
    with pytest.raises(TimeoutError):
        waits.result()
    why = waits.explain()
    assert why is not None and why.reasons[0].code == "delayed"
    assert waits.cancel() == "cancelled" and waits.state() in ("deleted", "unknown")
    with pytest.raises(TypeError, match="the id of a job is a str, not int"):
        app.job(3)  # type: ignore[arg-type]


def test_who_comes_from_celery_is_told_where_things_went(app: holdfast.App) -> None:
    task: Any = app.task(name="shop.send")(nothing)
    hints = {"delay": r"send.add\(…\)", "apply_async": r"send.using\(delay=60\).add", "s": r"send.call"}
    for name, hint in hints.items():
        with pytest.raises(AttributeError, match=hint):
            getattr(task, name)
    with pytest.raises(AttributeError, match=r"no 'colour'$"):
        task.colour  # noqa: B018
    with pytest.raises(AttributeError, match=r"app\.job"):
        app.AsyncResult  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(TypeError, match="delay in place of countdown"):
        task.using(countdown=5)
    with pytest.raises(TypeError, match="retries in place of max_retries"):
        app.task(max_retries=3)  # type: ignore[call-overload]
    strict: Any = app.task(name="shop.strict")(lambda to: None)
    with pytest.raises(TypeError, match=r"goes into strict.using\(delay=…\).add"):
        strict.add("ada", countdown=5)


def test_a_result_that_cannot_be_kept_ends_the_job_once(
    app: holdfast.App, holdfast_kit: Callable[[holdfast.App], Kit]
) -> None:
    """The work is done; to do it again would give the same. The one who waits is told what is wrong."""
    kit = holdfast_kit(app)
    runs: list[str] = []

    @app.task(name="large", retries=5)
    def large(size: int) -> str:
        runs.append("large")
        return "x" * size

    @app.task(name="strange", retries=5)
    def strange() -> object:
        runs.append("strange")
        return object()

    fits, jobs = large.add(65_000), (large.add(70_000), strange.add())
    kit.settle()
    assert runs == ["large", "large", "strange"] and len(fits.wait(1)) == 65_000
    told = ("70003 bytes, and a result has 65536 at most", "cannot be written as json")
    for job, words in zip(jobs, told, strict=True):
        with pytest.raises(holdfast.TaskFailed, match=words):
            job.wait(1)
    assert bodies.RESULT_BYTES_MAX == limits.RESULT_BYTES_MAX


def test_where_it_failed_is_kept_with_the_job(app: holdfast.App, holdfast_kit: Callable[[holdfast.App], Kit]) -> None:
    kit = holdfast_kit(app)

    @app.task(name="fails", retries=1, backoff=1)
    def fails() -> None:
        raise ValueError("no such thing")

    @app.task(name="meant", retries=0)
    def meant() -> None:
        raise holdfast.Discard("on purpose")

    job, other = fails.add(), meant.add()
    kit.settle()
    assert {each.error for each in kit.queue.dead()} == {"ValueError: no such thing", "Discard: on purpose"}
    view = kit.queue.show(job.id)
    assert view is not None
    trace = view.more["trace"].decode()  # type: ignore[union-attr]
    assert trace.startswith("Traceback") and 'raise ValueError("no such thing")' in trace
    why = job.explain()
    assert why is not None and "where it failed:\nTraceback" in "\n".join(why.history)
    told = kit.queue.show(other.id)
    assert told is not None and "trace" not in told.more
