"""The bytes of a journal do not change by accident: those of version 1 are written down here."""
from __future__ import annotations

import io
from pathlib import Path

import pytest

from holdfast.core import records
from holdfast.journal import format as layout
from holdfast.journal.folder import Folder, JournalError, segment_path

from .making import NODE_ID, START_MS, Life

HEADER = (
    "484f4c4446415354" "0100" "0100" "0300000000000000" "0700000000000000"
    "0123456789abcdef0123456789abcdef01234567" + "00" * 12
)


def test_a_header_is_what_it_was() -> None:
    header = layout.Header(layout.SEGMENT, 3, 7, NODE_ID)
    packed = header.pack()
    assert packed[:-4].hex() == HEADER
    assert packed[-4:].hex() == "cda7c619"
    assert layout.read_header(packed) == header


def test_a_batch_is_what_it_was() -> None:
    head = layout.batch_head(3, 64, 64, b"\x01\x00\x00\x00x")
    assert head.hex() == "b748466a05000000e324e7334000000000000000"


def test_the_records_of_a_job_are_what_they_were(tmp_path: Path) -> None:
    """An add, its hand-out and its end: the records every journal consists of."""
    life = Life(tmp_path, policy="no")
    jid = life.add("body", "RETRY", "60", "TTL", "3600")
    assert life.get() == jid
    assert life.do("ACKJOB", jid) == b":1\r\n"
    life.close()
    file = io.BytesIO(segment_path(tmp_path / "journal", 1).read_bytes())
    name = "67452301" + int(jid[10:26], 16).to_bytes(8, "little").hex()
    rest = int(jid[26:42], 16).to_bytes(8, "little").hex() + int(jid[42:46], 16).to_bytes(2, "little").hex()
    found = [record.hex() for batch in layout.Scan(file) for record in records.split(batch.records)]
    assert found == [
        "13" + START_MS.to_bytes(8, "little").hex(),
        "14" + name + rest + (START_MS * 1_000_000).to_bytes(8, "little").hex() + "80ee3600" + "3c000000" + "05"
        + "01000000" + b"q".hex() + b"body".hex(),
        "07" + name + (60_000).to_bytes(8, "little").hex(),
        "05" + name,
    ]


def test_a_job_in_a_snapshot_is_what_it_was(tmp_path: Path) -> None:
    life = Life(tmp_path, policy="no")
    jid = life.add("body", "RETRY", "60", "TTL", "3600", "DELAY", "5")
    assert life.journal.rewrite_now()
    life.close()
    file = io.BytesIO((tmp_path / "journal" / "00000002.snapshot").read_bytes())
    found = [record.hex() for batch in layout.Scan(file) for record in records.split(batch.records)]
    name = "67452301" + int(jid[10:26], 16).to_bytes(8, "little").hex()
    rest = int(jid[26:42], 16).to_bytes(8, "little").hex() + int(jid[42:46], 16).to_bytes(2, "little").hex()
    assert found == [
        "13" + START_MS.to_bytes(8, "little").hex(),
        "02" + name + rest + (START_MS * 1_000_000).to_bytes(8, "little").hex() + "00" * 8
        + (3_600_000).to_bytes(8, "little").hex() + (5000).to_bytes(8, "little").hex() + "050000003c000000" + "00" * 8
        + "0000050001000000" + "0100000000000000" + "01000000" + b"q".hex() + "04000000" + b"body".hex(),
    ]


def test_a_version_we_do_not_know_is_refused_by_name() -> None:
    fields = layout.HEADER.pack(layout.MAGIC, 2, 1, 1, 1, b"\0" * 20)
    data = fields + layout.CHECKSUM.pack(layout.google_crc32c.value(fields))
    with pytest.raises(layout.Damage, match="version 2"):
        layout.read_header(data)


def test_the_bytes_of_a_journal_in_a_body_are_no_batch(tmp_path: Path) -> None:
    """A job carries a copy of the journal it is in. When the end of that journal is torn, the copy looks like good
    batches beyond the damage; but it stands elsewhere, so it has a wrong checksum."""
    life = Life(tmp_path)
    life.add("first")
    life.add("second")
    copy = segment_path(tmp_path / "journal", 1).read_bytes()
    life.do(b"ADDJOB", b"q", copy, b"0")
    end = life.journal.writer.position
    life.kill()
    path = segment_path(tmp_path / "journal", 1)
    path.write_bytes(path.read_bytes()[:end - 1])
    life = Life(tmp_path)
    assert life.bodies() == [b"first", b"second"]
    assert "cut off" in life.journal.cut


def test_a_gap_between_segments_is_named(tmp_path: Path) -> None:
    for number in (1, 3):
        segment_path(tmp_path, number).write_bytes(b"")
    with pytest.raises(JournalError, match=r"00000002\.log is missing"):
        Folder.look(tmp_path)
