"""A task: a function of yours, and how to make a job of a call to it.

Its type is that of the function: `send.add(…)` takes what `send(…)` takes, checked by mypy, and `.wait()` of what it
gives back returns what `send(…)` returns. A task of a plain function is a `Task`, one of an `async def` an
`AsyncTask`; they differ only in what calling them directly gives.

    send.add("ada")                             one job
    send.add_many(send.call(x) for x in names)  many, in as few calls as there can be
    send.using(delay=60).add("ada")             with other options, this once
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeAlias, TypeVar, Unpack, cast

from holdfast.client import adding, checks
from holdfast.client.adding import ADD_OPTIONS, AddOptions
from holdfast.client.asks import Cancelled
from holdfast.client.errors import BadRequest
from holdfast.client.values import AddedId, Ending, Explanation, Waited

from . import bodies, habits
from .outcomes import TaskFailed

if TYPE_CHECKING:
    from .app import App

P = ParamSpec("P")
R = TypeVar("R")
Key: TypeAlias = "str | Callable[..., str]"
"""A name, or a function of the task's arguments that makes one."""
Call: TypeAlias = "tuple[tuple[Any, ...], dict[str, Any]]"
"""Arguments of a call, checked by `task.call`."""

ADD_MANY_MAX: Final = 1000
"""Jobs in one ADDJOBS: a page of work, not a pause of the node."""


@dataclass(frozen=True, slots=True)
class Added(Generic[R]):
    """A job that was added, and what will become of it. `app.job(id)` makes one of an id that was kept."""

    id: str
    app: App = field(repr=False, compare=False)

    @property
    def copies(self) -> int | None:
        """How many nodes held the job when it was added; None unless the task has the option `say_copies`."""
        return self.id.copies if isinstance(self.id, AddedId) else None

    def state(self) -> Ending:
        """How it is with it now, at whichever node: waiting, done, dead, expired, deleted or unknown."""
        return self.app.queue.wait(self.id, timeout=0)[0].state

    async def astate(self) -> Ending:
        """The same for asyncio."""
        return (await (await self.app.aqueue()).wait(self.id, timeout=0))[0].state

    def cancel(self) -> Cancelled:
        """Don't do it. "cancelled": it waited; "asked": its handler will be stopped; "unknown": it is not there."""
        return self.app.queue.cancel(self.id)

    async def acancel(self) -> Cancelled:
        """The same for asyncio."""
        return await (await self.app.aqueue()).cancel(self.id)

    def explain(self) -> Explanation | None:
        """Why it does not run, or why it ran twice; None if nobody knows it."""
        return self.app.queue.explain(self.id)

    async def aexplain(self) -> Explanation | None:
        """The same for asyncio."""
        return await (await self.app.aqueue()).explain(self.id)

    def result(self) -> R:
        """What the task returned, if it is done. `TimeoutError`: not yet; `TaskFailed`: it never will."""
        return self.wait(0)

    def wait(self, timeout: float | None = None) -> R:
        """What the task returned. `TimeoutError`: not yet; `TaskFailed`: it never will."""
        return self._result(self.app.queue.wait(self.id, timeout=timeout)[0])

    async def await_result(self, timeout: float | None = None) -> R:
        """The same for asyncio."""
        return self._result((await (await self.app.aqueue()).wait(self.id, timeout=timeout))[0])

    def _result(self, waited: Waited) -> R:
        if waited.state == "done":
            return cast(R, bodies.read_value(waited.result))
        if waited.state == "waiting":
            raise TimeoutError(f"job {self.id} is not done yet")
        if waited.state == "unknown":
            raise TaskFailed(
                f"nobody knows job {self.id}: it ended and left no result (see result=True), or never was"
            )
        words = waited.result.decode("utf-8", "replace") if waited.result else ""
        raise TaskFailed(f"job {self.id} is {waited.state}: {words}" if words else f"job {self.id} is {waited.state}")


class AnyTask:
    """What a worker needs of a task, whatever its types."""

    app: App
    name: str
    queue: str
    function: Callable[..., Any]
    timeout: float | None
    is_async: bool
    is_raw: bool
    keeps_none: bool
    runs_in_process: bool
    cron: str
    zone: str

    def options_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> AddOptions:
        raise NotImplementedError

    def body_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        raise NotImplementedError


class BaseTask(AnyTask, Generic[P, R]):
    """What both kinds of task have in common. Made by `App.task`."""

    def __init__(
        self, app: App, function: Callable[P, Any], *, name: str, queue: str, options: AddOptions,
        keys: dict[str, Key], unique: bool, timeout: float | None, is_async: bool, is_raw: bool,
        keeps_none: bool, runs_in_process: bool, cron: str, zone: str,
    ) -> None:
        self.app = app
        self.function = function
        self.name = name
        self.queue = queue
        self.timeout = timeout
        self.is_async = is_async
        self.is_raw = is_raw
        self.keeps_none = keeps_none
        self.runs_in_process = runs_in_process
        self.cron = cron
        self.zone = zone
        self._options = options
        self._keys = {what: keyed(function, key) for what, key in keys.items()}
        self._unique = unique
        self._signature = signature_of(function)
        self.__doc__ = function.__doc__

    def add(self, *args: P.args, **kwargs: P.kwargs) -> Added[R]:
        """Make a job of this call."""
        options = self._ready(args, kwargs)
        if self.app.inline is not None:
            return Added(self.app.inline(self, args, kwargs, options), self.app)
        return Added(self.app.queue.add(self.queue, self.body_for(args, kwargs), **options), self.app)

    async def aadd(self, *args: P.args, **kwargs: P.kwargs) -> Added[R]:
        """The same for asyncio."""
        options = self._ready(args, kwargs)
        if self.app.inline is not None:
            return Added(self.app.inline(self, args, kwargs, options), self.app)
        queue = await self.app.aqueue()
        return Added(await queue.add(self.queue, self.body_for(args, kwargs), **options), self.app)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call:
        """The arguments of a call, for `add_many`."""
        return args, kwargs

    def add_many(self, calls: Iterable[Call]) -> list[Added[R]]:
        """Make jobs of many calls. Those that need the same options share a command, all or none of them."""
        return [Added(job_id, self.app) for batch in self._batches(calls) for job_id in self._add(*batch)]

    def _add(self, options: AddOptions, batch: list[Call]) -> list[str]:
        if self.app.inline is not None:
            return self._run_inline(options, batch)
        if len(batch) == 1:
            return [self.app.queue.add(self.queue, self.body_for(*batch[0]), **options)]
        return self.app.queue.add_many(self.queue, [self.body_for(*each) for each in batch], **options)

    async def aadd_many(self, calls: Iterable[Call]) -> list[Added[R]]:
        """The same for asyncio."""
        queue = await self.app.aqueue()
        found: list[str] = []
        for options, batch in self._batches(calls):
            if self.app.inline is not None:
                found += self._run_inline(options, batch)
            elif len(batch) == 1:
                found.append(await queue.add(self.queue, self.body_for(*batch[0]), **options))
            else:
                found += await queue.add_many(self.queue, [self.body_for(*each) for each in batch], **options)
        return [Added(job_id, self.app) for job_id in found]

    def _run_inline(self, options: AddOptions, batch: list[Call]) -> list[str]:
        inline = self.app.inline
        assert inline is not None
        return [inline(self, *each, further(options, place)) for place, each in enumerate(batch)]

    def using(self, *, queue: str | None = None, **options: Unpack[AddOptions]) -> BaseTask[P, R]:
        """This task with other options, for the next `add`."""
        if hint := habits.hint_for(options):
            raise TypeError(f"using() has no such option{hint}")
        checks.known("using", options, ADD_OPTIONS)
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._options = AddOptions(**{**self._options, **options})
        if queue is not None:
            other.queue = queue
        return other

    def body_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """The job's body."""
        if not self.is_raw:
            return bodies.write(self.app.codec, self.name, args, kwargs)
        values = [*args, *kwargs.values()]
        if len(values) != 1 or not isinstance(values[0], bytes | bytearray | memoryview):
            raise TypeError(f"{self.name} is a raw task: it takes one argument, bytes")
        return bytes(values[0])

    def options_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> AddOptions:
        """The job's options: those of the task, and keys made from the arguments."""
        if not self._keys and not self._unique:
            return self._options
        options = self._options.copy()
        for what, key in self._keys.items():
            options[what] = key(*args, **kwargs) if callable(key) else key  # type: ignore[literal-required]
        if self._unique and "unique" not in options:
            digest = hashlib.blake2b(self.body_for(args, kwargs), digest_size=16).hexdigest()
            options["unique"] = f"{self.name}:{digest}"
        return options

    def _check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A call that cannot work is told to who makes it, not to a worker far away, attempt after attempt."""
        if self._signature is not None:
            try:
                self._signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{self.name} cannot be called so: {error}{self._meant(kwargs)}") from None

    def _meant(self, kwargs: Iterable[str]) -> str:
        """Where an option of the job stands among the arguments of the call."""
        options = [habits.OPTIONS.get(name, name) for name in kwargs]
        meant = [name for name in options if name in ADD_OPTIONS]
        if not meant:
            return ""
        said = ", ".join(f"{name}=…" for name in meant)
        return f"; what is said about the job goes into {self.name.rpartition('.')[2]}.using({said}).add(…)"

    if not TYPE_CHECKING:  # or every attribute would be right for a type checker

        def __getattr__(self, name: str) -> Any:
            raise habits.no_such("task", name, self.__dict__.get("name", "it"))

    def _ready(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> AddOptions:
        self._check(args, kwargs)
        options = self.options_for(args, kwargs)
        for each in self.app.middleware:
            options = each.before_add(self.name, options)
        return options

    def _batches(self, calls: Iterable[Call]) -> Iterable[tuple[AddOptions, list[Call]]]:
        """Calls that can share a command, and its options.

        Members of a batch that were given the same index begin with it, in the order of the calls and however many
        commands there are: two of one index would count as one.
        """
        batch: list[Call] = []
        shared: AddOptions = {}
        members: dict[tuple[str, int], int] = {}  # by the batch and the index that was given: how many there were
        for each in calls:
            given: object = each
            if not isinstance(given, tuple) or len(given) != 2 or not isinstance(given[1], dict):
                raise TypeError(f"{self.name}.add_many takes calls: add_many(task.call(x) for x in …)")
            args, kwargs = each
            options = self._ready(args, kwargs)
            if batch and (options != shared or "unique" in options or len(batch) == ADD_MANY_MAX):
                yield numbered(shared, batch, members), batch
                batch = []
            shared = options
            batch.append((args, kwargs))
        if batch:
            yield numbered(shared, batch, members), batch

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of queue {self.queue!r}>"


class Task(BaseTask[P, R]):
    """A task of a plain function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call it here and now."""
        return cast(R, self.function(*args, **kwargs))


class AsyncTask(BaseTask[P, R]):
    """A task of an async function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call it here; await what comes back."""
        return cast("Coroutine[Any, Any, R]", self.function(*args, **kwargs))


def numbered(options: AddOptions, calls: list[Call], members: dict[tuple[str, int], int]) -> AddOptions:
    """The options of a command with these calls, whose members of a batch come after all that there were before."""
    if "batch" not in options:
        return options
    adding.words(AddOptions(batch=options["batch"]))  # says so if it is none
    name, index = options["batch"]
    before = members.get((name, index), 0)
    members[name, index] = before + len(calls)
    return further(options, before)


def further(options: AddOptions, places: int) -> AddOptions:
    """The options of a job that is added so many places later."""
    if places == 0 or "batch" not in options:
        return options
    name, index = options["batch"]
    later = options.copy()
    later["batch"] = (name, index + places)
    return later


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """What a function takes; None if nobody can tell. A decorator that takes anything is believed."""
    try:
        return inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return None


def keyed(function: Callable[..., Any], key: Key) -> Key:
    """A key that is made of the arguments by their names, however they were passed: `lambda user, **_: user` is
    about the task's `user`, be it the first argument or a keyword, and need not take the others."""
    if not callable(key):
        return key
    make = key
    takes, has = signature_of(make), signature_of(function)
    if takes is None or has is None:
        return key
    wanted = takes.parameters.values()
    named = [each.name for each in wanted if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    takes_rest = any(each.kind is each.VAR_KEYWORD for each in wanted)
    variadic = {each.name for each in has.parameters.values() if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD)}
    fits = all(name in has.parameters and name not in variadic for name in named)
    if not fits or len(named) + takes_rest != len(takes.parameters):
        return key  # Its names are not the task's: it gets the arguments as they are.

    def by_name(*args: Any, **kwargs: Any) -> str:
        bound = has.bind(*args, **kwargs)
        bound.apply_defaults()
        return make(**{name: bound.arguments[name] for name in (bound.arguments if takes_rest else named)
                       if name not in variadic})

    return by_name


def no_lambda(name: str) -> None:
    """A task has a name by which another process finds it."""
    if "<lambda>" in name:
        raise BadRequest(f"{name} has no name of its own: pass name=… to app.task")
