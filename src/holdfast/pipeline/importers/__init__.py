"""Jobs of other queues become jobs here: what waits, what is scheduled, what is to be tried again and what is dead.

Each importer (one file each) is a generator of `Found` that looks at the other system's data and changes nothing; all
the rest is in `bring.py`: adding under a unique key made of the other system's own id, so that a run which is repeated
adds nothing twice; taking out of the source what has been added, only if asked; a dry run.

Bodies stay the bytes they were (JSON of Sidekiq, a pickle of RQ), which only their worker can read; a call of Celery's
in JSON becomes one of a task here. What an operator wants to see is in headers beside it.
"""
