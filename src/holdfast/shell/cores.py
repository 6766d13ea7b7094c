"""Several nodes on one machine behind one port: `holdfast node --cores n`.

    port       shared by all: the system spreads clients over the nodes (SO_REUSEPORT)
    port + i   node i alone, from 1; this is the address HELLO tells
    dir/i      what node i keeps

One process starts the nodes and looks after them (Cores). It serves nobody itself. Each node is a whole one and a
member of the mesh; they talk over Unix sockets in a private folder. To their users they are one: jobs that do not
say how many copies they want get one per machine, and what an administrator tells one node the others must hear.
For that each node has a line to the starter (Siblings: a pair of sockets, a JSON object per line), which passes on
to the others what it gets: settings changed, saved or counters reset, that they are to leave the cluster, and once a
second figures for INFO and whether a leaving node could be stopped.

    a node ends with code 0, by SHUTDOWN         all are stopped
    a node ends before it was ready once         all are stopped: its words in the log say why
    a node ends in any other way                 it is started again, after a wait that doubles each time
    SIGTERM or SIGINT                            passed on; the starter ends when all have
    SIGHUP                                       passed on
    the starter dies                             the lines end, and the nodes stop by themselves
"""
from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core import effects, heal
from holdfast.core.commands.cluster import leave
from holdfast.core.commands.server import reset_stats
from holdfast.core.config import SETTINGS
from holdfast.shell.bounds import (
    CORE_AGAIN_S,
    CORE_AGAIN_S_MAX,
    CORE_PORTS_TRIES,
    CORE_STOP_S,
    LINE_BYTES_MAX,
)
from holdfast.shell.bus import BUS_PORT_OFFSET, UNIX, check_bus_port
from holdfast.shell.cluster_secret import BadSecret, machine_secret, make_for_cores
from holdfast.shell.credentials import HOW, is_guarded
from holdfast.shell.listening import is_any, is_loopback
from holdfast.shell.settings import LOG_LEVELS, Settings, SettingsError

if TYPE_CHECKING:
    from holdfast.shell.server import Server

log = logging.getLogger("holdfast")


# -- the starter ----------------------------------------------------------------------------------------------


class Core:
    """One of the nodes, as the starter sees it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: asyncio.subprocess.Process | None = None
        self.writer: asyncio.StreamWriter | None = None
        self.is_ready = False
        self.was_ready = False  # in any of its lives


class Cores:
    """Starts the nodes and keeps them running. `settings` are the starter's own, `flags` what it was told."""

    def __init__(self, settings: Settings, flags: Mapping[str, str], file: Path | None) -> None:
        self.settings = settings
        self.config = settings.config
        self.flags = flags
        self.file = file
        self.cores = [Core(number) for number in range(1, self.config.number("cores") + 1)]
        self.addresses = self.config.text("bind").split()
        self.folder = Path()
        self.port = 0
        self.changes: dict[str, str] = {}  # by CONFIG SET, for nodes that start later
        self.leaving = b""  # the last line about that, for them, too
        self.done = asyncio.Event()
        self.exit_code = 0
        log.setLevel(LOG_LEVELS[self.config.text("loglevel")])
        self.check()

    def check(self) -> None:
        """What cannot be done n times over."""
        if not self.addresses:
            raise SettingsError("several cores share a TCP port, and bind is empty")
        if self.config.text("cluster-bus-unixsocket"):
            raise SettingsError("with several cores the bus chooses its own Unix sockets: leave cluster-bus-unixsocket")
        if self.config.number("port") + len(self.cores) > 65535:
            raise SettingsError("node i listens on port + i, beyond 65535 for the last of them: choose a lower port")
        if self.config.number("port") > 0:
            check_bus_port(self.config.number("cluster-bus-port"), self.config.number("port") + len(self.cores))
        if self.settings.secrets and not self.config.text("announce-ip") and any(map(is_any, self.addresses)):
            raise SettingsError(
                "nodes of other machines cannot tell where the nodes of this one are while it listens on all "
                "addresses: set announce-ip to the one they reach it by"
            )

    async def run(self) -> int:
        """Until all is over; the exit code."""
        loop = asyncio.get_running_loop()
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-"))
        try:
            self.make_secret()
            with contextlib.ExitStack() as held:
                self.port = self.reserve(held)
                for number in (signal.SIGTERM, signal.SIGINT):
                    loop.add_signal_handler(number, self.stop, signal.Signals(number).name)
                loop.add_signal_handler(signal.SIGHUP, self.pass_on_hangup)
                await asyncio.gather(*(self.keep(core) for core in self.cores))
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
        log.info("stopped")
        return self.exit_code

    def make_secret(self) -> None:
        """The nodes trust each other because we started them, also where nobody else can be told a secret."""
        if self.settings.secrets or self.config.text("tls-node-name"):
            return
        if not is_guarded(self.config):
            with contextlib.suppress(BadSecret):
                machine_secret()
                return  # then other nodes of this user can join them
        if self.config.text("join"):
            raise SettingsError(f"these nodes cannot meet others, and are to join some: {HOW}")
        make_for_cores(self.folder)

    # -- ports ---------------------------------------------------------------------------------------------

    def reserve(self, held: contextlib.ExitStack) -> int:
        """Hold the shared port for as long as we run, without listening; where the system may choose, choose."""
        wanted = self.config.number("port")
        for _ in range(CORE_PORTS_TRIES):
            with contextlib.ExitStack() as probes:
                try:
                    port = self.hold(probes, wanted, is_shared=False)  # refused if somebody else is there, also one
                    if wanted == 0:                                    # who would share it with us
                        self.hold_others(probes, port)
                except OSError as error:
                    if wanted != 0:
                        raise SettingsError(
                            f"cannot listen on {' '.join(self.addresses)} port {wanted}: {error.strerror or error}"
                        ) from None
                    continue
            self.hold(held, port, is_shared=True)
            return port
        raise SettingsError(f"no {len(self.cores) + 1} free ports in a row were found: say which with --port")

    def hold(self, held: contextlib.ExitStack, port: int, is_shared: bool) -> int:
        for address in self.addresses:
            host = address.strip("[]")
            sock = held.enter_context(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(is_shared))
            sock.bind((host, port))
            port = sock.getsockname()[1]
        return port

    def hold_others(self, held: contextlib.ExitStack, port: int) -> None:
        for core in self.cores:
            own = port + core.number
            self.hold(held, own, is_shared=False)
            if own + BUS_PORT_OFFSET <= 65535:
                self.hold(held, own + BUS_PORT_OFFSET, is_shared=False)

    # -- nodes ---------------------------------------------------------------------------------------------

    async def keep(self, core: Core) -> None:
        """Run one node until all are to end."""
        wait = CORE_AGAIN_S
        while not self.done.is_set():
            began = time.monotonic()
            code = await self.live(core)
            if self.done.is_set():
                if code not in (0, -signal.SIGINT):  # Ctrl-C reaches them too, perhaps before they can catch it
                    self.exit_code = self.exit_code or 1
                return
            if code == 0:
                self.stop(f"node {core.number} was told to")
                return
            if not core.was_ready:
                self.exit_code = 1
                self.stop(f"node {core.number} could not start")
                return
            self.tell_others(core, json.dumps({"do": "gone", "core": core.number}).encode() + b"\n")
            if time.monotonic() - began > CORE_AGAIN_S_MAX:
                wait = CORE_AGAIN_S
            log.error("node %d has ended %s; starting it again in %g s", core.number, how(code), wait)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.done.wait(), wait)
            wait = min(CORE_AGAIN_S_MAX, 2 * wait)

    async def live(self, core: Core) -> int:
        """One life of a node; its exit code."""
        ours, theirs = socket.socketpair()
        words = ["--control", str(theirs.fileno())] + (["--config", str(self.file)] if self.file is not None else [])
        for name, value in self.flags_of(core).items():
            words += ["--set", f"{name}={value}"]
        with theirs:
            core.process = process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "holdfast", "node", *words,
                stdin=asyncio.subprocess.DEVNULL, pass_fds=[theirs.fileno()],
            )
        reader, core.writer = await asyncio.open_unix_connection(sock=ours, limit=LINE_BYTES_MAX)
        if self.done.is_set():
            self.end(core)
        try:
            while line := await reader.readline():
                self.hear(core, line)
        except (OSError, ValueError) as error:
            log.error("the line to node %d is broken: %s", core.number, error)
            self.end(core)
        code = await process.wait()
        core.writer.close()
        core.is_ready = False
        return code

    def flags_of(self, core: Core) -> dict[str, str]:
        """What one node is told: the same as we were, but for what must differ."""
        number, text, i = self.config.number, self.config.text, core.number
        flags = dict(self.flags)
        joins = [UNIX + str(self.folder / str(other.number)) for other in self.cores if other is not core]
        flags |= {
            "cores": str(len(self.cores)), "core": str(i), "port": str(self.port),
            "cluster-bus-unixsocket": str(self.folder / str(i)), "join": " ".join([*text("join").split(), *joins]),
        }
        if self.settings.dir is not None:
            flags["dir"] = str(self.settings.dir / str(i))
        for name in ("cluster-bus-port", "announce-port", "announce-bus-port"):
            if number(name) > 0:
                flags[name] = str(number(name) + i)
        if text("unixsocket") and i > 1:
            flags["unixsocket"] = ""  # a path cannot be shared: the first has it
        if not text("announce-ip") and not is_any(self.addresses[0]) and not is_loopback(self.addresses[0]):
            flags["announce-ip"] = self.addresses[0]  # who is met over a Unix socket does not show its address
        return flags

    def hear(self, core: Core, line: bytes) -> None:
        message = json.loads(line)
        if message["do"] == "ready":
            self.is_ready(core)
            return
        if message["do"] == "set":
            self.changes.update(message["settings"])
        elif message["do"] == "leaving":
            self.leaving = line
        self.tell_others(core, line)

    def is_ready(self, core: Core) -> None:
        is_back = core.was_ready
        core.is_ready = core.was_ready = True
        if self.changes and core.writer is not None:
            core.writer.write(json.dumps({"do": "set", "settings": self.changes}).encode() + b"\n")
        if self.leaving and core.writer is not None:
            core.writer.write(self.leaving)
        if is_back:
            log.info("node %d is back", core.number)
        elif all(each.was_ready for each in self.cores):
            ports = f"{self.port + 1} to {self.port + len(self.cores)}"
            log.info("%d nodes behind one port, each also at its own: %s", len(self.cores), ports)
            log.info("ready on %s:%d, process %d", self.addresses[0], self.port, os.getpid())

    def tell_others(self, core: Core, line: bytes) -> None:
        for other in self.cores:
            if other is not core and other.is_ready and other.writer is not None:
                other.writer.write(line)

    # -- the end -------------------------------------------------------------------------------------------

    def stop(self, why: str) -> None:
        if self.done.is_set():
            return
        log.info("stopping all nodes: %s", why)
        self.done.set()
        for core in self.cores:
            self.end(core)
        asyncio.get_running_loop().call_later(CORE_STOP_S, self.kill)

    def end(self, core: Core) -> None:
        if core.process is not None and core.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                core.process.terminate()

    def kill(self) -> None:
        for core in self.cores:
            if core.process is not None and core.process.returncode is None:
                log.error("node %d does not stop; killing it", core.number)
                core.process.kill()

    def pass_on_hangup(self) -> None:
        for core in self.cores:
            if core.process is not None and core.process.returncode is None:
                core.process.send_signal(signal.SIGHUP)


def how(code: int) -> str:
    return f"with code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"


# -- a node's side --------------------------------------------------------------------------------------------


class Siblings:
    """The line of one node to those that share its port."""

    def __init__(self, server: Server, control: int) -> None:
        self.server = server
        self.control = control
        self.others: dict[int, dict[str, int]] = {}  # figures of the other nodes, a second old at most
        self.safe: set[int] = set()  # of these, who is leaving and could be stopped
        self.known = {name: server.config.text(name) for name in LIVE}
        self.is_hearing = False
        self.writer: asyncio.StreamWriter | None = None
        self.listening: asyncio.Task[None] | None = None

    async def open(self) -> None:
        # A copy of the descriptor: after DEBUG RESTART the next life of this node opens the line again.
        reader, self.writer = await asyncio.open_unix_connection(
            sock=socket.socket(fileno=os.dup(self.control)), limit=LINE_BYTES_MAX
        )
        self.listening = asyncio.create_task(self.listen(reader))
        self.tell("ready")

    def close(self) -> None:
        if self.listening is not None:
            self.listening.cancel()
        if self.writer is not None:
            self.writer.close()

    async def listen(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while line := await reader.readline():
                self.hear(json.loads(line))
        self.server.stop("the process that started this node has ended")

    # -- out -----------------------------------------------------------------------------------------------

    def tell(self, do: str, **more: Any) -> None:
        assert self.writer is not None
        line = json.dumps({"do": do, "core": self.server.core, **more}).encode() + b"\n"
        if len(line) > LINE_BYTES_MAX:
            log.error("a setting of %d bytes is too long to be told to the other nodes of this machine", len(line))
        else:
            self.writer.write(line)

    def tell_figures(self) -> None:
        assert self.writer is not None
        if self.writer.transport.get_write_buffer_size() == 0:  # else the starter stands still: these will be old
            node = self.server.node
            self.tell("figures", figures=self.figures(), safe=node.is_leaving and heal.is_safe_to_stop(node))

    def pass_on(self, request: effects.Request) -> None:
        """A client has asked this node for something that concerns all."""
        if self.is_hearing:
            return
        if request.kind == effects.APPLY_SETTINGS:
            config = self.server.config
            changed = {name: config.text(name) for name in LIVE if config.text(name) != self.known[name]}
            if changed:
                self.known.update(changed)
                self.tell("set", settings=changed)
            if request.argument == b"reset":
                self.tell("reset")
        elif request.kind == effects.SAVE_SETTINGS:
            self.tell("rewrite")
        elif request.kind == effects.LEAVING:
            self.safe.clear()
            self.tell("leaving", is_leaving=request.argument == b"yes")

    # -- in ------------------------------------------------------------------------------------------------

    def hear(self, message: dict[str, Any]) -> None:
        do = message["do"]
        if do == "figures":
            self.others[message["core"]] = message["figures"]
            (self.safe.add if message["safe"] else self.safe.discard)(message["core"])
        elif do == "gone":
            self.others.pop(message["core"], None)
            self.safe.discard(message["core"])
        elif do == "leaving":
            self.safe.clear()
            leave(self.server.node, message["is_leaving"])
            self.server.step()
        elif do == "set":
            self.take_over(message["settings"])
        elif do == "reset":
            self.is_hearing = True
            reset_stats(self.server.node)
            self.server.carry_out()
            self.is_hearing = False
        elif do == "rewrite":
            try:
                self.server.settings.save()
            except SettingsError as error:
                log.error("settings not saved: %s", error)

    def take_over(self, settings: dict[str, str]) -> None:
        config = self.server.config
        for name, value in settings.items():
            config.set(name, value)
            config.changed.add(name)
        self.known.update(settings)
        self.server.node.apply_settings()
        self.server.apply_settings()

    # -- figures -------------------------------------------------------------------------------------------

    def figures(self) -> dict[str, int]:
        """What can be summed up."""
        node, traffic = self.server.node, self.server.sockets.figures()
        return {
            "connected_clients": len(node.sessions),
            "blocked_clients": node.blocked,
            "registered_jobs": node.jobs,
            "expired_jobs": node.expired,
            "used_memory": node.used,
            "maxmemory": node.full,
            "total_connections_received": node.session_count,
            "total_commands_processed": self.server.commands_run(),
            "instantaneous_ops_per_sec": int(self.server.rates.now().get("instantaneous_ops_per_sec", 0)),
            "total_net_input_bytes": traffic["total_net_input_bytes"],
            "total_net_output_bytes": traffic["total_net_output_bytes"],
        }

    def are_safe(self) -> bool:
        return len(self.safe) == self.server.config.number("cores") - 1

    def totals(self) -> dict[str, str]:
        """For INFO: this node now, and the others as they last told."""
        mine = self.figures()
        sums = {f"cores_{name}": str(mine[name] + sum(each[name] for each in self.others.values())) for name in mine}
        return {"cores": self.server.config.text("cores"), "cores_running": str(1 + len(self.others)), **sums}


LIVE = [setting.name for setting in SETTINGS if setting.live]
