"""A schema from text, as it stands beside each stage.

Spark's own reader of such texts asks the JVM, so it works only once there is a session: a module could not even be
imported before. The few types the stages use are read here.
"""
from __future__ import annotations

import re
from typing import Final

from pyspark.sql import types as T

TYPES: Final[dict[str, T.DataType]] = {
    "string": T.StringType(), "int": T.IntegerType(), "long": T.LongType(), "double": T.DoubleType(),
    "boolean": T.BooleanType(), "binary": T.BinaryType(), "timestamp": T.TimestampType(), "date": T.DateType(),
}
COLUMN: Final = re.compile(r"\s*`?(\w+)`?\s+(\w+)\s*(?:<\s*(\w+)\s*,\s*(\w+)\s*>)?\s*(?:,|$)")


def schema(text: str) -> T.StructType:
    """Columns as in SQL: `queue string, minute timestamp, sketch map<int, long>`."""
    made = T.StructType()
    at = 0
    text = text.strip()
    while at < len(text):
        found = COLUMN.match(text, at)
        if found is None:
            raise ValueError(f"not a column: {text[at:at + 40]!r}")
        name, kind, key, value = found.groups()
        made.add(name, T.MapType(TYPES[key], TYPES[value]) if kind == "map" else TYPES[kind])
        at = found.end()
    return made
