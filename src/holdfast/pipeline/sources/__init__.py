"""The data source `holdfast`: what Spark calls, and which reader or writer answers.

    spark.read.format("holdfast").option("url", "holdfast://host").load("events")        history, as a batch
    spark.readStream.format("holdfast").option("url", …).load("events")                   history, as a stream
    spark.read.format("holdfast").option("url", …).load("browse")                         jobs that are there now
    spark.readStream.format("holdfast").option("url", …).option("subscribe", "q").load("jobs")  takes jobs, acks them
    frame.write.format("holdfast").option("url", …).mode("append").save()                 adds jobs

Readers are plain Python objects: `events.py`, `browse.py`, `jobs.py` and `sinks/` can be tested without Java.
"""
from __future__ import annotations

from typing import Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from .options import BadOption

KINDS: Final = ("events", "browse", "jobs")


class HoldfastSource(DataSource):
    """Spark makes one per query, on the driver."""

    @classmethod
    def name(cls) -> str:
        return "holdfast"

    def kind(self) -> str:
        given = self.options.get("table") or self.options.get("path") or ""
        if given not in KINDS:
            said = f"not {given!r}" if given else "and nothing was said"
            raise BadOption(f"say what to read, .load('events'), .load('browse') or .load('jobs'), {said}")
        return given

    def schema(self) -> str:
        kind = self.kind()
        if kind == "events":
            from .events import schema

            return schema(self.options)
        if kind == "browse":
            from .browse import SCHEMA

            return SCHEMA
        from .jobs import SCHEMA as JOBS

        return JOBS

    def reader(self, schema: StructType) -> DataSourceReader:
        kind = self.kind()
        if kind == "events":
            from .events import EventsReader

            return EventsReader(self.options)
        if kind == "browse":
            from .browse import reader

            return reader(self.options)
        raise BadOption("jobs are read as a stream: spark.readStream; to look without taking, .load('browse')")

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        kind = self.kind()
        if kind == "events":
            from .events import EventsStreamReader

            return EventsStreamReader(self.options)
        if kind == "jobs":
            from .jobs import JobsStreamReader

            return JobsStreamReader(self.options)
        raise BadOption("browse is no stream: use spark.read, or .load('jobs')")

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from holdfast.pipeline.sinks.writer import batch_writer

        if overwrite:
            raise BadOption("jobs can be added to a queue, not written over it: .mode('append')")
        return batch_writer(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from holdfast.pipeline.sinks.writer import stream_writer

        return stream_writer(self.options, schema)
