"""A process for handlers that must be stoppable at any point, or that may take their process down with them.

The child imports the module of the task and calls the function by its name; arguments and result cross the pipe as
msgpack, never as pickles. It is started by spawning, not by forking: a fork would copy the parent's threads' locks.

A child that is killed (time limit, cancel) or dies (a crash, the system's out-of-memory killer) fails the job it had,
and the next job gets a new child.
"""

from __future__ import annotations

import importlib
import multiprocessing
import signal
import traceback
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from holdfast.client.errors import BadRequest
from holdfast.tasks.outcomes import Cancelled, Discard, Retry, Snooze, TimeLimit
from holdfast.tasks.running import RunningJob


class ChildDied(Exception):
    """The process in which a handler ran has ended before the handler did."""


class Child:
    """A process that runs one handler at a time."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=child_main, args=(theirs,), daemon=True, name="holdfast-child")
        self._process.start()
        theirs.close()
        self._killed_by: type[TimeLimit] | type[Cancelled] | None = None

    def is_alive(self) -> bool:
        return self._process.is_alive() and self._killed_by is None

    def run(self, job: RunningJob) -> Any:
        """Run the handler there; its value, or its exception."""
        task = job.task
        assert task is not None
        function = task.function
        if function.__module__ == "__main__":
            raise BadRequest(f"{task.name} is in the main program: another process finds it only in a module")
        order = [function.__module__, function.__qualname__, list(job.args), job.kwargs]
        try:
            self._pipe.send_bytes(msgspec.msgpack.encode(order))
            while True:
                kind, *rest = msgspec.msgpack.decode(self._pipe.recv_bytes())
                if kind != "progress":
                    break
                job.progress(*rest)
        except (EOFError, OSError):
            self._process.join(1.0)
            if self._killed_by is not None:
                raise self._killed_by from None
            raise ChildDied(f"the process of {task.name} ended with {self._process.exitcode}") from None
        if kind == "value":
            return rest[0]
        raise rebuilt(*rest)

    def kill(self, why: type[TimeLimit] | type[Cancelled]) -> None:
        """End it now, in the middle of whatever it does."""
        self._killed_by = why
        self._process.kill()

    def close(self) -> None:
        """It has nothing to do any more."""
        self._pipe.close()
        self._process.join(1.0)
        if self._process.is_alive():
            self._process.kill()


def rebuilt(kind: str, words: str, number: float | None, trace: str) -> Exception:
    """An exception of the child, as far as it matters here. Where it was raised there is a note, for the log."""
    if kind == "Retry":
        return Retry(words, after=number)
    if kind == "Discard":
        return Discard(words)
    if kind == "Snooze":
        return Snooze(number or 0.0)
    strange: type[Exception] = type(kind, (Exception,), {})
    made = strange(words)
    made.add_note(f"In its process it was:\n{trace}")
    return made


def child_main(pipe: Connection) -> None:
    """The child: orders in, values out, until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # A Ctrl-C is for the parent, which tells us.
    while True:
        try:
            module, name, args, kwargs = msgspec.msgpack.decode(pipe.recv_bytes())
        except EOFError:
            return
        try:
            found: Any = importlib.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
            answer = ["value", getattr(found, "function", found)(*args, **kwargs)]
            data = msgspec.msgpack.encode(answer)
        except BaseException as error:
            number = getattr(error, "after", getattr(error, "seconds", None))
            data = msgspec.msgpack.encode(["error", type(error).__name__, str(error), number, traceback.format_exc()])
        pipe.send_bytes(data)
