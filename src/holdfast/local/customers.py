"""The producer of the sample application: customers who order, more at times and fewer at others.

    python -m holdfast.local.customers URL [ORDERS_PER_SECOND]

It sets the rates of the domains, then adds the jobs of each order until SIGTERM. A cluster that does not answer is
asked again with the next order: a shop does not close because its queue restarts.
"""
from __future__ import annotations

import logging
import math
import random
import signal
import sys
import threading
import time

from holdfast.client.errors import Error
from holdfast.client.queue import Queue
from holdfast.local import shop

log = logging.getLogger("holdfast.local")

WAVE_S = 120.0
"""From one rush to the next."""
AGAIN_S = 1.0


def set_rates(queue: Queue) -> None:
    for domain, rate in shop.RATES.items():
        queue.limit(domain, rate, burst=3)


def order(number: int) -> None:
    """What one order sets off."""
    customer = random.randrange(shop.CUSTOMERS)
    name = "nobody" if random.random() < 0.01 else f"customer-{customer}"
    shop.charge.add(number, random.randrange(500, 20_000))
    shop.confirm.add(number, to=f"{name}@mail.example")
    shop.pack.add(customer=customer, order=number)
    shop.track.using(delay=random.choice([0, 0, 2, 15])).add(carrier=random.choice(shop.CARRIERS), order=number)
    if random.random() < 0.3:
        kind = "bmp" if random.random() < 0.05 else "jpg"
        shop.resize.add(shop=random.choices(shop.SHOPS, (8, 3, 1))[0], picture=f"p-{number}.{kind}")


def pause_after(seconds_of_day: float, per_second: float) -> float:
    """Seconds until the next order: the rate goes up and down in a wave."""
    wave = 1 + 0.6 * math.sin(2 * math.pi * seconds_of_day / WAVE_S)
    return random.expovariate(per_second * wave)


def run(url: str, per_second: float, done: threading.Event) -> None:
    shop.app.url = url
    are_rates_set = False
    while not done.is_set():
        try:
            if not are_rates_set:
                set_rates(shop.app.queue)
                are_rates_set = True
            order(time.time_ns() // 1_000_000)
        except Error as error:
            log.warning("an order has to wait: %s", error)
            done.wait(AGAIN_S)
        done.wait(pause_after(time.time(), per_second))
    shop.app.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    over = threading.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda _number, _frame: over.set())
    run(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 5.0, over)
