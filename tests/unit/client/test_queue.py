"""What each method sends, what it makes of the answer, and what leaving a `with` block means.

The channel is a list of prepared answers, so these tests are about words and values only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from holdfast.client import asks, errors
from holdfast.client.asks import Undo
from holdfast.client.queue import AsyncQueue, Queue
from holdfast.client.resp import Argv, Reply
from holdfast.testing.sim.cluster import Cluster

JOB: Reply = [[b"q", b"ID1", b"body", b"nacks", 2, b"additional-deliveries", 1]]


class Script:
    """A channel that answers from a list."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.sent: list[list[Any]] = []
        self.patience: list[float | None] = []
        self.is_closed = False

    def call(self, argv: Argv, patience: float | None = 0.0, undo: Undo | None = None, near: str = "") -> Reply:
        self.sent.append(list(argv))
        self.patience.append(patience)
        reply = self.replies.pop(0)
        if isinstance(reply, BaseException) and not isinstance(reply, errors.BadRequest):
            raise reply
        return reply

    def call_many(self, commands: Sequence[Argv], near: str = "") -> list[Reply]:
        return [self.call(argv) for argv in commands]

    def twin(self) -> AsyncScript:
        raise NotImplementedError

    def close(self) -> None:
        self.is_closed = True


class AsyncScript:
    def __init__(self, *replies: Reply) -> None:
        self.script = Script(*replies)

    async def call(
        self, argv: Argv, patience: float | None = 0.0, undo: Undo | None = None, near: str = ""
    ) -> Reply:
        await asyncio.sleep(0)
        return self.script.call(argv, patience, undo)

    async def call_many(self, commands: Sequence[Argv], near: str = "") -> list[Reply]:
        return self.script.call_many(commands)

    async def close(self) -> None:
        self.script.close()


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)


def test_add_speaks_milliseconds_for_patience_and_whole_seconds_for_the_rest() -> None:
    script = Script(b"ID1")
    job_id = Queue(script).add(
        "q", "body", timeout=0.25, replicate=2, delay=0.5, retry=30, ttl=60.2, maxlen=7, priority=9,
        is_async=True,
    )
    assert job_id == "ID1"
    assert script.sent == [
        ["ADDJOB", "q", "body", 250, "REPLICATE", 2, "DELAY", 1, "RETRY", 30, "TTL", 61,
         "MAXLEN", 7, "PRIORITY", 9, "ASYNC"]
    ]
    assert script.patience == [0.25]


def test_add_without_options_waits_five_seconds_for_copies() -> None:
    script = Script(b"ID1", b"ID2")
    Queue(script).add("q", b"\x00")
    Queue(script).add("q", b"\x00", timeout=None, is_async=False)
    assert script.sent == [["ADDJOB", "q", b"\x00", 5000], ["ADDJOB", "q", b"\x00", 0]]
    assert script.patience == [5.0, None]


def test_a_fraction_never_becomes_zero_where_zero_means_something_else() -> None:
    """RETRY 0 is at most once, TIMEOUT 0 is for ever."""
    script = Script(b"ID1", None)
    Queue(script).add("q", "b", retry=0.001)
    Queue(script).take("q", timeout=0.0001)
    assert script.sent[0][-2:] == ["RETRY", 1]
    assert script.sent[1][1:3] == ["TIMEOUT", 1]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_duration_must_be_a_number(value: float) -> None:
    with pytest.raises(errors.BadRequest, match="delay"):
        Queue(Script()).add("q", "b", delay=value)
    with pytest.raises(errors.BadRequest):
        Queue(Script()).next("q", timeout=-1)


def test_add_many_is_one_call_and_none_for_nothing() -> None:
    script = Script([b"ID1", b"ID2"])
    queue = Queue(script)
    assert queue.add_many("q", (body for body in ("a", b"b")), ttl=9) == ["ID1", "ID2"]
    assert queue.add_many("q", []) == []
    assert script.sent == [["ADDJOBS", "q", 5000, 2, "a", b"b", "TTL", 9]]


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (asks.take(("a", "b"), 1, None), ["GETJOB", "WITHCOUNTERS", "WITHMETA", "FROM", "a", "b"]),
        (asks.take(("a",), 1, 0), ["GETJOB", "NOHANG", "WITHCOUNTERS", "WITHMETA", "FROM", "a"]),
        (asks.take(("a",), 50, 1.5), ["GETJOB", "TIMEOUT", 1500, "COUNT", 50, "WITHCOUNTERS", "WITHMETA", "FROM", "a"]),
    ],
)
def test_the_three_ways_to_wait(ask: asks.Ask[Any], words: list[Any]) -> None:
    assert list(ask.argv) == words


def test_next_gives_a_job_or_raises_empty() -> None:
    queue = Queue(Script(JOB, None))
    job = queue.next("q", timeout=5)
    assert (job.id, job.queue, job.body, job.text) == ("ID1", "q", b"body", "body")
    assert (job.nacks, job.additional_deliveries) == (2, 1)
    with pytest.raises(errors.Empty, match=r"no job in a, b within 0\.5 s"):
        queue.next("a", "b", timeout=0.5)


def test_try_next_and_take_answer_with_values() -> None:
    queue = Queue(Script(None, None, JOB))
    assert queue.try_next("q") is None
    assert queue.take("q") == []
    assert [job.id for job in queue.take("q")] == ["ID1"]


def test_at_least_one_queue_must_be_named() -> None:
    with pytest.raises(errors.BadRequest):
        Queue(Script()).next()


def test_a_block_that_ends_well_means_done() -> None:
    script = Script(JOB, 1)
    with Queue(script).next("q") as job:
        assert not job.is_settled
    assert job.is_settled
    assert script.sent[1:] == [["ACKJOB", b"ID1"]]


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, GeneratorExit])
def test_a_block_that_raises_gives_the_job_back(kind: type[BaseException]) -> None:
    script = Script(JOB, 1)
    with pytest.raises(kind), Queue(script).next("q"):
        raise kind
    is_fault = issubclass(kind, Exception)
    assert script.sent[1:] == [["NACK", b"ID1", "ERROR", kind.__name__] if is_fault else ["RELEASE", b"ID1"]]


def test_what_was_settled_inside_the_block_stays_settled() -> None:
    script = Script(JOB, 1, JOB, 1)
    queue = Queue(script)
    with queue.next("q") as job:
        assert job.fail() is True
    with pytest.raises(ValueError), queue.next("q") as job:
        assert job.done() is True
        raise ValueError
    assert [argv[0] for argv in script.sent] == ["GETJOB", "NACK", "GETJOB", "ACKJOB"]


def test_what_cannot_be_said_settles_nothing() -> None:
    """A result that is too long: the job has failed, and does not stay with us for its whole lease."""
    script = Script(JOB, errors.BadRequest("ERR the result is too long"), 1)
    with pytest.raises(errors.BadRequest), Queue(script).next("q") as job:
        job.done("x")
    assert [argv[0] for argv in script.sent] == ["GETJOB", "ACKJOB", "NACK"]


def test_the_callers_own_exception_wins_over_a_failed_giving_back() -> None:
    script = Script(JOB, errors.ConnectionLost("gone"))
    with pytest.raises(ValueError) as caught, Queue(script).next("q"):
        raise ValueError("mine")
    assert "Giving job ID1 back failed too (LOST gone)" in caught.value.__notes__[0]


def test_an_acknowledgement_that_fails_is_not_swallowed() -> None:
    script = Script(JOB, errors.ConnectionLost("gone"))
    with pytest.raises(errors.Unknown), Queue(script).next("q"):
        pass


def test_jobs_ends_when_nothing_comes_for_the_timeout() -> None:
    queue = Queue(Script(JOB, JOB, None))
    assert [job.id for job in queue.jobs("q", timeout=1)] == ["ID1", "ID1"]


def test_jobs_without_timeout_goes_on_after_an_empty_answer() -> None:
    queue = Queue(Script(None, JOB))
    assert next(queue.jobs("q")).id == "ID1"


def test_jobs_and_ids_may_be_mixed() -> None:
    script = Script(JOB, 2, 2)
    queue = Queue(script)
    job = queue.next("q")
    assert queue.done(job, "ID2") == 2
    assert queue.fail("ID3", job) == 2
    assert queue.done() == queue.fail() == 0
    assert script.sent[1:] == [["ACKJOB", b"ID1", "ID2"], ["NACK", "ID3", b"ID1"]]


def test_extend_and_length() -> None:
    queue = Queue(Script(30, 7))
    assert queue.extend("ID1") == 30.0
    assert queue.length("q") == 7


FLAT_STATS: list[Reply] = [
    b"name", b"q", b"len", 3, b"age", 10, b"idle", 2, b"blocked", 1, b"import-from", [b"n1"],
    b"import-rate", 0, b"jobs-in", 5, b"jobs-out", 2, b"pause", b"none", b"something-new", b"x",
]


def test_stats_reads_pairs_and_maps_and_passes_over_what_it_does_not_know() -> None:
    as_map: Reply = dict(zip(FLAT_STATS[::2], FLAT_STATS[1::2], strict=True))
    queue = Queue(Script(FLAT_STATS, as_map, None))
    first, second = queue.stats("q"), queue.stats("q")
    assert first is not None and first == second
    assert (first.name, first.length, first.import_from, first.pause) == ("q", 3, ("n1",), "none")
    assert queue.stats("q") is None


def test_show_reads_nulls() -> None:
    reply: Reply = [
        b"id", b"ID1", b"queue", b"q", b"state", b"active", b"repl", 1, b"ttl", 60, b"ctime", 1, b"delay", 0,
        b"retry", 6, b"nacks", 0, b"additional-deliveries", 0, b"nodes-delivered", [b"n1"],
        b"nodes-confirmed", [], b"next-requeue-within", None, b"next-awake-within", 5, b"body", None,
    ]
    queue = Queue(Script(reply, None))
    view = queue.show("ID1")
    assert view is not None
    assert (view.state, view.next_requeue_ms, view.next_awake_ms, view.body) == ("active", None, 5, None)
    assert queue.show("ID2") is None


def test_peek() -> None:
    script = Script([[b"q", b"ID1", b"body"]])
    assert [job.body for job in Queue(script).peek("q", -1)] == [b"body"]
    assert script.sent == [["QPEEK", "q", -1]]


@pytest.mark.parametrize("reply", [b"text", [1], [[b"q"]], 5])
def test_an_answer_of_the_wrong_shape_is_an_unknown_outcome(reply: Reply) -> None:
    with pytest.raises(errors.BadReply):
        Queue(Script(reply)).take("q")


def test_an_error_reply_is_raised() -> None:
    with pytest.raises(errors.BadId):
        Queue(Script(errors.from_reply("BADID Invalid Job ID format."))).done("x")


def test_giving_back_reads_only_jobs() -> None:
    assert asks.give_back(JOB) == ["RELEASE", b"ID1"]
    assert asks.give_back(None) is None
    assert asks.give_back(errors.Leaving("x")) is None


def test_call_sends_any_words_and_close_closes() -> None:
    script = Script(b"PONG")
    with Queue(script) as queue:
        assert queue.call("PING", 1) == b"PONG"
    assert script.is_closed and script.sent == [[b"PING", 1]]


def test_the_async_face_says_the_same() -> None:
    async def main() -> None:
        channel = AsyncScript(
            b"ID1", [b"ID1"], JOB, 1, JOB, 1, 1, JOB, None, None, 30, [], FLAT_STATS, 4, None, b"PONG"
        )
        async with AsyncQueue(channel) as queue:
            assert await queue.add("q", "b", ttl=5) == "ID1"
            assert await queue.add_many("q", ["b"]) == ["ID1"]
            async with await queue.next("q", timeout=1):
                pass
            with pytest.raises(ValueError):
                async with await queue.next("q") as job:
                    raise ValueError
            assert await queue.done(job) == 1
            assert [each.id async for each in queue.jobs("q", timeout=1)] == ["ID1"]
            with pytest.raises(errors.Empty):
                await queue.next("q", timeout=1)
            assert await queue.extend("ID1") == 30.0
            assert await queue.peek("q") == []
            stats = await queue.stats("q")
            assert stats is not None and stats.length == 3
            assert await queue.length("q") == 4
            assert await queue.show("ID1") is None
            assert await queue.call("PING") == b"PONG"
        assert channel.script.is_closed
        names = [argv[0] for argv in channel.script.sent]
        assert names[:7] == ["ADDJOB", "ADDJOBS", "GETJOB", "ACKJOB", "GETJOB", "NACK", "ACKJOB"]

    run(main())


def test_a_task_cancelled_inside_the_block_gives_its_job_back() -> None:
    async def main() -> None:
        channel = AsyncScript(JOB, 1)
        inside = asyncio.Event()

        async def work() -> None:
            async with await AsyncQueue(channel).next("q"):
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert channel.script.sent[1:] == [["RELEASE", b"ID1"]]

    run(main())


def test_a_task_cancelled_again_while_it_answers_still_answers() -> None:
    """The first cancel ends the work, the second comes while the NACK is under way."""

    async def main() -> None:
        channel = AsyncScript(JOB, 1)
        inside = asyncio.Event()

        async def work() -> None:
            async with await AsyncQueue(channel).next("q"):
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await inside.wait()
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)
        assert channel.script.sent[1:] == [["RELEASE", b"ID1"]]

    run(main())


# -- what callers hand in -----------------------------------------------------------------------------------


@pytest.fixture(params=["sync", "async"])
def face(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Call a method of a queue by its name, through either face."""

    def call(method: str, *args: Any, **options: Any) -> Any:
        if request.param == "sync":
            return getattr(Queue(Script()), method)(*args, **options)
        return asyncio.run(getattr(AsyncQueue(AsyncScript()), method)(*args, **options))

    return call


@pytest.mark.parametrize(("method", "body"), [("add", "b"), ("add_many", ["b"])])
def test_an_option_that_does_not_exist_is_named(face: Callable[..., Any], method: str, body: Any) -> None:
    with pytest.raises(TypeError, match=rf"{method}\(\) has no option 'retires'; did you mean 'retry'"):
        face(method, "q", body, retires=0)
    with pytest.raises(TypeError, match="has no option 'xyz'; there are at, attempts"):
        face(method, "q", body, xyz=0)


@pytest.mark.parametrize("body", [1, 1.5, True, None, {"a": 1}, ["a"]])
def test_a_body_is_bytes_or_text(face: Callable[..., Any], body: Any) -> None:
    with pytest.raises(TypeError, match=r"bytes or str, not \w+; pass for example json.dumps"):
        face("add", "q", body)
    with pytest.raises(TypeError, match=r"json\.dumps"):
        face("add_many", "q", ["fine", body])


@pytest.mark.parametrize("bodies", ["text", b"bytes", bytearray(b"x"), None, 5, {"a": 1}])
def test_add_many_wants_many(face: Callable[..., Any], bodies: Any) -> None:
    with pytest.raises(TypeError, match="add_many takes a list of bodies"):
        face("add_many", "q", bodies)


@pytest.mark.parametrize(
    ("method", "args", "options", "words"),
    [
        ("next", (["a"],), {}, r"str, not list; name several one after the other: next\('a', 'b'\)"),
        ("length", (None,), {}, "name of a queue is a str, not None"),
        ("add", (5, "b"), {}, "name of a queue is a str, not int"),
        ("done", (None,), {}, "a job or its id is wanted, not None"),
        ("fail", (["ID1"],), {}, r"not list; pass several as done\(\*jobs\)"),
        ("show", (5,), {}, "a job or its id"),
        ("take", ("q",), {"count": "5"}, "count is a whole number, not str"),
        ("peek", ("q", 1.5), {}, "count is a whole number, not float"),
        ("next", ("q",), {"timeout": "5"}, "timeout is a number of seconds or a timedelta, not str"),
        ("add", ("q", "b"), {"retry": None}, "retry is a number of seconds or a timedelta, not None"),
        ("add", ("q", "b"), {"priority": True}, "priority is a whole number, not bool"),
        ("call", ("PING", 1.5), {}, "a word of a command is bytes, str or int, not float"),
        ("call", ("PING", None), {}, "not None"),
    ],
)
def test_what_is_no_name_id_or_number(
    face: Callable[..., Any], method: str, args: Any, options: Any, words: str
) -> None:
    with pytest.raises(TypeError, match=words):
        face(method, *args, **options)


def test_a_call_has_a_word(face: Callable[..., Any]) -> None:
    with pytest.raises(errors.BadRequest, match="at least one word"):
        face("call")


def test_bodies_of_every_kind_of_bytes() -> None:
    script = Script(b"ID1", [b"ID1", b"ID2"], b"PONG")
    queue = Queue(script)
    queue.add("q", bytearray(b"abc"))
    queue.add_many("q", [memoryview(b"abcd")[::2], "ä"])
    queue.call("PING", bytearray(b"x"))
    assert script.sent[0][2] == b"abc" and script.sent[1][4:] == [b"ac", "ä"] and script.sent[2][1] == b"x"
    assert type(script.sent[0][2]) is bytes


def test_a_queue_is_paused_and_resumed_at_all_nodes() -> None:
    """What the methods send, sent to nodes; resumed at one, it goes on also where another paused it for itself."""
    script = Script(b"out", b"none", b"in")
    queue = Queue(script)
    queue.pause("q", "out")
    queue.resume("q")
    queue.pause("q", "in", seconds=5)
    pause, resume, for_a_while = ([str(word) for word in argv] for argv in script.sent)
    sim = Cluster(nodes="ABC", seed=1)
    sim.run_for(seconds=2)
    for at, words, state in (("A", pause, "out"), ("B", resume, "none"), ("C", for_a_while, "in")):
        assert sim.do(at, *words)["reply"] == state
        sim.run_for(seconds=1)
        assert [sim.do(node, "PAUSE", "q", "state")["reply"] for node in "ABC"] == [state] * 3
    sim.run_for(seconds=5)
    sim.do("C", "PAUSE", "q", "all")
    sim.do("A", *resume)
    sim.run_for(seconds=1)
    assert sim.do("C", "PAUSE", "q", "state")["reply"] == "none"
