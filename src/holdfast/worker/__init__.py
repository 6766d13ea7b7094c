"""The worker: fetches jobs, runs the tasks of an app, and tells the node how it went.

    holdfast worker shop.tasks:app -q mail,images -c 10

Three threads and an event loop, so that nothing user code does can keep a lease from being extended:

    fetcher   asks for jobs as long as there is room for more                           `fetching`
    teller    acknowledges, extends leases, passes on progress, beats                   `telling`
    loop      runs async handlers, `concurrency` at a time                              `slots`
    threads   run plain handlers, `concurrency` at a time, or watch over a child process that does   `slots`, `children`

`runtime` puts them together, `supervise` runs several workers and restarts them, `health` tells others whether this one
still consumes.
"""

from __future__ import annotations

from .runtime import Worker, WorkerOptions

__all__ = ["Worker", "WorkerOptions"]
