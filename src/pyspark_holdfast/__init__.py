"""Where Spark finds the data source `holdfast`: it imports every module whose name begins with `pyspark_`.

Spark does so at the first use of any data source it does not know, so this must be light and must never fail: without
PySpark's own needs (pyarrow) there is simply no source here.
"""
from __future__ import annotations

try:
    from holdfast.pipeline.sources import HoldfastSource as DefaultSource
except ImportError:  # pyarrow or holdfast itself is missing where this runs
    __all__: list[str] = []
else:
    __all__ = ["DefaultSource"]
