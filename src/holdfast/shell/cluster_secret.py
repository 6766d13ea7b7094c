"""The cluster's secret: from a setting, a file, or this machine's own; and the keys that come of it.

A file has a line for each secret that is valid, two at most: the first is the newer one. Two nodes prove to each other
any secret that both know. So a cluster changes its secret while it runs: first each node gets the new one before the
old one, then each loses the old one.

64 hex digits, as `holdfast secret` makes them, are a key. Any other text may be guessed: a slow hash makes a key of it,
once, when it is read. So a node that hears a proof of the secret needs a tenth of a second for each guess.

Nodes that nobody gave a secret share one with all nodes of the same user on this machine. It is made when the first of
them starts, in a file that this user alone can read:

    $XDG_STATE_HOME/holdfast/machine-secret        (~/.local/state/holdfast/machine-secret)
"""
from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path

SECRETS_MAX = 2
"""Valid at once: the one that the cluster goes over to, and the one that it comes from."""
SECRET_BYTES_MIN = 16
"""A shorter text is found by trying, also at a tenth of a second for each try."""
FILE_BYTES_MAX = 4096
KEY = re.compile(rb"[0-9a-f]{64}")
KEY_BYTES = 32
SALT = b"holdfast cluster secret"
"""The same for all: nodes that know nothing of each other yet must come to the same key."""
COST, BLOCK, LANES = 15, 8, 1
"""scrypt: 2**15 rounds over 32 MiB, a tenth of a second for each guess."""
MEMORY_BYTES = 64 * 1024 * 1024
MACHINE_FILE = "machine-secret"
CORES_FILE = "secret"
"""In the private folder of nodes behind one port, where these have no other."""


class BadSecret(Exception):
    """A secret that cannot be used, or read; the message is for the person who started the node."""


def new_secret() -> str:
    return secrets.token_hex(KEY_BYTES)


def key_of(secret: bytes) -> bytes:
    """The key that a secret stands for."""
    if KEY.fullmatch(secret):
        return bytes.fromhex(secret.decode())
    return hashlib.scrypt(
        secret, salt=SALT, n=1 << COST, r=BLOCK, p=LANES, maxmem=MEMORY_BYTES, dklen=KEY_BYTES
    )


def read_file(path: str) -> tuple[bytes, ...]:
    """The secrets in a file. Raises BadSecret."""
    where = f"the cluster-secret-file {path}"
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise BadSecret(f"cannot read {where}: {error.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise BadSecret(f"{where} is longer than {FILE_BYTES_MAX} bytes")
    lines = [line.strip() for line in data.splitlines() if line.strip()]
    if not lines:
        raise BadSecret(f"{where} holds nothing: `holdfast secret new` makes a secret")
    if len(lines) > SECRETS_MAX:
        raise BadSecret(f"{where} has {len(lines)} lines: {SECRETS_MAX} secrets can be valid at once, one on each line")
    return tuple(checked(line, where) for line in lines)


def checked(secret: bytes, where: str) -> bytes:
    if len(secret) < SECRET_BYTES_MIN:
        raise BadSecret(
            f"{where}: a secret of {len(secret)} bytes is soon guessed; it takes {SECRET_BYTES_MIN}. "
            "`holdfast secret new` makes one that nobody guesses"
        )
    return secret


def write_new(path: Path, lines: Sequence[bytes]) -> bool:
    """Write a file of secrets that is whole from its first moment. False: it is there already."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(b"\n".join(lines) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(beside, path)
    except FileExistsError:
        return False
    finally:
        beside.unlink()
    return True


# -- nodes of one user on one machine ---------------------------------------------------------------------


def machine_file() -> Path:
    given = os.environ.get("XDG_STATE_HOME", "")
    state = Path(given) if given.startswith("/") else Path(os.path.expanduser("~")) / ".local" / "state"
    return state / "holdfast" / MACHINE_FILE


def machine_secret() -> bytes:
    """What nodes of this user on this machine know of each other; made if there is none yet. Raises BadSecret."""
    path = machine_file()
    try:
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_new(path, [new_secret().encode()])
        return read_private(path)
    except OSError as error:
        raise BadSecret(f"cannot use {path}, the secret of this user's nodes: {error.strerror or error}") from None


def read_private(path: Path) -> bytes:
    """A secret that we made ourselves, from a file that nobody else can have touched."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
            raise BadSecret(f"{path} is not a file for its owner alone (mode 0600): others may know the secret in it")
        secret = file.read(2 * KEY_BYTES + 2).strip()
    if KEY.fullmatch(secret) is None:
        raise BadSecret(f"{path} does not hold a secret: remove it, and the next node that starts makes another")
    return secret


def make_for_cores(folder: Path) -> None:
    """A secret for nodes that one process starts, in the private folder that these have."""
    write_new(folder / CORES_FILE, [new_secret().encode()])


def of_cores(bus_socket: str) -> bytes:
    """The secret in the folder in which the nodes behind one port have their sockets; empty: there is none."""
    path = Path(bus_socket).parent / CORES_FILE
    with contextlib.suppress(FileNotFoundError):
        return read_private(path)
    return b""
