"""Names that people bring along from Celery, and what they are called here.

    send.delay("ada")                       AttributeError: … has no delay(): send.add(…) makes a job
    send.apply_async(["ada"], countdown=5)  AttributeError: … has no apply_async(): send.using(delay=5).add(…)
    send.add("ada", countdown=5)            TypeError: … what is said about the job goes into send.using(delay=…).add(…)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

METHODS: Final = {
    "delay": "{task}.add(…) makes a job of a call",
    "apply_async": "{task}.using(delay=60).add(…) makes a job with options",
    "apply": "{task}(…) calls it here and now",
    "s": "{task}.call(…) keeps the arguments of a call, for add_many",
    "si": "{task}.call(…) keeps the arguments of a call, for add_many",
    "signature": "{task}.call(…) keeps the arguments of a call, for add_many",
    "retry": "raise holdfast.Retry(after=30) in its function tries it again",
    "request": "holdfast.current_job() in its function is the job that runs",
    "AsyncResult": "app.job(id) finds a job by its id",
    "send_task": "app.queue.add(queue, body) adds a job of a task that is not here; write-tasks.md has the body",
    "autodiscover_tasks": "import the modules that have tasks; a worker imports the module of the app",
    "conf": "what there is to set are arguments of App(…), and settings of queues: app.queue.configure(…)",
}
"""Methods and attributes of tasks and apps there."""

OPTIONS: Final = {
    "countdown": "delay", "eta": "at", "expires": "ttl", "max_retries": "retries", "default_retry_delay": "backoff",
    "retry_backoff": "backoff", "rate_limit": "domain", "time_limit": "timeout", "soft_time_limit": "timeout",
    "task_id": "unique", "ignore_result": "result", "routing_key": "queue", "serializer": "App(codec=…)",
    "bind": "holdfast.current_job()", "autoretry_for": "retries",
}
"""Options there, and what says the same here."""


def no_such(kind: str, name: str, task: str) -> AttributeError:
    """What to raise for an attribute that there is not."""
    hint = METHODS.get(name)
    words = f"{task} is a {kind} and has no {name!r}"
    return AttributeError(f"{words}: {hint.format(task=task.rpartition('.')[2])}" if hint else words)


def hint_for(names: Iterable[str]) -> str:
    """What to write in place of options that another library has; empty if there is none among them."""
    known = [f"{OPTIONS[name]} in place of {name}" for name in names if name in OPTIONS]
    return f": write {', '.join(known)}" if known else ""
