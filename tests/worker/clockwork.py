"""A task on a schedule, in an app of its own: every worker of the app tells the cluster of it."""
from __future__ import annotations

import os

import holdfast

from .shop import note

app = holdfast.App(os.environ.get("SHOP_URL", "memory:"))


@app.task(queue="ticks", cron="@every 1s")
def tick() -> None:
    note("tick", holdfast.current_job().id)
