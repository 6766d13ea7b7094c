"""What a rewrite has replaced, kept for a while under the names it had: the setting `journal-keep-bytes`.

    journal/old/00000005.snapshot    what was there when segment 5 began
    journal/old/00000005.log …       what happened from then on

It is for people: to see what became of a job, or to go back to a moment (docs/how-to/look-back-in-the-journal.md). No
start reads it. A file is put away by one rename, after the snapshot that replaces it is on the disk, so a crash
leaves it here or beside that snapshot, where it counts as little; the next start puts away what it finds there. The
oldest are removed until what is left is short enough.
"""
from __future__ import annotations

from pathlib import Path
from typing import Final

from holdfast.journal.disk import Disk

NAME: Final = "old"  # of the folder, inside that of the journal


def files(folder: Path) -> list[Path]:
    """Those that are kept in the folder of a journal, in their order."""
    found = [path for path in (folder / NAME).glob("*.*")
             if path.suffix in (".log", ".snapshot") and path.stem.isdigit()]
    return sorted(found, key=lambda path: (int(path.stem), path.suffix == ".log"))


def put_away(folder: Path, replaced: list[Path], keep_bytes: int, disk: Disk) -> int:
    """Keep what was replaced in the folder of a journal, or remove it; how many bytes are kept. Raises OSError."""
    place = folder / NAME
    if replaced and keep_bytes and not place.is_dir():
        disk.make_folder(place)
    for path in replaced:
        if keep_bytes:
            disk.rename(path, place / path.name)
        else:
            disk.remove(path)
    return trim(folder, keep_bytes, disk)


def trim(folder: Path, keep_bytes: int, disk: Disk) -> int:
    """Remove the oldest until no more than that is left; how much is. Raises OSError."""
    sizes = {path: path.stat().st_size for path in files(folder)}
    kept = sum(sizes.values())
    for path, size in sizes.items():
        if kept <= keep_bytes:
            break
        disk.remove(path)
        kept -= size
    return kept
