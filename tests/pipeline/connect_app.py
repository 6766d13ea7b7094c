"""What the test of Spark Connect runs: rows become jobs, are looked at, and are taken by a stream into Parquet."""
from __future__ import annotations

import json
import sys

from holdfast.pipeline.session import open_session

place, url, folder = sys.argv[1:4]
spark = open_session(place)
rows = spark.range(0, 40, 1, 2).selectExpr("'connected' AS queue", "concat('row ', id) AS body")
rows.write.format("holdfast").option("url", url).mode("append").save()
there = spark.read.format("holdfast").option("url", url).option("subscribe", "connected").load("browse")
browsed = there.count()
query = (
    spark.readStream.format("holdfast").option("url", url).option("subscribe", "connected").load("jobs")
    .select("id", "body").writeStream.format("parquet").option("path", f"{folder}/out")
    .option("checkpointLocation", f"{folder}/check").trigger(availableNow=True).start()
)
query.awaitTermination()
taken = spark.read.parquet(f"{folder}/out").select("id").distinct().count()
print(json.dumps({"added": 40, "browsed": browsed, "taken": taken}))
spark.stop()
