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


def lock(folder: Path) -> int:
    """Take the folder, made if need be, for this process; what to give to `unlock`. Raises JournalError."""
    try:
        Disk().make_folder(folder)
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise JournalError(f"cannot use the folder {folder}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise InUse(
            f"the folder {folder} is used by another node, or by a program that has opened it as file:…; "
            "each needs its own"
        ) from None
    return descriptor


def unlock(descriptor: int) -> None:
    if descriptor >= 0:
        os.close(descriptor)
