"""What happens around every task: logging, tracing, a database session.

A middleware is a class with any of the hooks below; they do nothing unless overridden. They are called in the order of
`App(middleware=[…])`, those that end something in the reverse order. They run where the handler runs: in its thread,
or in the event loop, so they must not block there. A hook that raises fails the job, as the handler would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.client.adding import AddOptions

if TYPE_CHECKING:
    from .outcomes import Outcome
    from .running import RunningJob


class Middleware:
    """Override what you need."""

    def before_add(self, task: str, options: AddOptions) -> AddOptions:
        """A job is about to be added: its options, perhaps with more headers."""
        return options

    def before_run(self, job: RunningJob) -> None:
        """A handler is about to run."""

    def after_run(self, job: RunningJob, outcome: Outcome) -> None:
        """It has ended; nothing is told to the node yet."""

    def on_worker_start(self, worker: Any) -> None:
        """A worker is about to fetch its first job."""

    def on_worker_stop(self, worker: Any) -> None:
        """It has told the node about its last."""
