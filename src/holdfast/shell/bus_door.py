"""Where other nodes come in: whether there is a bus, where it listens, and what it goes by. A part of the server.

Without a secret or a certificate a guarded node has no bus (credentials.py). One that has others to meet does not start
then: alone it would take jobs with fewer copies than its producers believe. Any other starts, says so in its log, and
answers CLUSTER MEET with what to set.

Secrets and certificates are read again on SIGHUP. When they cannot be read, no new links are made until they can: the
secret that is in use may be the one that somebody wanted to take back.
"""
from __future__ import annotations

import logging
import secrets
import socket
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.core import membership, peers
from holdfast.core.limits import NEVER
from holdfast.core.peers import PeerFacts
from holdfast.shell import credentials
from holdfast.shell.bus import BUS_PORT_OFFSET, Bus, Place, read_join
from holdfast.shell.credentials import Credentials, NoBus
from holdfast.shell.handshake import CERTIFICATE, MACHINE, WORD, Hello
from holdfast.shell.listening import bind, bind_unix, host_id, is_loopback, only_address
from holdfast.shell.settings import Settings, SettingsError

if TYPE_CHECKING:
    from holdfast.shell.server import Server

log = logging.getLogger("holdfast")

REACH = {MACHINE: ", for nodes of this user on this machine only", CERTIFICATE: ", for nodes by their certificates"}


class BusDoor:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.config = server.config
        self.port = 0
        self.joins = {text: place_to_join(text) for text in self.config.text("join").split()}
        self.credentials: Credentials | None = None
        self.why_alone = ""
        self.is_warned = False
        self.trouble = ""  # why secrets and certificates could not be read again

    def decide(self) -> None:
        """Whether there is to be a bus. Raises SettingsError if there is to be none, and nodes to meet."""
        try:
            self.credentials = credentials.read(self.server.settings)
        except NoBus as why:
            self.why_alone = str(why)
            if self.joins or len(self.server.node.peers) > 1:
                what = "it is to join others" if self.joins else "it was in a cluster when it last ran"
                raise SettingsError(f"this node cannot meet other nodes, and {what}: {why}") from None

    def open(self) -> Bus | None:
        """The door for other nodes, and the calls to those we know of."""
        if self.credentials is None:
            log.info("no bus: no other node can join this one: %s", self.why_alone)
            return None
        server = self.server
        addresses = self.config.text("bind").split()
        if self.credentials.goes_by == MACHINE:
            addresses = [address for address in addresses if is_loopback(address)]
        addresses = addresses or ["127.0.0.1"]
        listeners = self.bind(addresses)
        path = self.config.text("cluster-bus-unixsocket")
        if path:
            listeners.append(bind_unix(Path(path), "700", self.config.number("tcp-backlog")))
        me = self.hello(path, addresses, self.credentials.goes_by)
        server.node.peers[0].facts = PeerFacts(
            me.node_id, me.incarnation, self.config.text("announce-ip"), me.port, me.bus_port, me.host_id, me.zone
        )
        bus = Bus(
            me, self.credentials, server.adopt, server.sockets.links.drop, partial(membership.met, server.node),
            server.refused_at,
        )
        server.sockets.links.on_lost = bus.lost
        bus.is_heard = partial(peers.is_heard, server.node)
        bus.is_stalled = partial(membership.is_stalled, server.node)
        for listener in listeners:
            bus.listen(listener)
        for text, place in self.joins.items():
            membership.invite(server.node, str(place).encode(), text.partition("@")[0], NEVER)
        if len(server.node.peers) > 1:
            server.node.alarms.at_latest(server.node.beat, server.node.now)
        log.info("bus on %s:%d%s", addresses[0], self.port, REACH.get(me.goes_by, ""))
        return bus

    def bind(self, addresses: list[str]) -> list[socket.socket]:
        """Where others look for it: port + 10000, unless it was said otherwise, or the system chose a higher port."""
        backlog = self.config.number("tcp-backlog")
        port = self.config.number("cluster-bus-port")
        usual = self.server.port + BUS_PORT_OFFSET
        listeners = []
        if port == 0 and usual <= 65535:
            try:
                listeners.append(bind(addresses[0], usual, backlog))
            except SettingsError as error:
                if self.server.is_port_given:
                    raise SettingsError(f"{error}. Other nodes are met there: see cluster-bus-port") from None
        if not listeners:
            listeners.append(bind(addresses[0], port, backlog))
        self.port = listeners[0].getsockname()[1]
        listeners += [bind(address, self.port, backlog) for address in addresses[1:]]
        return listeners

    def hello(self, path: str, addresses: list[str], goes_by: str) -> Hello:
        """How this node introduces itself to others: at the one address its bus is on, not the one it calls from."""
        text, number = self.config.text, self.config.number
        node = self.server.node
        return Hello(
            node_id=node.node_id, incarnation=node.incarnation, run=secrets.randbits(64),
            port=number("announce-port") or self.server.port, bus_port=number("announce-bus-port") or self.port,
            host=text("announce-ip") or only_address(addresses), path=path,
            host_id=(text("host-id") or host_id()).encode(), zone=text("zone").encode(), goes_by=goes_by,
        )

    def note_guard(self) -> None:
        """A password may be set while the node runs. Then the bus stays as it is, and the next start has none."""
        bus = self.server.bus
        is_open = bus is not None and bus.me.goes_by == MACHINE and self.config.number("core") == 0
        if is_open and credentials.is_guarded(self.config) and not self.is_warned:
            self.is_warned = True
            log.warning("clients are asked for a password from now on, and other processes of this user can still join "
                        "as nodes. This node will not start again as a member: %s", credentials.HOW)

    def check_names(self) -> None:
        for name in ("announce-ip", "host-id", "zone"):
            if WORD.fullmatch(self.config.text(name).encode()) is None or len(self.config.text(name)) > 255:
                raise SettingsError(f"{name}: letters, digits and . _ : % + - only, and no more than 255 of them")

    def reload(self, fresh: Settings) -> None:
        """Secrets and certificates as they are now. Raises SettingsError, after which there are no new links."""
        bus = self.server.bus
        if bus is None:
            if self.why_alone and fresh.secrets:
                log.warning("there is a cluster-secret now; a bus takes a restart")
            return
        try:
            read = credentials.read(fresh)
        except (NoBus, SettingsError) as error:
            raise SettingsError(str(error)) from None
        if read.goes_by != bus.me.goes_by or (read.to_nodes is None) != (bus.credentials.to_nodes is None):
            raise SettingsError("whether there is a cluster-secret, and tls-cluster, take a restart")
        is_other = read.keys != bus.credentials.keys
        bus.use(read)
        if is_other:
            log.info("the cluster's secret has changed: %d valid", len(read.keys))

    def fail(self, why: str) -> None:
        """They could not be read: stay closed to new links until they can."""
        self.trouble = why
        if self.server.bus is not None:
            self.server.bus.refuse_all(why)
            log.error("no new links with other nodes until secrets and certificates can be read: %s", why)


def place_to_join(text: str) -> Place:
    place = read_join(text)
    if place is None:
        raise SettingsError(f"join: '{text}' is not host:port, host:port@busport, [address]:port or unix:/path")
    return place
