"""An app: a url, and the tasks that live behind it.

    app = holdfast.App("holdfast://10.0.0.1")           # or HOLDFAST_URL, or memory:

Nothing is connected when the module is imported; the first `add` opens the queue, and each event loop has one of its
own. With `memory:` or `file:` all of them are the same embedded node.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, overload

from holdfast import doors
from holdfast.client import adding, checks
from holdfast.client.adding import AddOptions
from holdfast.client.checks import Seconds
from holdfast.client.errors import BadRequest
from holdfast.client.queue import AsyncQueue, Queue

from . import habits
from .bodies import Codec
from .middleware import Middleware
from .task import Added, AnyTask, AsyncTask, BaseTask, Key, P, R, Task, no_lambda

Inline = Callable[[AnyTask, tuple[Any, ...], dict[str, Any], AddOptions], str]


class Decorator(Protocol):
    """What `app.task(…)` gives: a function in, a task out."""

    @overload  # A coroutine is also some R: the first that fits is meant.
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class App:
    """Tasks, and the queue they share."""

    def __init__(
        self, url: str | None = None, *, queue: str = "default", codec: Codec = "json",
        middleware: Sequence[Middleware] = (), retries: int | None = 3,
        backoff: Seconds | tuple[Seconds, Seconds] = 5.0,
    ) -> None:
        """
        url         where the jobs are; else the variable HOLDFAST_URL, else `memory:`
        queue       where tasks go that don't say
        codec       how arguments are written: "json" or "msgpack"
        middleware  what happens around every task
        retries     how often a failed job is tried again; None: for ever
        backoff     seconds until then, doubled each time; or (first, most)
        """
        if codec not in ("json", "msgpack"):
            raise BadRequest(f"a body is json or msgpack, not {codec!r}")
        self.url = url or os.environ.get("HOLDFAST_URL") or "memory:"
        self.codec: Codec = codec
        self.middleware = tuple(middleware)
        self.tasks: dict[str, AnyTask] = {}
        self.raw_tasks: dict[str, AnyTask] = {}
        """By queue: a raw task gets every job of its queue."""
        self.inline: Inline | None = None
        """What `add` does instead of adding, in tests."""
        self._default_queue = queue
        self._retries = retries
        self._backoff = backoff
        self._lock = threading.Lock()
        self._queue: Queue | None = None
        self._async_queues: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncQueue] = (
            weakref.WeakKeyDictionary()
        )

    @property
    def queue(self) -> Queue:
        """The queue, for threads. Opened when it is first wanted."""
        if self._queue is None:
            with self._lock:
                if self._queue is None:
                    self._queue = doors.open(self.url)
        return self._queue

    async def aqueue(self) -> AsyncQueue:
        """The queue, for the tasks of this event loop."""
        loop = asyncio.get_running_loop()
        found = self._async_queues.get(loop)
        if found is None:
            queue = self._queue
            if queue is None:
                queue = await asyncio.to_thread(lambda: self.queue)  # connecting may take a moment
            found = self._async_queues.setdefault(loop, queue.aio())
        return found

    def bind(self, queue: Queue | None) -> None:
        """Use this queue from now on; None: the one of the url, opened anew."""
        with self._lock:
            self._queue = queue
            self._async_queues.clear()

    def close(self) -> None:
        """Let go of the queue."""
        with self._lock:
            queue, self._queue = self._queue, None
            self._async_queues.clear()
        if queue is not None:
            queue.close()

    async def aclose(self) -> None:
        """Let go of this event loop's queue. One that is embedded is the same for all, and stays."""
        found = self._async_queues.pop(asyncio.get_running_loop(), None)
        if found is not None and self.url.partition(":")[0] not in ("memory", "file"):
            await found.close()

    @property
    def queues(self) -> list[str]:
        """The queues its tasks name."""
        return list(dict.fromkeys(task.queue for task in self.tasks.values()))

    @overload
    def task(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self, *, name: str | None = None, queue: str | None = None, retries: int | None = -1,
        backoff: Seconds | tuple[Seconds, Seconds] | None = None, timeout: Seconds | None = None,
        unique: bool | Key = False, window: Seconds | None = None, group: Key | None = None,
        domain: Key | None = None, tenant: Key | None = None, priority: int | None = None, cron: str = "",
        zone: str = "", ttl: Seconds | None = None, on_expire: Literal["dead", "drop"] = "dead",
        retry: Seconds | None = None, sync: int | None = None, raw: bool = False, result: bool = False,
        runs_in: Literal["thread", "process"] = "thread",
    ) -> Decorator: ...

    def task(  # type: ignore[misc]  # the third has no function, and here it may be missing
        self, function: Callable[..., Any] | None = None, /, *, name: str | None = None, queue: str | None = None,
        retries: int | None = -1, backoff: Seconds | tuple[Seconds, Seconds] | None = None,
        timeout: Seconds | None = None, unique: bool | Key = False, window: Seconds | None = None,
        group: Key | None = None, domain: Key | None = None, tenant: Key | None = None, priority: int | None = None,
        cron: str = "", zone: str = "", ttl: Seconds | None = None, on_expire: Literal["dead", "drop"] = "dead",
        retry: Seconds | None = None, sync: int | None = None, raw: bool = False, result: bool = False,
        runs_in: Literal["thread", "process"] = "thread", **strange: Any,
    ) -> Any:
        """Make a task of a function.

        name      else module and name of the function; what is in the jobs
        queue     where its jobs go
        retries   how often a failed job is tried again; None: for ever
        backoff   seconds until then, doubled each time; or (first, most)
        timeout   seconds a run may take
        unique    True: one pending job per arguments; or a key, or a function of the arguments that makes one
        group, domain, tenant   keys, or functions of the arguments that make them
        priority  0 to 9, 9 first
        cron      add a job without arguments at these times; zone: in which time zone
        ttl       seconds until the time of a job is over, done or not; None: never, unless its queue says when
        on_expire what becomes of it then: "dead", it goes to the dead letters with the cause `expired`, or "drop"
        retry     seconds after which a job is handed out again if nothing is heard of whoever has it; a worker says how
                  long it has a job itself (--lease); 0: at most once
        window    seconds for which a unique key stays taken even if the job has ended
        sync      answer `add` when so many nodes have the job, the others follow
        raw       its one argument is the body of the job, as bytes; it gets every job of its queue
        result    True: that it is done is kept for `wait` even if it returns None
        runs_in   "process": in a process of its own, which a time limit or a cancel can end at any point
        """
        if runs_in not in ("thread", "process"):
            raise BadRequest(f"a task runs in a \"thread\" or a \"process\", not in {runs_in!r}")
        if strange:
            names = ", ".join(strange)
            raise TypeError(f"app.task() has no option {names}{habits.hint_for(strange)}")
        limit = None if timeout is None else checks.seconds("timeout", timeout)
        if limit is not None and limit <= 0:
            raise BadRequest(f"timeout is how many seconds a run may take, more than {timeout!r}; None: any time")
        if window is not None and not unique:
            raise BadRequest("window says how long a unique key stays taken, and there is none: unique=True")
        options: AddOptions = {"ttl": ttl, "on_expire": on_expire}
        again = self._retries if retries == -1 else retries
        if again is not None and checks.count("retries", again) < 0:
            raise BadRequest(f"retries is 0 or more, or None for ever, not {again}")
        if again is not None:
            options["attempts"] = again + 1
            options["backoff"] = self._backoff if backoff is None else backoff
        if priority is not None:
            options["priority"] = priority
        if window is not None:
            options["window"] = window
        if retry is not None:
            options["retry"] = retry
        if sync is not None:
            options["sync"] = sync
        adding.words(options)  # says so here if one of them cannot be
        named = {"unique": unique, "group": group, "domain": domain, "tenant": tenant}
        keys: dict[str, Key] = {
            what: key for what, key in named.items() if key is not None and not isinstance(key, bool)
        }

        def make(function: Callable[..., Any]) -> BaseTask[Any, Any]:
            is_async = inspect.iscoroutinefunction(function)
            found = name or f"{function.__module__}.{function.__qualname__}"
            no_lambda(found)
            kind = AsyncTask if is_async else Task
            made: BaseTask[Any, Any] = kind(
                self, function, name=found, queue=queue or self._default_queue, options=options, keys=keys,
                unique=unique is True, timeout=limit, is_async=is_async, is_raw=raw, keeps_none=result,
                runs_in_process=runs_in == "process", cron=cron, zone=zone,
            )
            self._register(made)
            return made

        return make if function is None else make(function)

    def _register(self, task: AnyTask) -> None:
        if task.is_async and task.runs_in_process:
            raise BadRequest(f"{task.name}: only a plain function can run in a process of its own")
        if task.zone and not task.cron:
            raise BadRequest(f"{task.name}: a zone says where the times of cron=… are meant, and there is none")
        if task.cron and not can_be_called_with_nothing(task.function):
            raise BadRequest(f"{task.name}: cron adds jobs without arguments, and it takes some")
        other = self.tasks.get(task.name)
        if other is not None and other.function.__code__ != task.function.__code__:
            raise BadRequest(f"two tasks have the name {task.name!r}: pass name=… to one of them")
        if task.is_raw:
            taken = self.raw_tasks.setdefault(task.queue, task)
            if taken.name != task.name:
                raise BadRequest(f"{taken.name} gets every job of {task.queue!r} already: raw tasks have a queue each")
        self.tasks[task.name] = task

    def job(self, job_id: str) -> Added[Any]:
        """The job of an id that was kept: its state, its result, why it does not run; and it can be cancelled."""
        if not isinstance(job_id, str):
            raise TypeError(f"the id of a job is a str, not {checks.kind(job_id)}")
        return Added(job_id, self)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise habits.no_such("holdfast.App", name, "app")

    def schedule_all(self) -> int:
        """Tell the cluster when to add the jobs of tasks with `cron`. A worker does so when it starts; a test, or a
        program that has no worker, calls it. Said again it changes nothing. Returns how many there are."""
        count = 0
        for task in self.tasks.values():
            if task.cron:
                self.queue.schedule(
                    task.name, task.cron, task.queue, task.body_for((), {}), zone=task.zone,
                    **task.options_for((), {}),
                )
                count += 1
        return count


def can_be_called_with_nothing(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind()
    except TypeError:
        return False
    return True
