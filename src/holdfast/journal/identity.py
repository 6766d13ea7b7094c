"""Who a folder belongs to: the node's id, and which life of its data this is. Raises JournalError."""
from __future__ import annotations

import contextlib
import os
import re
import secrets
from pathlib import Path
from typing import Final

from holdfast.core.ids import NODE_ID_LENGTH
from holdfast.journal.disk import Disk
from holdfast.journal.folder import NAME, Folder, JournalError

NODE_ID: Final = "node-id"
INCARNATION: Final = "incarnation"


def node_id(folder: Path) -> bytes:
    """The id kept in a folder, made if need be."""
    path = folder / NODE_ID
    try:
        Disk().make_folder(folder)
        if not path.exists():
            write_whole(path, new_node_id().decode() + "\n")
        text = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise JournalError(f"cannot use the folder {folder}: {error}") from None
    if re.fullmatch(rf"[0-9a-f]{{{NODE_ID_LENGTH}}}", text) is None:
        raise JournalError(f"{path} does not hold a node id of {NODE_ID_LENGTH} hex digits")
    return text.encode()


def new_node_id() -> bytes:
    return secrets.token_hex(NODE_ID_LENGTH // 2).encode()


def incarnation(folder: Path, is_kept: bool, now_ms: int) -> int:
    """Which life of the node's data this is; `is_kept`: it comes back with its journal, if there is one.

    Then it lives on. Any other start begins with nothing and is a new life, with a higher number than the last: the
    time, or one more than the file says where the clock was set back.
    """
    life = now_ms
    known = lives(folder)
    if known:
        if is_kept and has_journal(folder):
            return known[0]
        life = max(life, known[0] + 1)
    save_incarnation(folder, life)
    return life


def lives(folder: Path) -> list[int]:
    """The life of the node's data, and the one before it while the journal of that is still to be replaced."""
    with contextlib.suppress(OSError, ValueError):
        return [int(word) for word in (folder / INCARNATION).read_text("ascii").split()]
    return []


def check_cores(folder: Path, cores: int) -> None:
    """Refuse a folder with jobs that this start would not see, and so would seem to have lost.

    One node keeps its journal in the folder, each of several behind one port (`--cores`) in the one of its number.
    """
    numbers = sorted(int(each.name) for each in folder.glob("*") if re.fullmatch(r"[1-9][0-9]*", each.name))
    of_many = [number for number in numbers if has_journal(folder / str(number))]
    if cores > 1 and has_journal(folder):
        unseen, before = folder, "without --cores"
    elif of_many and (cores == 1 or of_many[-1] > cores):
        unseen, before = folder / str(of_many[-1]), f"with --cores {of_many[-1]}"
    else:
        return
    raise JournalError(
        f"{unseen / NAME} has the jobs of a node that would not run now. Start {before}, as it was; or move {folder} "
        "to another place, start with a new one, and have `holdfast promote file:…` bring the jobs from there"
    )


def has_journal(folder: Path) -> bool:
    return not Folder.look(folder / NAME, heals=True).is_empty()


def save_incarnation(folder: Path, life: int, before: int = 0) -> None:
    """`before`: a life whose journal may still be read, since that of the new one is not whole yet."""
    write_whole(folder / INCARNATION, f"{life} {before}\n" if before else f"{life}\n")


def write_whole(path: Path, text: str) -> None:
    """Replace a file by one step: after a crash it is the old or the new one, never half of each."""
    beside = path.with_name(path.name + ".new")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
        Disk().sync_folder(path.parent)
    except OSError as error:
        raise JournalError(f"cannot write {path}: {error.strerror}") from None
