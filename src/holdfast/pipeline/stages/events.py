"""Silver events: bronze without what came twice, in columns that other stages may rely on.

An event is told apart by where it lies in its node's history, so the same event read twice (a stream that began anew, a
batch that was replayed) is the same row.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from holdfast.pipeline.lake import SCHEMA as SCHEMA_VERSION

from .schema import schema

if TYPE_CHECKING:
    import pyarrow as pa

EVENTS: Final = schema("""
    event_id string, type string, at timestamp, node string, job_id string, queue string, attempt int, worker string,
    error string, cause string, tenant string, domain string, `group` string, parent_id string, peer string,
    body_bytes long, lease_ms long, delay_ms long, count long, copy boolean, retry_s int, ttl_s long, priority int,
    attempts_max int, headers map<string, string>, schema_version int, replicate int, `unique` string, batch string,
    batch_index long
""")
"""Columns of bronze and silver events; docs/reference/history.md says what they mean."""


FROM_SOURCE: Final = {"at": "timestamp", "job_id": "key", "parent_id": "parent", "attempts_max": "attempts"}
"""Columns that the source calls differently."""


def arrow() -> pa.Schema:
    """The same columns as Arrow has them: what executors write."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(EVENTS, timezone="UTC")


def from_source(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of the `events` source as bronze keeps them: nothing is thrown away."""
    import pyarrow as pa
    import pyarrow.compute as pc

    places = [batch.column("node"), *(batch.column(name).cast(pa.string()) for name in ("segment", "offset"))]
    made = {
        "event_id": pc.binary_join_element_wise(*places, "/"),
        "schema_version": pa.repeat(pa.scalar(SCHEMA_VERSION, pa.int32()), batch.num_rows),
    }
    return pa.RecordBatch.from_arrays(
        [(made[field.name] if field.name in made else batch.column(FROM_SOURCE.get(field.name, field.name)))
         .cast(field.type) for field in arrow()], schema=arrow())


def clean(bronze: DataFrame) -> DataFrame:
    """One row per event. Of the same event in two schema versions the newer stays: it may know more."""
    newest = F.max_by(F.struct(*EVENTS.names), "schema_version")
    return bronze.groupBy("event_id").agg(newest.alias("e")).select("e.*").to(EVENTS)


def day(rows: DataFrame, column: str) -> DataFrame:
    """The same with `part`, the day a row is kept under."""
    return rows.withColumn("part", F.date_format(column, "yyyy-MM-dd"))
