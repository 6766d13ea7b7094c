"""A schema from text, as it stands beside each stage."""
from __future__ import annotations

from pyspark.sql.types import StructType


def schema(text: str) -> StructType:
    """Columns as in SQL: `queue string, minute timestamp`."""
    made = StructType.fromDDL(text)
    assert isinstance(made, StructType)
    return made
