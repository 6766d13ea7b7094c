"""The client: a typed queue over anything that executes Holdfast's commands.

Read `queue` for what a user holds, `asks` for what is sent and how answers are read, `connection` and
`pool` for how it travels, `errors` for what can go wrong. The embedded node is another channel under the
same queue and lives in `holdfast.embedded`.
"""

from __future__ import annotations

from .adding import AddOptions
from .jobs import AsyncJob, Job
from .queue import AsyncChannel, AsyncQueue, Channel, Queue
from .values import JobView, Peeked, QueueStats

__all__ = [
    "AddOptions",
    "AsyncChannel",
    "AsyncJob",
    "AsyncQueue",
    "Channel",
    "Job",
    "JobView",
    "Peeked",
    "Queue",
    "QueueStats",
]
