"""A gateway with the extra `server` alone serves all but tables, and says what those need."""
from __future__ import annotations

from pathlib import Path

import pytest
from tests.gateway.running import Gateway, address
from tests.proc.harness import Node

WORDS = "pip install 'holdfast[pipeline]'"
NOT_THERE = ["numpy", "pyarrow", "pandas", "pyspark", "deltalake", "matplotlib", "redis"]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """As if the pipeline had once run where the gateway is."""
    from holdfast.pipeline.lake import Lake

    table = Lake(tmp_path / "lake").create().table("gold/queue_minute")
    table.change({}, offset={})
    return tmp_path / "lake"


def test_what_needs_tables_says_which_extra_has_them(tmp_path: Path, lake: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({NOT_THERE}))\n")
    with (
        Node("--set", f"dir={tmp_path / 'node'}", "--set", "history=yes") as node,
        Gateway(address(node), "--lake", str(lake), env={"PYTHONPATH": str(tmp_path)}) as gateway,
        gateway.client() as http,
    ):
        assert http.post("/push", content=b"hello").is_success
        assert http.get("/get").content == b"hello"
        assert http.get("/console/").status_code == 200
        answer = http.get("/v1/history")
        assert answer.status_code == 501 and WORDS in answer.json()["detail"]
        page = http.get("/console/history")
        assert page.status_code == 501 and "holdfast[pipeline]" in page.text
        assert "Traceback" not in gateway.log()
