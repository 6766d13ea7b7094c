"""Whose a folder is: how many nodes keep their jobs in it, and who may look into it."""
from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import doors
from holdfast.client.errors import Unreachable
from holdfast.journal.folder import JournalError
from holdfast.journal.identity import check_cores


def make_journal(folder: Path) -> None:
    with doors.open(f"file:{folder}") as queue:
        queue.add("q", "kept")


def test_one_node_is_not_started_where_several_keep_their_jobs(tmp_path: Path) -> None:
    make_journal(tmp_path / "1")
    make_journal(tmp_path / "3")
    check_cores(tmp_path, 3)
    check_cores(tmp_path, 4)
    for fewer in (1, 2):
        with pytest.raises(JournalError, match=r"3/journal has the jobs .* Start with --cores 3"):
            check_cores(tmp_path, fewer)
    with pytest.raises(Unreachable, match="Start with --cores 3"):
        doors.open(f"file:{tmp_path}")


def test_several_are_not_started_where_one_keeps_its_jobs(tmp_path: Path) -> None:
    check_cores(tmp_path, 2)
    make_journal(tmp_path)
    check_cores(tmp_path, 1)
    with pytest.raises(JournalError, match="Start without --cores"):
        check_cores(tmp_path, 2)


def test_a_folder_that_a_node_makes_is_closed_to_others(tmp_path: Path) -> None:
    make_journal(tmp_path / "new")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
