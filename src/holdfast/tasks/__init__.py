"""Tasks: functions of yours that run as jobs, with their arguments in the body and their types intact.

    app = holdfast.App("holdfast://10.0.0.1")

    @app.task(queue="mail", retries=5)
    def send(to: str, subject: str) -> int: ...

    send.add("ada@example.com", subject="hello")        # a job; `holdfast worker module:app` runs it
    send("ada@example.com", subject="hello")            # still a plain call

Read `task` for what a task can do, `app` for what they have in common, `bodies` for what is in a job, `outcomes` for
how a run may end, `running` for the run itself. Nothing here fetches or acknowledges: that is `holdfast.worker`.
"""

from __future__ import annotations

from .app import App
from .middleware import Middleware
from .outcomes import Cancelled, Discard, Retry, Snooze, TaskFailed, TimeLimit
from .running import RunningJob, current_job
from .task import Added, AsyncTask, Call, Task

__all__ = [
    "Added",
    "App",
    "AsyncTask",
    "Call",
    "Cancelled",
    "Discard",
    "Middleware",
    "Retry",
    "RunningJob",
    "Snooze",
    "Task",
    "TaskFailed",
    "TimeLimit",
    "current_job",
]
