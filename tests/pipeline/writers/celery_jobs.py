"""Messages written by Celery itself: waiting, with a priority, with a countdown; and one as a worker holds it."""
from __future__ import annotations

import sys

from celery import Celery

app = Celery("shop", broker=sys.argv[1])
app.conf.broker_transport_options = {"priority_steps": [0, 3, 6, 9]}
app.conf.task_routes = {"shop.slow": {"queue": "slow"}}


@app.task(name="shop.mail")
def mail(user: str) -> None:
    raise AssertionError("never run here")


@app.task(name="shop.slow")
def slow() -> None:
    raise AssertionError("never run here")


@app.task(name="shop.log")
def log() -> None:
    raise AssertionError("never run here")


mail.apply_async(("a",), task_id="first")
mail.apply_async(("linked",), task_id="linked", link=[log.si(), slow.si()])
mail.apply_async(("b",), task_id="second")
mail.apply_async(("c",), task_id="hurried", priority=3)
mail.apply_async(("d",), task_id="later", countdown=3600)
slow.apply_async(task_id="slow")
with app.connection_for_write() as connection:
    # As a worker does it: take one message and do not acknowledge it. The one with a countdown is left waiting.
    channel = connection.channel()
    message = channel.basic_get("slow", no_ack=False)
    assert message is not None
    connection.transport.qos_semantics_matter = True
    channel.qos._delivered.clear()  # so that leaving does not give it back
