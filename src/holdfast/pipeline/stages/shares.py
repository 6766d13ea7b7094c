"""Gold: who uses the queues: tenants and domains, hour by hour.

One table for both: `kind` says which, and `name` who. A job counts as added in the hour it was added, as ended in the
hour it ended, and its wait belongs to the hour it was first handed out: what is known of an hour when it is over stays.
"""
from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from . import sketches
from .names import OUTCOMES
from .schema import schema
from .tallies import fact, happened, lasted, tallied

KINDS: Final = ("tenant", "domain")
COUNTS: Final = ("added", *OUTCOMES.values())
SHARE_HOUR: Final = schema(
    "kind string, name string, queue string, hour timestamp, " + ", ".join(f"{name} long" for name in COUNTS)
    + ", busy_ms double, " + sketches.columns("wait_ms")
)
KEY: Final = ["kind", "name", "queue"]


def per_hour(jobs: DataFrame) -> DataFrame:
    """From all jobs that were added, handed out or ended in some days."""
    who = F.explode(F.array(*[F.struct(F.lit(kind).alias("kind"), F.col(kind).alias("name")) for kind in KINDS]))
    named = jobs.select("*", who.alias("who")).select("*", "who.kind", "who.name").where(F.col("name").isNotNull())
    facts = happened(
        named, KEY, fact("added", F.col("added_at")), fact(F.col("outcome"), F.col("ended_at"), F.col("run_ms")),
        lasted("wait_ms", F.col("first_handed_at"), F.col("wait_ms")),
    )
    busy = F.coalesce(F.sum(F.when(F.col("what").isin(*OUTCOMES.values()), F.col("ms"))), F.lit(0.0))
    return tallied(facts, KEY, "hour", COUNTS, ["wait_ms"], busy.alias("busy_ms")).to(SHARE_HOUR)
