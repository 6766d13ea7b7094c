"""The jobs source with a fault between its claim and Spark's log, where no other program can reach."""
from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import StructType

from holdfast.pipeline.sources import HoldfastSource
from holdfast.pipeline.sources.jobs import JobsStreamReader


class ChaosReader(JobsStreamReader):
    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        end = super().latestOffset(start, limit)
        folder = Path(os.environ["CHAOS_FOLDER"])
        if end != start and (folder / "die-after-claim").exists():
            (folder / "die-after-claim").unlink()
            os.kill(int(os.environ["CHAOS_DRIVER"]), signal.SIGKILL)
            time.sleep(60)  # the JVM goes with its driver
        if end != start and (folder / "wait-after-claim").exists():
            (folder / "wait-after-claim").write_text(json.dumps(list(end["claims"])))
            (folder / "wait-after-claim").rename(folder / "claimed")
            while (folder / "claimed").exists():
                time.sleep(0.05)
        return end


class ChaosSource(HoldfastSource):
    @classmethod
    def name(cls) -> str:
        return "chaosfast"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return ChaosReader(self.options)
