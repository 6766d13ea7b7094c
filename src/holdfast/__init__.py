"""Holdfast: a distributed job queue that does not let go. Everything public is here.

    q = holdfast.open("memory:")                 a queue in this process
    q = holdfast.open("holdfast://10.0.0.1")     the same, at a node
"""
from holdfast import form as _form  # first: it decides which form of the other modules is imported
from holdfast.client.errors import BadRequest, Closed, Empty, Error, MaxLen, OutOfMemory, Paused, Refused, Unknown
from holdfast.client.jobs import AsyncJob, Job
from holdfast.client.queue import AsyncQueue, Queue
from holdfast.core.version import VERSION as __version__
from holdfast.doors import aopen, open

__all__ = [
    "AsyncJob",
    "AsyncQueue",
    "BadRequest",
    "Closed",
    "Empty",
    "Error",
    "Job",
    "MaxLen",
    "OutOfMemory",
    "Paused",
    "Queue",
    "Refused",
    "Unknown",
    "__version__",
    "aopen",
    "open",
]
del _form
