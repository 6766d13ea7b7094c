"""The data pipeline: the history of jobs becomes tables, tables become jobs, and Spark does the work.

    history of every node ──► sources/events ──► bronze ──► silver ──► gold ──► report, stuck, anomalies, console
    jobs in the queues    ──► sources/browse (looks), sources/jobs (takes, acks when Spark has committed)
    tables, other queues  ──► sinks, backfill, importers ──► jobs

`stages/` are pure functions of DataFrames, each with its schema beside it; `lake` keeps the tables and needs no Spark,
so that the console can read them; `refresh` is the edge that reads, calls the stages and writes. `sources/` and
`sinks/` are the data source `holdfast`, which Spark finds by itself in the package `pyspark_holdfast`.

Nothing here is imported by the rest of Holdfast, and PySpark only inside functions, in `stages/`, `sources/` and
`sinks/`: without Spark the lake can still be read.
"""
