"""Jobs written by RQ itself: waiting, scheduled, and one that a worker of it ran and that failed."""
from __future__ import annotations

import datetime as dt
import operator
import sys

from redis import Redis
from rq import Queue, Retry, SimpleWorker

redis = Redis.from_url(sys.argv[1])
queue = Queue("mail", connection=redis)
queue.enqueue(operator.truediv, 1, 0, job_id="failing")
queue.enqueue(operator.truediv, 1, 0, job_id="again", retry=Retry(max=3, interval=3600))
SimpleWorker([queue], connection=redis).work(burst=True, logging_level="CRITICAL")
queue.enqueue(print, "hello", job_id="waiting-1")
queue.enqueue(print, "hello", job_id="waiting-2", description="greets")
queue.enqueue_in(dt.timedelta(hours=1), print, "later", job_id="later")
