"""Holdfast: a distributed job queue that does not let go. Everything public is here.

    q = holdfast.open("memory:")                 a queue in this process
    q = holdfast.open("holdfast://10.0.0.1")     the same, at a node
    app = holdfast.App("holdfast://10.0.0.1")    functions that run as jobs
"""
from holdfast import form as _form  # first: it decides which form of the other modules is imported
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
del _form
