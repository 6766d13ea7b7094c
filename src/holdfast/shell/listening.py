"""Sockets to listen on: TCP, TCP shared by several processes, Unix; and what kind of address one is."""
from __future__ import annotations

import hashlib
import os
import socket
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from holdfast.shell.settings import SettingsError

USUAL = ("127.0.0.1", "::1", "[::1]", "localhost")  # where nodes of this machine see each other anyway


def bind(address: str, port: int, backlog: int, is_shared: bool = False) -> socket.socket:
    """A listening socket. A shared one is one of several, among which the system spreads those who connect."""
    host = address.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=backlog, reuse_port=is_shared)
    except OSError as error:
        raise SettingsError(f"cannot listen on {address} port {port}: {error.strerror or error}") from None


def bind_unix(path: Path, permissions: str, backlog: int) -> socket.socket:
    """A listening Unix socket, with its permissions from the first moment on."""
    try:
        mode = int(permissions, 8)
    except ValueError:
        mode = -1
    if not 0 <= mode <= 0o777:
        raise SettingsError(f"unixsocketperm: '{permissions}' is not an octal number up to 777")
    if path.is_socket():
        if is_answered(path):
            raise SettingsError(f"cannot listen on the Unix socket {path}: another process does")
        path.unlink(missing_ok=True)  # left behind by one that is gone
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o777 & ~mode)
    try:
        sock.bind(str(path))
        sock.listen(backlog)
    except OSError as error:
        raise SettingsError(f"cannot listen on the Unix socket {path}: {error.strerror or error}") from None
    finally:
        os.umask(mask)
    return sock


def is_answered(path: Path) -> bool:
    """Whether somebody listens on a Unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def is_there(address: str) -> bool:
    """Whether a name or number is an address of some machine."""
    try:
        return bool(socket.getaddrinfo(address.strip("[]"), None))
    except OSError:
        return False


def is_loopback(address: str) -> bool:
    if address == "localhost":
        return True
    try:
        return ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return False


def is_any(address: str) -> bool:
    """Whether it stands for all addresses of this machine."""
    try:
        return ip_address(address.strip("[]")).is_unspecified
    except ValueError:
        return False


def only_address(addresses: list[str]) -> str:
    """The one that others can reach this node by, if it says more than what they see of it; otherwise nothing.

    A node that listens on one of several addresses of its machine calls from whichever the system chooses.
    """
    if len(addresses) != 1 or is_any(addresses[0]) or addresses[0] in USUAL or "%" in addresses[0]:
        return ""
    return addresses[0].strip("[]")


def host_id() -> str:
    """Which machine this is, the same for all processes on it: containers have names of their own, but one kernel."""
    try:
        seed = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        seed = socket.gethostname()
    return hashlib.sha256(seed.encode()).hexdigest()[:16]


def address_text(sock: socket.socket, address: Any) -> str:
    """How CLIENT LIST shows where a client is."""
    if isinstance(address, tuple):
        host = f"[{address[0]}]" if ":" in address[0] else address[0]
        return f"{host}:{address[1]}"
    return f"unix:{sock.fileno()}"
