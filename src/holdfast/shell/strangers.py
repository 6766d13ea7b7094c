"""What may be spent on a client before it has said who it is: one budget, the same at every door.

A connection is a stranger's from its first byte until a login was right (or until the first request whose credentials
were right, over HTTP). The RESP port, the TLS port, the gateway and an embedded queue that is served each keep one
`Strangers`, and tell it four things: a stranger has arrived, holds so many bytes here, is known now, has left. In turn
it closes the connections that are too many:

    memory       BYTES_MAX of all strangers together, HELD_BYTES_MAX of each
    descriptors  CONNECTIONS_MAX in all, CONNECTIONS_PER_HOST of one host; the oldest is closed, so that no crowd can
                 keep the next one out; where all are too many, the oldest of the host that has most
    time         LOGIN_S until the login is right, HANDSHAKE_S for TLS, HEAD_S for the head of an HTTP request
    hashing      `Allowances`: wrong secrets of one host, and for one user, before the hash is even begun (logins.py)

What is refused is told to try again (`TRYAGAIN`, 429, UNAVAILABLE), never that a secret is wrong. A host is an address,
or the 64 bits of an IPv6 network: whoever has one address there has all of them.
"""
from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

CONNECTIONS_MAX: Final = 1024
"""Strangers at one time. A fleet that comes back after a restart logs in within milliseconds each, and fits."""
CONNECTIONS_PER_HOST: Final = 256
"""Of one host: many clients may stand behind one address, and one of them must not be all strangers there are."""
BYTES_MAX: Final = 16 * 1024 * 1024
"""What all strangers together may leave in memory. A login is some hundred bytes."""
READ_BYTES: Final = 16 * 1024
"""Read from a stranger per turn. Two of these are the longest login there can be (8 arguments of 4 KiB)."""
HELD_BYTES_MAX: Final = 0
"""What a stranger may send ahead while its login is looked at: nothing beyond what was read with it. The rest stays
with TCP."""
LOGIN_S: Final = 30
"""A client must have said who it is after this time, where that is asked for."""
HANDSHAKE_S: Final = 5
"""TLS must be agreed on in this time. It takes two round trips."""
HANDSHAKES_MAX: Final = 256
HANDSHAKES_PER_HOST: Final = 128
"""TLS handshakes under way. One takes some milliseconds of the processor and some 100 KiB. A program opens as many
connections at once as it has threads and tasks that ask; the oldest of them must not be cut off for that."""
HEAD_S: Final = 10
"""A head of an HTTP request must be complete in this time after the connection, or after its first byte."""
HEAD_BYTES_MAX: Final = 64 * 1024
"""Request line and headers together. Browsers and proxies stop at 8 to 32 KiB."""
BODY_BYTES_MAX: Final = 16 * 1024
"""A body that is read before anybody has logged in: the form of the console's login, and nothing else."""
DRAIN_BYTES_MAX: Final = 1024 * 1024
"""What is read and dropped behind an answer that came before the end of its request; then the connection is cut. A
client that sends less than this reads the answer; one that sends more may see only that it was cut off."""
ADMIN_SLOTS: Final = 16
"""Connections above `maxclients` in which one can log in as a user with the role admin, and as nobody else."""

WRONG_AT_ONCE: Final = 20
"""Wrong secrets in a row before one has to wait. A program with an old secret and several connections makes so many."""
WRONG_PER_S: Final = 1.0
"""Wrong secrets per second from then on, of one host and for one user: some 86,000 guesses a day."""
ALLOWANCES_MAX: Final = 10_000
"""Hosts, users, and pairs of both that were wrong lately and are remembered. The least recent are forgotten."""
HASHES_WAITING_MAX: Final = 64
"""Logins that wait for the threads that hash secrets, which takes some 50 ms each: the last waits for two seconds."""
HASHES_PER_HOST: Final = 8
"""Of these, from one host."""
HASHES_FOR_ADMINS: Final = 8
"""Of these, only for users with the role admin: they can log in while a crowd tries other names."""
HASH_THREADS: Final = 2
REFUSED_S: Final = 0.5
"""How long it takes to be told to try again. A connection that asks all the same can do so twice a second."""

TRY_AGAIN: Final = "TRYAGAIN too many clients are here that have not said who they are; connect again"

Key = Hashable


def host_of(address: str) -> str:
    """Whose budget an address (host:port, [host]:port, unix:fd) counts for."""
    if address.startswith("unix:"):
        return "unix"
    host = address.rpartition(":")[0].strip("[]").partition("%")[0]
    return host_of_ip(host or address)


def host_of_ip(host: str) -> str:
    try:
        found: IPv4Address | IPv6Address = ip_address(host)
    except ValueError:
        return host
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(IPv6Address(int(found) >> 64 << 64)) + "/64" if not found.is_loopback else "::1"
    return str(found)


def is_here(host: str) -> bool:
    """Whether it is this machine itself."""
    return host in ("unix", "::1") or host.startswith("127.")


class Stranger:
    __slots__ = ("drop", "held", "host", "key")

    def __init__(self, key: Key, host: str, drop: Callable[[], None]) -> None:
        self.key = key
        self.host = host
        self.drop = drop
        self.held = 0


class Strangers:
    """Who is here and has not said who it is. Of the loop's thread alone."""

    def __init__(
        self, most: int = CONNECTIONS_MAX, per_host: int = CONNECTIONS_PER_HOST, bytes_max: int = BYTES_MAX
    ) -> None:
        self.most = most
        self.per_host = per_host
        self.bytes_max = bytes_max
        self.table: dict[Key, Stranger] = {}
        self.hosts: dict[str, dict[Key, Stranger]] = {}  # the same by host; the first of each is its oldest
        self.held = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self.table)

    def __contains__(self, key: Key) -> bool:
        return key in self.table

    def arrive(self, key: Key, address: str, drop: Callable[[], None]) -> None:
        """One is there; `drop` is called, once at most, when it has to go."""
        host = host_of(address)
        if len(self.hosts.get(host, ())) >= self.per_host:
            self.drop(next(iter(self.hosts[host].values())))
        elif len(self.table) >= self.most:
            self.make_room()
        self.table[key] = self.hosts.setdefault(host, {})[key] = Stranger(key, host, drop)

    def holds(self, key: Key, size: int) -> None:
        """So many bytes of what it sent are in memory now."""
        stranger = self.table.get(key)
        if stranger is None:
            return
        self.held += size - stranger.held
        stranger.held = size
        while self.held > self.bytes_max:
            self.drop(next(each for each in self.table.values() if each.held))

    def leave(self, key: Key) -> None:
        """It has gone, or is no stranger any more."""
        stranger = self.table.pop(key, None)
        if stranger is None:
            return
        self.held -= stranger.held
        of_host = self.hosts[stranger.host]
        del of_host[key]
        if not of_host:
            del self.hosts[stranger.host]

    def make_room(self) -> bool:
        """Close the oldest of the host that has most of them. False: there is none."""
        if not self.table:
            return False
        self.drop(next(iter(max(self.hosts.values(), key=len).values())))
        return True

    def drop(self, stranger: Stranger) -> None:
        self.dropped += 1
        self.leave(stranger.key)
        stranger.drop()


class Allowances:
    """How often each of many may do something: `at_once` times in a row, then `per_s` in a second."""

    def __init__(
        self, at_once: float = WRONG_AT_ONCE, per_s: float = WRONG_PER_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.at_once = at_once
        self.per_s = per_s
        self.clock = clock
        self.used: dict[Key, tuple[float, float]] = {}  # how much of its allowance, and at what time

    def used_by(self, key: Key) -> float:
        used, since = self.used.get(key, (0.0, 0.0))
        return max(0.0, used - (self.clock() - since) * self.per_s)

    def has_some(self, key: Key) -> bool:
        return self.used_by(key) + 1 <= self.at_once

    def take(self, key: Key) -> None:
        self.put(key, self.used_by(key) + 1)

    def give_back(self, key: Key) -> None:
        self.put(key, self.used_by(key) - 1)

    def put(self, key: Key, used: float) -> None:
        self.used.pop(key, None)
        if used > 0:
            self.used[key] = used, self.clock()
        if len(self.used) > ALLOWANCES_MAX:
            del self.used[next(iter(self.used))]
