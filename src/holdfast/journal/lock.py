"""One process per folder: a lock that goes with the process, however it ends."""
from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from holdfast.journal.disk import Disk
from holdfast.journal.folder import JournalError

LOCK: Final = "lock"


class InUse(JournalError):
    """Another process has the folder."""


def lock(folder: Path, to_read: bool = False) -> int:
    """Take the folder, made if need be, for this process; what to give to `unlock`. Raises JournalError.

    Who is there only to read may do so where nothing can be written: on a copy that is kept somewhere, say.
    """
    try:
        if to_read and not os.access(folder, os.W_OK):
            return lock_to_read(folder)
        Disk().make_folder(folder)
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise JournalError(f"cannot use the folder {folder}: {error.strerror}") from None
    take(descriptor, folder)
    return descriptor


def lock_to_read(folder: Path) -> int:
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return -1  # nobody has ever run here
    take(descriptor, folder)
    return descriptor


def take(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise InUse(
            f"the folder {folder} is used by another node, or by a program that has opened it as file:…; "
            "each needs its own"
        ) from None


def unlock(descriptor: int) -> None:
    if descriptor >= 0:
        os.close(descriptor)
