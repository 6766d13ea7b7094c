"""A node as a server: its sockets nested in an event loop, its alarms, signals, and what only a shell can do.

The event loop (uvloop where there is one) sees a single file descriptor, that of the epoll set which holds
all clients: whenever something is ready there, one call of Sockets.step() serves every client that is ready
as one batch. Other nodes are in the same set. Everything that is rare (signals, the sweep once a second, the
handshakes of nodes, later TLS) is ordinary asyncio beside it.
"""
from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import platform
import resource
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from holdfast import form
from holdfast.core import effects, membership, past
from holdfast.core.config import SETTINGS
from holdfast.core.direct import Direct
from holdfast.core.limits import NEVER
from holdfast.core.node import Node
from holdfast.core.peers import Peer, PeerFacts
from holdfast.core.session import Session
from holdfast.core.version import VERSION
from holdfast.shell import clock
from holdfast.shell.bus import Bus, check_bus_port
from holdfast.shell.bus_door import BusDoor
from holdfast.shell.cores import Siblings
from holdfast.shell.figures import CollectorPauses, Rates, calm_collector, disk_facts, resident_bytes
from holdfast.shell.guard import Guard
from holdfast.shell.keeping import Keeping
from holdfast.shell.listening import bind, bind_unix, is_loopback, is_there
from holdfast.shell.metrics import Metrics, read_token
from holdfast.shell.seal import Seals
from holdfast.shell.settings import LOG_LEVELS, Settings, SettingsError
from holdfast.shell.strangers import ADMIN_SLOTS

log = logging.getLogger("holdfast")

SWEEP_S = 1.0
GRACE_S = 3.0
"""At the end of a node: how long clients have to read the replies they are owed."""
COLLECT_ALL_JOBS_MAX = 100_000
"""With fewer jobs than this a full collection is short enough to be done once a minute."""

COLLECT_ALL_S = 60

DESCRIPTORS_SPARE = 32 + ADMIN_SLOTS
"""File descriptors for everything but clients, and for admins where clients are too many."""


class Server:
    """Runs one node. `ready` is set when clients can connect, `done` when it should stop.

    One of several behind one port has a `control`: the line to the process that started them all (cores.py).
    """

    def __init__(self, settings: Settings, control: int = -1) -> None:
        self.settings = settings
        self.config = settings.config
        offset = clock.offset_ms()
        node_id = settings.node_id()
        self.node = Node(self.config, node_id, os.urandom, clock.wall_ms(), self, settings.incarnation())
        self.sockets = make_sockets(self.node, offset)
        self.sockets.on_requests = self.carry_out
        self.keeping = Keeping(settings, self.node)
        self.keeping.on_switch = self.use_journal
        self.keeping.telling.turn = lambda: self.note_wake(self.sockets.turn())
        self.guard = Guard(self)
        self.ready = asyncio.Event()
        self.done = asyncio.Event()
        self.restart = False
        self.exit_code = 0
        self.alarm: asyncio.TimerHandle | None = None
        self.alarm_ms = NEVER
        self.is_shut = False
        self.metrics: Metrics | None = None
        self.offset_ms = offset
        self.loop: asyncio.AbstractEventLoop | None = None
        self.unix_path: Path | None = None
        self.rates = Rates()
        self.pauses = CollectorPauses()
        self.fault_count = 0
        self.core = self.config.number("core")  # 0: alone at its port
        self.port = self.config.number("port") + self.core
        self.siblings: Siblings | None = None
        self.control = control
        self.bus: Bus | None = None
        self.is_port_given = self.port != 0
        self.saved_nodes = ""
        self.door = BusDoor(self)
        self.make_room_for_clients()
        self.apply_settings()

    # -- running -------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Serve until told to stop; the process's exit code."""
        self.loop = asyncio.get_running_loop()
        self.listen()
        self.metrics = self.open_metrics()
        await self.guard.open()
        self.loop.add_reader(self.sockets.fileno(), self.step)
        for number in (signal.SIGTERM, signal.SIGINT):
            self.loop.add_signal_handler(number, self.stop, signal.Signals(number).name)
        self.loop.add_signal_handler(signal.SIGHUP, self.reload)
        calm_collector()
        self.remember_nodes()
        self.door.decide()
        self.door.check_names()
        await self.load()
        self.bus = self.door.open()
        if self.metrics is not None:
            self.metrics.tick()
        if self.control >= 0:
            self.siblings = Siblings(self, self.control)
            await self.siblings.open()
        sweeping = asyncio.create_task(self.sweep())
        self.step()
        self.ready.set()
        try:
            await self.done.wait()
            await self.send_what_is_owed()
        finally:
            sweeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sweeping
            if self.bus is not None:
                await self.bus.close()
            await self.guard.close()
            if self.siblings is not None:
                self.siblings.close()
            self.save_nodes()
            self.loop.remove_reader(self.sockets.fileno())
            self.is_shut = True
            self.sockets.shut()
            await self.keeping.close()
            if self.unix_path is not None:
                self.unix_path.unlink(missing_ok=True)
            self.pauses.stop()
            if self.metrics is not None:
                self.metrics.close()
        log.info("stopped")
        return self.exit_code

    def open_metrics(self) -> Metrics | None:
        """Before the journal is read: whoever asks for our health meanwhile is told that we are at it."""
        port = self.config.number("metrics-port")
        if port == 0:
            return None
        metrics = Metrics(self, self.config.text("metrics-bind"), port + self.core, read_token(self.config))
        log.info("metrics on port %d", metrics.port)
        return metrics

    async def load(self) -> None:
        """Come back with what the journal has; from then on nothing leaves before it is in the journal."""
        await self.keeping.load()
        self.use_journal()
        calm_collector()

    def use_journal(self) -> None:
        self.sockets.commit = self.keeping.commit()

    async def send_what_is_owed(self) -> None:
        """Before the end: replies that are ready get a moment to be read. No further command is run."""
        for session in list(self.node.sessions.values()):
            self.sockets.close_session(session, False)
        deadline = time.monotonic() + GRACE_S
        while self.node.sessions and time.monotonic() < deadline:
            await asyncio.sleep(0.01)

    def step(self) -> None:
        """One turn of the clients, and the alarm for the next thing that is due without them."""
        if self.node.watch.latency_ms > 0:
            began = time.perf_counter_ns()
            wake = self.sockets.step()
            self.node.watch.event(b"loop", (time.perf_counter_ns() - began) // 1000, clock.wall_ms())
        else:
            wake = self.sockets.step()
        self.note_wake(wake)
        if self.node.faults:
            self.log_faults()
        if self.node.notices:
            self.log_notices()

    def note_wake(self, wake: int) -> None:
        if wake != self.alarm_ms:
            self.set_alarm(wake)

    def set_alarm(self, wake_ms: int) -> None:
        if self.alarm is not None:
            self.alarm.cancel()
            self.alarm = None
        self.alarm_ms = wake_ms
        if wake_ms < NEVER:
            assert self.loop is not None
            now_ms = time.monotonic_ns() / 1e6 + self.offset_ms
            # A millisecond's grain: never early, or the turn would find nothing due and ask again.
            self.alarm = self.loop.call_later(max(0.0, wake_ms - now_ms + 0.5) / 1000, self.on_alarm)

    def on_alarm(self) -> None:
        self.alarm = None
        self.alarm_ms = NEVER
        if not self.is_shut:  # what falls due while the journal is closed finds no sockets any more
            self.step()

    async def sweep(self) -> None:
        """Once a second what needs no better time: impatience with clients, rates, the collector."""
        seconds = 0
        while True:
            await asyncio.sleep(SWEEP_S)
            seconds += 1
            self.sockets.sweep()
            past.sample(self.node)
            self.keeping.tick()
            if self.keeping.has_failed() and self.bus is not None:
                await self.give_up_place()
            self.save_nodes()
            if self.metrics is not None:
                self.metrics.tick()
            self.rates.sample(self.sockets.figures(), self.commands_run())
            if self.siblings is not None:
                self.siblings.tell_figures()
            if seconds % COLLECT_ALL_S == 0 and self.node.jobs < COLLECT_ALL_JOBS_MAX:
                gc.collect()

    async def give_up_place(self) -> None:
        """The disk has failed: the other nodes are to see that, and to do what can be done without this one."""
        bus, self.bus = self.bus, None
        assert bus is not None
        await bus.close()
        self.sockets.links.drop_all("its disk has failed")
        log.critical("this node has left its cluster: its disk has failed, and others now hand out what they have "
                     "copies of. Look at the disk (dmesg, smartctl). If it is well again, start the node with the "
                     "same folder; if not, with an empty folder on another disk, and it gets its copies back")

    def stop(self, why: str) -> None:
        log.info("stopping: %s", why)
        self.done.set()

    def reload(self) -> None:
        """SIGHUP: read the file again and take over what may change while the node runs."""
        try:
            fresh = Settings(self.settings.said, self.settings.file, environ={})
        except SettingsError as error:
            log.error("settings not reloaded: %s", error)
            self.door.fail(str(error))
            return
        changed = []
        for setting in SETTINGS:
            value = fresh.config.text(setting.name)
            if setting.name == "port" and value == "0":
                continue  # the system's choice stands
            if value != self.config.text(setting.name) and setting.name not in self.config.changed:
                if setting.live:
                    self.config.set(setting.name, value)
                    changed.append(setting.name)
                else:
                    log.warning("the setting %s has changed in the file; it takes a restart", setting.name)
        self.node.apply_settings()
        self.apply_settings()
        self.guard.reload()
        try:
            self.door.trouble = ""
            self.guard.reload_certificate(fresh.config)
            self.door.reload(fresh)
        except SettingsError as error:
            self.door.fail(str(error))
        log.info("settings reloaded: %s", ", ".join(changed) or "no setting has changed")

    def make_room_for_clients(self) -> None:
        """Each client takes a file descriptor: ask the system for as many, or be content with fewer clients."""
        wanted = self.config.number("maxclients") + DESCRIPTORS_SPARE
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == resource.RLIM_INFINITY or soft >= wanted:
            return
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        have = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if have < wanted:
            fewer = max(1, have - DESCRIPTORS_SPARE)
            log.warning("the system allows %d open files: maxclients is %d in place of %s",
                        have, fewer, self.config.text("maxclients"))
            self.config.set("maxclients", str(fewer))

    # -- listening -----------------------------------------------------------------------------------------

    def listen(self) -> None:
        addresses = self.config.text("bind").split()
        self.protect(addresses)
        backlog = self.config.number("tcp-backlog")
        for address in addresses:
            sock = bind(address, self.port, backlog)
            self.port = sock.getsockname()[1]
            self.sockets.listen(sock)
            if self.core > 0:
                self.sockets.listen(bind(address, self.config.number("port"), backlog, is_shared=True))
        if self.core == 0:
            if self.is_port_given:
                check_bus_port(self.config.number("cluster-bus-port"), self.port)
            self.config.set("port", str(self.port))  # what it came to, where the system chose
        path = self.config.text("unixsocket")
        if not addresses and not path:
            raise SettingsError("nowhere to listen: bind is empty and there is no unixsocket")
        if path:
            self.unix_path = Path(path)
            self.sockets.listen(bind_unix(self.unix_path, self.config.text("unixsocketperm"), backlog))

    def where(self) -> str:
        """The first address clients can connect to."""
        addresses = self.config.text("bind").split()
        return f"{addresses[0]}:{self.port}" if addresses else f"the Unix socket {self.config.text('unixsocket')}"

    def protect(self, addresses: list[str]) -> None:
        """A node that asks for no password is not for strangers."""
        if self.guard.is_strict() or not self.config.is_on("protected-mode"):
            return
        for address in addresses:
            if not is_there(address):
                raise SettingsError(f"cannot listen on {address}: there is no such address")
            if not is_loopback(address):
                raise SettingsError(
                    f"refusing to listen on {address} without users or a password. Set users-file or "
                    "requirepass, or listen on 127.0.0.1, or say --insecure (protected-mode no) if the network is "
                    "yours alone"
                )

    # -- other nodes ---------------------------------------------------------------------------------------

    def remember_nodes(self) -> None:
        """Nodes that were members when this one last ran still are, whatever has become of the journal."""
        for node_id, host, port, bus_port in self.settings.known_nodes():
            if node_id not in self.node.by_id:
                peer = self.node.add_peer(PeerFacts(node_id, 0, host, port, bus_port))
                if peer is not None:
                    peer.is_member = True

    def adopt(self, sock: socket.socket, facts: PeerFacts, seals: Seals) -> Peer | None:
        peer: Peer | None = self.sockets.adopt(sock, facts, seals)
        self.step()
        self.save_nodes()
        return peer

    def refused_at(self, address: bytes) -> None:
        membership.refused(self.node, address)
        self.step()

    def save_nodes(self) -> None:
        """Keep the list of known nodes for the next start, if it has changed."""
        self.node.is_membership_changed = False
        known = [peer.facts for peer in self.node.peers[1:] if peer.is_member and peer.facts.host]
        lines = [f"{facts.node_id.decode()} {facts.host} {facts.port} {facts.bus_port}\n" for facts in known]
        text = "".join(sorted(lines))
        if text == self.saved_nodes:
            return
        try:
            self.settings.save_nodes(text)
            self.saved_nodes = text
        except SettingsError as error:
            log.error("the list of nodes is not saved: %s", error)

    # -- what the node asks for ----------------------------------------------------------------------------

    def carry_out(self) -> None:
        requests = self.node.requests[:]
        self.node.requests.clear()
        for request in requests:
            self.carry_out_one(request)
            if self.siblings is not None:
                self.siblings.pass_on(request)

    def carry_out_one(self, request: effects.Request) -> None:
        session = request.session
        if request.kind == effects.CLOSE and session is not None:
            self.sockets.close_session(session, False)
        elif request.kind == effects.KILL and session is not None:
            self.sockets.close_session(session, True)
        elif request.kind == effects.VERIFY and session is not None:
            self.guard.verify(session, request.argument)
        elif request.kind == effects.DIAL and self.bus is not None:
            members = [peer.node_id() for peer in self.node.peers if peer.is_member or peer is request.peer]
            self.bus.dial(request.argument, frozenset(members))
        elif request.kind == effects.MEET and self.bus is not None:
            self.bus.meet(request.argument)
        elif request.kind == effects.UNREACHED and self.bus is not None:
            self.bus.give_up(request.argument)
            log.warning("nobody was met at %s: given up", request.argument.decode("ascii", "replace"))
        elif request.kind == effects.NEW_ID and self.bus is not None:
            self.take_new_id(request.argument)
        elif request.kind == effects.DROP_LINK and request.peer is not None:
            self.sockets.links.drop(request.peer, "the node has given it up")
        elif request.kind == effects.SAVE_NODES:
            self.saved_nodes = "?"
            self.save_nodes()
        elif request.kind == effects.APPLY_SETTINGS:
            self.apply_settings()
            self.keeping.switch()
            self.use_journal()
        elif request.kind == effects.SAVE_SETTINGS and session is not None:
            try:
                self.settings.save()
                self.node.answer(session, b"+OK\r\n")
            except SettingsError as error:
                self.node.answer(session, f"-ERR {error}\r\n".encode())
        elif request.kind == effects.SHUTDOWN:
            self.keeping.is_saved_at_end = request.argument != b"NOSAVE"
            if request.argument == b"REWRITE-AOF":
                self.keeping.save_for_restart()
            self.stop("SHUTDOWN")
        elif request.kind == effects.REWRITE and session is not None:
            self.keeping.rewrite(session)
        elif request.kind == effects.HISTORY:
            self.keeping.telling.carry_out(request)
        elif request.kind == effects.RESTART:
            self.restart = True
            self.keeping.is_saved_at_end = request.argument != b"NOSAVE"
            self.stop("DEBUG RESTART")
        elif request.kind == effects.SLEEP and session is not None:
            time.sleep(int(request.argument) / 1000)
            words = [b"DEBUG", b"SLEEP", request.argument]
            self.node.watch.took(int(request.argument) * 1000, words, clock.wall_ms())
            self.node.answer(session, b"+OK\r\n")
        elif request.kind == effects.CRASH:
            log.critical("crashing, as DEBUG %s asks", request.argument.decode())
            os.kill(os.getpid(), signal.SIGABRT if request.argument == b"ASSERT" else signal.SIGSEGV)

    def take_new_id(self, node_id: bytes) -> None:
        assert self.bus is not None
        self.bus.rename(node_id)
        try:
            self.settings.save_node_id(node_id)
            self.keeping.rename(node_id)
        except SettingsError as error:
            log.error("the new id of this node is not saved: %s", error)

    def apply_settings(self) -> None:
        number = self.config.number
        _, hard, soft, seconds = self.config.text("client-output-buffer-limit").split()
        self.sockets.configure(
            number("maxclients"), number("tcp-keepalive"), number("timeout") * 1000, number("command-timeout-ms"),
            number("max-body-bytes"), number("max-command-bytes"), int(hard), int(soft), int(seconds) * 1000,
        )
        self.sockets.links.configure(number("cluster-send-buffer"))
        self.guard.apply_settings()
        self.keeping.apply_settings()
        self.door.note_guard()
        log.setLevel(LOG_LEVELS[self.config.text("loglevel")])

    def log_notices(self) -> None:
        for node_id, words in self.node.notices:
            if self.bus is not None:
                self.bus.complaints.say(f"node {node_id[:8].decode()}", words)
        self.node.notices.clear()

    def log_faults(self) -> None:
        for fault in self.node.faults:
            self.fault_count += 1
            log.error("a fault in the machine: %s", " | ".join(fault.splitlines()))
        self.node.faults.clear()

    # -- the node's meter ----------------------------------------------------------------------------------

    def process(self) -> dict[str, str]:
        times = os.times()
        facts = {
            "form": form.name(),
            "build": f"{form.name()}/{self.sockets.__class__.__module__.rsplit('.', 1)[-1]}",
            "os": f"{platform.system()} {platform.release()} {platform.machine()}",
            "multiplexing_api": "epoll",
            "python_version": platform.python_version(),
            "process_id": str(os.getpid()),
            "executable": sys.executable,
            "config_file": str(self.settings.file or ""),
            "used_memory_rss": str(resident_bytes()),
            "used_cpu_sys": f"{times.system:.2f}",
            "used_cpu_user": f"{times.user:.2f}",
            "used_cpu_sys_children": f"{times.children_system:.2f}",
            "used_cpu_user_children": f"{times.children_user:.2f}",
            "gc_longest_pause_usec": str(self.pauses.longest_ns // 1000),
            "faults": str(self.fault_count),
            "bus_handshakes_refused": str(self.bus.refusals if self.bus is not None else 0),
            "credentials_reload_failed": str(int(bool(self.door.trouble))),
            **self.rates.now(),
            **self.keeping.facts(),
            **disk_facts(self.settings.dir),
        }
        facts.update({name: str(value) for name, value in self.sockets.figures().items()})
        if self.siblings is not None:
            facts.update(self.siblings.totals())
        return facts

    def direct(self) -> list[tuple[bytes, int, int]]:
        rows: list[tuple[bytes, int, int]] = self.sockets.direct()
        return rows

    def reset(self) -> None:
        self.sockets.reset()

    def connection(self, session: Session) -> dict[str, int]:
        facts: dict[str, int] = self.sockets.describe(session)
        return facts

    def why_alone(self) -> str:
        return self.door.why_alone

    def are_siblings_safe(self) -> bool:
        return self.siblings is None or self.siblings.are_safe()

    def commands_run(self) -> int:
        listed = sum(entry.calls for entry in self.node.entries.values())
        return listed + sum(row[1] for row in self.direct())


def make_sockets(node: Node, offset_ms: int) -> Any:
    """The compiled sockets, or their plain twin where those are not to be had."""
    handlers = Direct(node).handlers()
    if not form.PURE:
        with contextlib.suppress(ImportError, AttributeError):  # AttributeError: found by its source, with Cython there
            from holdfast.shell import native

            if not str(native.__file__).endswith(".py"):
                return native.Sockets(node, handlers, offset_ms)
    from holdfast.shell import plain

    return plain.Sockets(node, handlers, offset_ms)


def banner(server: Server) -> str:
    where = "compiled" if form.is_compiled() else "pure Python (slower: see docs)"
    return f"holdfast {VERSION}, {where}, node {server.node.node_id[:8].decode()}"
