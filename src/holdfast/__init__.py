"""Holdfast: a distributed job queue that does not let go. Everything public is here.

    q = holdfast.open("memory:")                 a queue in this process
    q = holdfast.open("holdfast://10.0.0.1")     the same, at a node
    app = holdfast.App("holdfast://10.0.0.1")    functions that run as jobs

What is imported from here is loaded when it is first asked for: a program that adds jobs does not wait for the part
that runs tasks, and a call of the command line not for the machine.
"""
from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

from holdfast import form as _form  # first: it decides which form of the other modules is imported

if TYPE_CHECKING:
    from holdfast.client.errors import (
        BadRequest,
        Closed,
        Duplicate,
        Empty,
        Error,
        LeaseLost,
        MaxLen,
        NotAllowed,
        OutOfMemory,
        Paused,
        Refused,
        Unknown,
        Unreachable,
    )
    from holdfast.client.jobs import AsyncJob, Job
    from holdfast.client.queue import AsyncQueue, Queue
    from holdfast.core.version import VERSION as __version__
    from holdfast.doors import aopen, open
    from holdfast.serving import Serving, serve
    from holdfast.tasks import (
        Added,
        App,
        AsyncTask,
        Cancelled,
        Discard,
        Middleware,
        Retry,
        RunningJob,
        Snooze,
        Task,
        TaskFailed,
        TimeLimit,
        current_job,
    )

_PLACES = {
    "core.version": ("__version__",),
    "client.errors": (
        "BadRequest", "Closed", "Duplicate", "Empty", "Error", "LeaseLost", "MaxLen", "NotAllowed", "OutOfMemory",
        "Paused", "Refused", "Unknown", "Unreachable",
    ),
    "client.jobs": ("AsyncJob", "Job"),
    "client.queue": ("AsyncQueue", "Queue"),
    "doors": ("aopen", "open"),
    "serving": ("Serving", "serve"),
    "tasks": (
        "Added", "App", "AsyncTask", "Cancelled", "Discard", "Middleware", "Retry", "RunningJob", "Snooze", "Task",
        "TaskFailed", "TimeLimit", "current_job",
    ),
}
"""Where each name is."""
_MODULES = {name: place for place, names in _PLACES.items() for name in names}

__all__ = [
    "Added",
    "App",
    "AsyncJob",
    "AsyncQueue",
    "AsyncTask",
    "BadRequest",
    "Cancelled",
    "Closed",
    "Discard",
    "Duplicate",
    "Empty",
    "Error",
    "Job",
    "LeaseLost",
    "MaxLen",
    "Middleware",
    "NotAllowed",
    "OutOfMemory",
    "Paused",
    "Queue",
    "Refused",
    "Retry",
    "RunningJob",
    "Serving",
    "Snooze",
    "Task",
    "TaskFailed",
    "TimeLimit",
    "Unknown",
    "Unreachable",
    "__version__",
    "aopen",
    "current_job",
    "open",
    "serve",
]


def __getattr__(name: str) -> Any:
    place = _MODULES.get(name)
    if place is None:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    found = getattr(_import_module(f"holdfast.{place}"), "VERSION" if name == "__version__" else name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


del _form
