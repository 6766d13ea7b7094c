"""A lake in an S3-compatible store (moto), and other programs that read it."""
from __future__ import annotations

import pickle
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from by_hand import ingest
from cluster_harness import free_ports, until
from deltalake import DeltaTable
from test_lake import four_writers, write
from test_refresh import FIRST, LATE, SECOND, content

from holdfast.pipeline import refresh as edge
from holdfast.pipeline.lake import Lake, LakeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """A server that speaks S3, with the bucket `lake`."""
    import boto3

    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    # A process of its own: delta-rs waits for its answers without letting other threads of this one run.
    server = subprocess.Popen([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: not socket.socket().connect_ex(("127.0.0.1", port)), 60)
        client = boto3.client("s3", endpoint_url=url, aws_access_key_id="k", aws_secret_access_key="s",
                              region_name="us-east-1")
        client.create_bucket(Bucket="lake")
        yield url
    finally:
        server.terminate()
        server.wait(20)


@pytest.fixture
def remote(endpoint: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Lake:
    """A lake there, by the usual variables."""
    for name, value in (("AWS_ENDPOINT_URL", endpoint), ("AWS_ACCESS_KEY_ID", "k"), ("AWS_SECRET_ACCESS_KEY", "secret"),
                        ("AWS_REGION", "us-east-1")):
        monkeypatch.setenv(name, value)
    return Lake(f"s3://lake/{request.node.name}").create()


def test_a_lake_in_a_store_is_one_as_in_a_folder(remote: Lake) -> None:
    table = remote.table("silver/jobs")
    assert table.now().version == 0 and table.names() == []
    table.change({"2026-03-01": write(table, n=[1, 2])}, offset={"@since": 5})
    table.change({"2026-03-01": write(table, n=[3]), "2026-03-02": write(table, n=[4])}, read=["s-0@x"])
    again = Lake(remote.store.root).check().table("silver/jobs")
    assert sorted(again.to_arrow()["n"].to_pylist()) == [3, 4]
    now = again.now()
    assert (now.version, now.offset, now.read) == (2, {"@since": 5}, {"s-0@x"})
    assert again.sweep(0) == 1
    assert sorted(again.to_arrow()["n"].to_pylist()) == [3, 4]
    assert "secret" not in repr(table.store) and pickle.loads(pickle.dumps(table.store)) == table.store
    with pytest.raises(LakeError, match="s3://lake/nothing is no lake"):
        Lake("s3://lake/nothing").check()


def test_four_writers_at_once_in_a_store_lose_nothing_and_double_nothing(remote: Lake) -> None:
    """Without a lock: of two commits of the same number the store takes one."""
    assert four_writers(remote, 3), "they were at it at the same time"


def test_silver_and_gold_in_a_store_are_those_in_a_folder(spark: SparkSession, lake: Lake, remote: Lake) -> None:
    """The executors read and write the store themselves: Spark has no jar for it."""
    for text, key in ((FIRST, "s-0"), (SECOND, "s-1"), (LATE, "s-2")):
        for each in (lake, remote):
            ingest(each, text, key)
    for each in (lake, remote):
        edge.refresh(spark, each)
    assert content(remote) == content(lake)
    there = lake.table("silver/jobs").to_arrow(["job_id", "outcome"]).to_pylist()
    found = remote.frame(spark, "silver/jobs").select("job_id", "outcome").collect()
    assert sorted((row.asDict() for row in found), key=str) == sorted(there, key=str)
    delta = DeltaTable(f"{remote.store.root}/gold/queue_minute", storage_options=remote.store.for_delta())
    assert delta.to_pyarrow_table().num_rows == remote.table("gold/queue_minute").to_arrow().num_rows > 0


def test_duckdb_polars_and_pandas_count_what_we_count(lake: Lake) -> None:
    """After a day was written anew: a reader of the Parquet files alone would count it twice."""
    import duckdb
    import polars

    table = lake.table("silver/events")
    table.change({"2026-03-01": write(table, n=[1, 2]), "2026-03-02": write(table, n=[3])})
    table.change({"2026-03-01": write(table, n=[1, 2, 9])})
    delta = DeltaTable(table.store.root)
    events: Any = delta.to_pyarrow_dataset()
    with duckdb.connect() as database:
        database.register("events", events)
        found = database.execute("SELECT count(*), sum(n) FROM events").fetchall()
    assert found == [(4, 15)] and len(list(table.folder.rglob("*.parquet"))) == 3
    assert events.count_rows() == 4
    assert polars.scan_delta(table.store.root).select(polars.col("n").sum()).collect().item() == 15
    assert delta.to_pandas()["n"].sum() == 15
