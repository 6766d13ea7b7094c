"""The stages: pure functions of DataFrames, each with its schema beside it.

    bronze events ─ events.clean ─► silver events ─ jobs.fold ─► silver jobs
                                         │                            │
                                         └──────────┬─────────────────┘
          queues.per_minute   workers.per_hour   failures.per_day   shares.per_hour   (gold)

No stage reads or writes: `refresh` does. So each is tested with a few rows made by hand, and running one twice on the
same rows gives the same rows. `names` has the words that events and outcomes are known by.
"""
