"""Nodes in network namespaces: a namespace and a TUN device for each, one more for the clients, one switch.

Everything here runs inside namespaces of its own (processes, mounts, network: INSIDE): whatever way the
run ends, the kernel takes all processes, devices and namespaces with it. Nothing has a name outside.

Each node has a clock on the wall of its own (clock.c): `Tenant.set_skew` moves it at any time.
"""
from __future__ import annotations

import fcntl
import json
import os
import shutil
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from cluster_harness import IN_MEMORY, Cluster, Member, until

from netns.switch import Rule

HERE = Path(__file__).parent
TUN = Path("/dev/net/tun")
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
MTU = 9000
CLIENTS = "10.77.0.100"
PORT, BUS_PORT = 7711, 17711
TOOLS = ("ip", "unshare", "nsenter", "cc")
INSIDE = ["unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]

Rules = dict[tuple[str, str], Rule]
"""By path: address from, address to."""


def why_not() -> str:
    """Why there can be no namespaces here; empty if there can."""
    if os.geteuid() != 0:
        return "needs root"
    if not TUN.exists():
        return f"needs {TUN}"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    trial = [*INSIDE, sys.executable, "-c", "from netns.lab import open_tun; open_tun('trial')"]
    done = subprocess.run(trial, env=environment(), capture_output=True, text=True)
    return "" if done.returncode == 0 else f"no namespaces or devices here: {done.stderr.strip()[-300:]}"


def environment() -> dict[str, str]:
    """With this package, and what it needs, to be found by a Python."""
    folders = [str(HERE.parent), *os.environ.get("PYTHONPATH", "").split(":")]
    return {**os.environ, "PYTHONPATH": ":".join(filter(None, folders))}


def open_tun(name: str) -> int:
    """A device in this namespace; it goes when the descriptor is closed, wherever it was moved."""
    descriptor = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
    return descriptor


def sh(*words: str) -> None:
    subprocess.run(words, check=True)


def furnish(name: str, address: str, *enter: str) -> None:
    """Bring up the device of a namespace."""
    sh(*enter, "ip", "link", "set", "lo", "up")
    sh(*enter, "ip", "addr", "add", f"{address}/24", "dev", name)
    sh(*enter, "ip", "link", "set", name, "mtu", str(MTU), "up")


class Room:
    """A namespace with one device, kept by a process that does nothing."""

    def __init__(self, name: str, address: str) -> None:
        self.keeper = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        ours = os.readlink("/proc/self/ns/net")
        until(lambda: os.readlink(f"/proc/{self.keeper.pid}/ns/net") != ours)
        self.enter = ["nsenter", "--net", "--target", str(self.keeper.pid)]
        self.tun = open_tun(name)
        sh("ip", "link", "set", name, "netns", str(self.keeper.pid))
        furnish(name, address, *self.enter)


class Wire:
    """The switch, a process of its own."""

    def __init__(self, seed: int, ports: Mapping[str, int]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "switch.py"), str(seed), *(f"{a}={fd}" for a, fd in ports.items())],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=list(ports.values()),
        )
        self.set({})

    def set(self, rules: Rules) -> Counter[str]:
        """From here on these are the rules; what was done to packets so far."""
        assert self.process.stdin is not None and self.process.stdout is not None
        order = json.dumps([[a, b, rule] for (a, b), rule in rules.items()])
        self.process.stdin.write(order.encode() + b"\n")
        self.process.stdin.flush()
        return Counter(json.loads(self.process.stdout.readline()))


class Tenant(Member):
    """A node in a room."""

    def move_in(self, room: Room, address: str, clock: Path, settings: Mapping[str, str]) -> None:
        self.host = address
        self.launcher = room.enter
        self.settings = {
            **IN_MEMORY, **settings, "bind": address, "protected-mode": "no", "cluster-secret": "the secret of netns",
            "host-id": f"host{self.number}",
        }
        self.skew = self.folder / "skew"
        self.set_skew(0)
        self.environ = {"LD_PRELOAD": str(clock), "NETNS_SKEW": str(self.skew)}

    def set_skew(self, ms: int) -> None:
        """Its clock on the wall goes wrong by so much. Written in place: the node has the file mapped."""
        descriptor = os.open(self.skew, os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(descriptor, struct.pack("q", ms))
        os.close(descriptor)

    def wall_s(self) -> float:
        seconds, micros = self.ask("TIME")
        return int(seconds) + int(micros) / 1e6


class Lab(Cluster):
    """Nodes 0 to size - 1 at 10.77.0.1 and on; this process is with the clients."""

    def __init__(self, folder: Path, size: int, seed: int, settings: Mapping[str, str]) -> None:
        self.node_settings = settings
        self.clock = folder / "clock.so"
        sh("cc", "-O2", "-shared", "-fPIC", "-o", str(self.clock), str(HERE / "clock.c"), "-ldl")
        self.addresses = [f"10.77.0.{number + 1}" for number in range(size)]
        self.rooms = [Room(f"room{number}", address) for number, address in enumerate(self.addresses)]
        ports = {address: room.tun for address, room in zip(self.addresses, self.rooms)}
        ports[CLIENTS] = open_tun("clients")
        furnish("clients", CLIENTS)
        self.wire = Wire(seed, ports)
        self.tenants: list[Tenant] = []
        super().__init__(folder, size)

    def grow(self) -> Tenant:
        number = len(self.nodes)
        joins = [self.nodes[0].place()] if self.nodes else []
        node = Tenant(self.folder, number, PORT, BUS_PORT, joins)
        node.move_in(self.rooms[number], self.addresses[number], self.clock, self.node_settings)
        self.tenants.append(node)
        self.nodes.append(node)
        return node
