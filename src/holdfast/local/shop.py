"""The sample application of `holdfast up`: what a small shop does in the background.

Each task shows one thing that a queue is for. Some fail, as things do: a card processor that times out is tried again
and mostly works, a picture that nobody can read ends among the dead jobs. Run it by hand, too:

    holdfast worker holdfast.local.shop:app --url holdfast://127.0.0.1:7711
"""
from __future__ import annotations

import asyncio
import random
import time

from holdfast.tasks.app import App
from holdfast.tasks.outcomes import Discard, Retry
from holdfast.tasks.running import current_job

app = App(backoff=(1, 20))

CARDS = "cards.example"
CARRIERS = ("parcels.example", "express.example", "post.example")
RATES = {CARDS: "12/s", "parcels.example": "4/s", "express.example": "3/s", "post.example": "2/s"}
"""Hand-outs a second that the other side bears, by domain: enough on the whole, too few in a rush."""
CUSTOMERS = 40
SHOPS = ("north", "south", "harbour")


@app.task(queue="payments", domain=CARDS, unique=True, retries=4, priority=8)
async def charge(order: int, cents: int) -> str:
    """At the rate of the card processor, and once per order."""
    await asyncio.sleep(random.uniform(0.02, 0.15))
    if random.random() < 0.06:
        raise ConnectionError(f"{CARDS}: timed out after 150 ms")
    if random.random() < 0.01:
        raise Retry("too many requests", after=2, throttled=True)
    return f"paid {cents / 100:.2f}"


@app.task(queue="mail", retries=3)
async def confirm(order: int, to: str) -> None:
    """Anybody's mail; an address that does not exist is not tried again."""
    await asyncio.sleep(random.uniform(0.01, 0.1))
    if to.startswith("nobody"):
        raise Discard(f"550 no such mailbox: {to}")


@app.task(queue="parcels", group=lambda customer, **_: f"customer-{customer}")
def pack(customer: int, order: int) -> None:
    """The parcels of one customer one after the other, in the order of the orders."""
    time.sleep(random.uniform(0.02, 0.08))


@app.task(queue="tracking", domain=lambda carrier, **_: carrier, retries=5)
async def track(carrier: str, order: int) -> str:
    """Each carrier at its own rate."""
    await asyncio.sleep(random.uniform(0.05, 0.2))
    if random.random() < 0.03:
        raise ConnectionError(f"{carrier}: 503 service unavailable")
    return random.choice(["at the depot", "on the road", "delivered"])


@app.task(queue="pictures", tenant=lambda shop, **_: shop, retries=1, backoff=(1, 1), priority=3)
def resize(shop: str, picture: str) -> None:
    """No shop's thousand pictures delay another's one."""
    time.sleep(random.uniform(0.03, 0.12))
    if picture.endswith(".bmp"):
        raise ValueError(f"cannot identify image file {picture!r}")


@app.task(queue="reports", cron="*/20 * * * * *", timeout=30)
async def report() -> None:
    """Three times a minute, and long enough to be seen at work."""
    job = current_job()
    for step in range(10):
        await asyncio.sleep(0.3)
        job.progress(step / 10, f"page {step + 1} of 10")
