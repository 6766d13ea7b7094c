"""Where a cluster of tests is: its url, and how far its histories are, for a test that wants to read only its own."""
from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable


def url(cluster: Iterable[Any]) -> str:
    return "holdfast://" + ",".join(f"127.0.0.1:{node.port}" for node in cluster)


def now(cluster: Iterable[Any]) -> str:
    """What `startingOffsets` takes for: from here on."""
    from holdfast.pipeline.sources.events import EventsStreamReader

    reader = EventsStreamReader(CaseInsensitiveDict({"url": url(cluster), "startingOffsets": "latest"}))
    try:
        return json.dumps(reader.latestOffset(reader.initialOffset(), ReadAllAvailable()))
    finally:
        reader.stop()
