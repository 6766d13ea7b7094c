"""Links with other nodes: the door they come in by, and calling them. Who is there, not what is said.

A connection, dialed or accepted, goes through the handshake (handshake.py) in asyncio, within five seconds.
Then its socket is given to Sockets.adopt and is one more descriptor in the set that also holds the clients;
from there on nothing of it passes through here, until it is lost.

**One link per pair.** Both nodes may dial at the same moment, and either may believe in a link that the other
has lost. So of each pair the node with the smaller id decides, connection by connection, and says so as the
last word of the handshake: 0, or the number of this link, counted up over its life. The other side takes what
it is told, and where two connections were granted, the one with the higher number. The decider refuses a
connection that is not needed:

    both sides have the same link already (each says in its answer which one it has; not one that has said nothing for
    so long that its node wants another: a cut has held it up, and TCP tries again when it pleases)
    it has a link that is so young that the other side may just not know of it yet
    it has dialed that node itself, and that handshake is on its way

and otherwise grants it, ending the link it had: a node that dials us has lost its end of that one, or it is
another process under the same id. But if that is at another address while the one we are linked with can be heard,
somebody has started a copy of its folder: the link stays, the copy is refused, and the log says so.

**What is shown** and asked for is in credentials.py, and may change while the node runs. A link that was made under a
secret that is not valid any more ends, and so does every handshake on its way. With the secret of this machine alone
only nodes of this machine are talked to: the door is on loopback, and nobody elsewhere is dialed.
"""
from __future__ import annotations

import asyncio
import logging
import re
import secrets
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

from holdfast.core.peers import Peer, PeerFacts
from holdfast.shell import handshake, tls
from holdfast.shell.bounds import (
    ACCEPTS_PER_ROUND,
    COMPLAINTS,
    CONNECT_S,
    DIALS_MAX,
    HANDSHAKE_S,
    HANDSHAKES_MAX,
    HANDSHAKES_PER_ADDRESS,
    NEWS,
    RESOLVE_S,
    SETTLE_S,
)
from holdfast.shell.credentials import Credentials, hash_of
from holdfast.shell.few_lines import FewLines
from holdfast.shell.handshake import (
    ANSWER,
    CERTIFICATE,
    DIALER,
    HEAD,
    LISTENER,
    MACHINE,
    VERDICT,
    Agreement,
    Hello,
    Unwelcome,
)
from holdfast.shell.listening import address_text
from holdfast.shell.plain import set_options
from holdfast.shell.seal import FORGED, Seals
from holdfast.shell.settings import SettingsError
from holdfast.wire.bus import VERSION

log = logging.getLogger("holdfast")

UNIX = "unix:"
BUS_PORT_OFFSET = 10_000
ADDRESSES_PER_NAME = 4
ACCEPT_AGAIN_S = 0.1
KEEPALIVE_S = 60
# Where a node can be: host:port, [address]:port, or address:port with the last colon before the port.
PLACE = re.compile(r"(?:\[(?P<bracketed>[^\[\]]+)\]|(?P<host>[A-Za-z0-9._:%-]+)):(?P<port>[0-9]{1,5})")


class Place:
    """Where a node's bus is."""

    def __init__(self, host: str, port: int, path: str = "") -> None:
        self.host = host
        self.port = port
        self.path = path

    def __str__(self) -> str:
        if self.path:
            return UNIX + self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_place(text: str) -> Place | None:
    """host:port of a bus, or unix:/path (with or without a :port that means nothing). None: it is neither."""
    if text.startswith(UNIX):
        path = re.sub(r":[0-9]*$", "", text[len(UNIX):])
        return Place("", 0, path) if path else None
    match = PLACE.fullmatch(text)
    if match is None or not 0 < int(match["port"]) < 65536:
        return None
    return Place(match["bracketed"] or match["host"], int(match["port"]))


def read_join(text: str) -> Place | None:
    """What --join takes: host:port of a node's clients, host:port@busport, or unix:/path of its bus."""
    if text.startswith(UNIX):
        return read_place(text)
    text, _, bus_port = text.partition("@")
    place = read_place(text)
    if place is None:
        return None
    number = bus_port if bus_port else str(place.port + BUS_PORT_OFFSET)
    if not number.isascii() or not number.isdigit() or len(number) > 5 or not 0 < int(number) < 65536:
        return None
    return Place(place.host, int(number))


def check_bus_port(given: int, port: int) -> None:
    """Other nodes look for a bus that nobody said anything about at port + 10000: there must be such a port."""
    if given == 0 and port + BUS_PORT_OFFSET > 65535:
        raise SettingsError(
            f"port {port}: other nodes would be met at port + {BUS_PORT_OFFSET}, which is beyond 65535: choose a lower "
            "port, or set cluster-bus-port"
        )


class Linked:
    """The link with one node."""

    def __init__(self, run: int, number: int, key: bytes) -> None:
        self.run = run  # which process of that node it leads to
        self.number = number
        self.key = key  # of the secret that both sides proved
        self.since = time.monotonic()
        self.peer: Peer | None = None


class Bus:
    def __init__(
        self, me: Hello, credentials: Credentials,
        adopt: Callable[[socket.socket, PeerFacts, Seals], Peer | None],
        drop: Callable[[Peer, str], None], met: Callable[[bytes], None], refused: Callable[[bytes], None],
    ) -> None:
        self.me = me
        self.credentials = credentials
        self.shut = ""  # why there are no new links for now
        self.refusals = 0  # handshakes that came to nothing, by the other side's fault
        self.adopt = adopt
        self.drop = drop
        self.met = met
        self.refused_at = refused  # nobody listens there
        self.links: dict[bytes, Linked] = {}
        self.number = 0  # of the last link granted
        self.calling: Counter[bytes] = Counter()  # nodes we have dialed and know by now, but have no verdict on
        self.dialing: set[str] = set()
        self.is_heard: Callable[[Peer], bool] = lambda peer: False  # whether a link lives, as far as the node can tell
        self.is_stalled: Callable[[Peer], bool] = lambda peer: False  # whether a link should be replaced by a new one
        self.refused: dict[str, bytes | int] = {}  # what the log knows: who is at a member's address, or has its id
        self.unmet: set[str] = set()  # where we were to meet somebody, and the log says that nobody was there yet
        self.handshakes: Counter[str] = Counter()  # that strangers have begun, by address
        self.paths: dict[tuple[str, int], str] = {}  # of nodes on this host: their Unix socket by their address
        self.listeners: list[socket.socket] = []
        self.tasks: set[asyncio.Task[Any]] = set()
        self.complaints = FewLines("bus", logging.WARNING, COMPLAINTS)
        self.news = FewLines("bus", logging.INFO, NEWS)

    # -- tasks ---------------------------------------------------------------------------------------------

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.ended)

    def ended(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a fault in the bus", exc_info=task.exception())

    async def close(self) -> None:
        tasks = list(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for listener in self.listeners:
            asyncio.get_running_loop().remove_reader(listener.fileno())
            listener.close()
        self.listeners.clear()

    # -- what is shown and asked for -----------------------------------------------------------------------

    def use(self, credentials: Credentials) -> None:
        """Secrets and certificates as they are now. Links under a secret that is not valid any more end."""
        self.shut = ""
        self.credentials = credentials
        self.me = replace(self.me, goes_by=credentials.goes_by)
        for mark in list(self.links.values()):
            if mark.peer is not None and mark.key not in credentials.keys:
                self.drop(mark.peer, "the secret it was made under is not valid any more")

    def refuse_all(self, why: str) -> None:
        """They cannot be read: nobody new is talked to until they can. The links that are there stay."""
        self.shut = why

    # -- the door ------------------------------------------------------------------------------------------

    def listen(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self.listeners.append(listener)
        self.watch(listener)

    def watch(self, listener: socket.socket) -> None:
        if listener in self.listeners:
            asyncio.get_running_loop().add_reader(listener.fileno(), self.accept, listener)

    def accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_ROUND):
            try:
                sock, address = listener.accept()
            except (BlockingIOError, ConnectionError):
                return
            except OSError as error:  # no descriptor free: look away for a moment, or we would be called without end
                self.complaints.say("the bus", f"cannot accept: {error.strerror}")
                loop = asyncio.get_running_loop()
                loop.remove_reader(listener.fileno())
                loop.call_later(ACCEPT_AGAIN_S, self.watch, listener)
                return
            host = address[0] if isinstance(address, tuple) else UNIX
            if self.shut:
                sock.close()
                continue
            if self.handshakes[host] >= HANDSHAKES_PER_ADDRESS or self.handshakes.total() >= HANDSHAKES_MAX:
                self.complaints.say(host, "too many unfinished handshakes")
                sock.close()
                continue
            sock.setblocking(False)
            self.handshakes[host] += 1
            self.start(self.receive(sock, host, address_text(sock, address)))

    async def receive(self, sock: socket.socket, host: str, where: str) -> None:
        try:
            conversation = Conversation(sock, self.credentials, seen_at(sock))
            await conversation.cover(conversation.credentials.from_nodes, is_server=True)
            await self.greet(conversation, where, is_dialer=False)
        except (OSError, TimeoutError) as error:
            self.complain(where, f"no TLS with it: {error}")
        finally:
            self.handshakes[host] -= 1
            if self.handshakes[host] == 0:
                del self.handshakes[host]

    # -- calling -------------------------------------------------------------------------------------------

    def dial(self, address: bytes, expected: frozenset[bytes] = frozenset()) -> None:
        """What the node asks for: a link with one of these at that address. It asks again if none comes about."""
        place = read_place(address.decode("ascii", "replace"))
        if place is None:
            self.complaints.say("the bus", f"asked to dial {address[:100]!r}, which is no address")
        elif len(self.dialing) < DIALS_MAX:
            self.start(self.reach_member(place, address, expected))

    async def reach_member(self, place: Place, address: bytes, expected: frozenset[bytes]) -> None:
        """The node is told where its machine says that nobody listens: that process has ended."""
        try:
            await self.reach(place, expected=expected)
        except ConnectionRefusedError:
            self.refused_at(address)

    def meet(self, address: bytes) -> None:
        """The same because an operator wants it: the log says if nobody is there, and the node if somebody is."""
        place = read_place(address.decode("ascii", "replace"))
        if place is not None:
            self.start(self.reach_and_tell(place, address))

    async def reach_and_tell(self, place: Place, address: bytes) -> None:
        try:
            found = await self.reach(place, is_wanted=True)
        except ConnectionRefusedError:
            return
        if found == self.me.node_id:
            log.info("the node to meet at %s is this one", place)
        elif found not in self.links:
            return
        self.give_up(address)
        self.met(address)

    def give_up(self, address: bytes) -> None:
        """Nobody waits any more for somebody to be met there."""
        self.unmet.discard(address.decode("ascii", "replace"))

    def rename(self, node_id: bytes) -> None:
        """This node is another one from now on. All links were given up before."""
        self.me = replace(self.me, node_id=node_id, run=secrets.randbits(64))
        log.info("this node is %s now", node_id.decode())

    async def reach(self, place: Place, is_wanted: bool = False, expected: frozenset[bytes] = frozenset()) -> bytes:
        """Connect and shake hands, with nobody else than expected, if that is said. Who is there, if found out. Raises
        ConnectionRefusedError."""
        name = str(place)
        if name in self.dialing or self.shut:
            return b""
        self.dialing.add(name)
        try:
            sock = await self.connect(place)
            conversation = Conversation(sock, self.credentials, seen_at(sock), is_wanted, expected)
            await conversation.cover(conversation.credentials.to_nodes, is_server=False)
            return await self.greet(conversation, name, is_dialer=True)
        except (OSError, TimeoutError) as error:
            if is_wanted and name not in self.unmet:
                self.unmet.add(name)
                log.info("cannot meet the node at %s yet, trying on: %s", name, str(error) or "no answer")
            log.debug("cannot reach the node at %s: %s", name, error)
            if isinstance(error, ConnectionRefusedError):
                raise
        except Unwelcome as why:
            self.complain(name, str(why))
        finally:
            self.dialing.discard(name)
        return b""

    async def connect(self, place: Place) -> socket.socket:
        path = place.path or self.paths.get((place.host, place.port), "")
        if path:
            try:
                return await self.connect_to(socket.AF_UNIX, path)
            except OSError:
                if place.path:
                    raise
        error: OSError = OSError("no address")
        for family, address in await self.addresses(place):
            if self.credentials.goes_by == MACHINE and not ip_address(address[0].partition("%")[0]).is_loopback:
                raise Unwelcome("without a cluster-secret only nodes of this machine are dialed")
            try:
                return await self.connect_to(family, address)
            except (OSError, TimeoutError) as failed:
                error = failed
        raise error

    async def connect_to(self, family: int, address: Any) -> socket.socket:
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            async with asyncio.timeout(CONNECT_S):
                await asyncio.get_running_loop().sock_connect(sock, address)
        except BaseException:
            sock.close()
            raise
        return sock

    async def addresses(self, place: Place) -> list[tuple[int, Any]]:
        """An address is taken as it is; only a name is looked up, which happens in a thread."""
        try:
            found = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except socket.gaierror:
            async with asyncio.timeout(RESOLVE_S):
                loop = asyncio.get_running_loop()
                found = await loop.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
        return [(family, address) for family, _, _, _, address in found[:ADDRESSES_PER_NAME]]

    # -- the handshake -------------------------------------------------------------------------------------

    async def greet(self, conversation: Conversation, where: str, is_dialer: bool) -> bytes:
        """From a connection to a link, or to a closed connection. Who is there, as far as that is proven."""
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                return await self.converse(conversation, where, is_dialer)
        except Unwelcome as why:
            self.complain(where, str(why))
        except TimeoutError:
            self.complain(where, "the handshake took too long")
        except (OSError, EOFError):
            self.complain(where, "the connection was closed during the handshake")
        finally:
            if not conversation.is_over:
                conversation.sock.close()
        return b""

    def complain(self, where: str, words: str) -> None:
        self.refusals += 1
        self.complaints.say(where, words)

    async def converse(self, with_them: Conversation, where: str, is_dialer: bool) -> bytes:
        me, credentials = self.me, with_them.credentials
        hello = me.anew(with_them.is_wanted)
        mine = hello.pack()
        if is_dialer:
            await with_them.say(mine)
            version, theirs = await with_them.hear_hello()
        else:
            version, theirs = await with_them.hear_hello()
            await with_them.say(mine)  # also to a node of another version, so that it can tell its operator
        if version != VERSION:
            raise Unwelcome(f"it speaks version {version} of the bus, this node speaks {VERSION}")
        them = handshake.read_hello(theirs[HEAD.size:])
        if them.node_id == self.me.node_id:
            if them.run == self.me.run:
                return them.node_id  # we have dialed ourselves
            raise Unwelcome("it has this node's own id: is its folder a copy of this one's?")
        if with_them.expected and them.node_id not in with_them.expected:
            return self.pass_by(where, them.node_id)
        if self.is_twin(them, with_them.host):
            return self.refuse_twin(them, with_them.host)
        if them.goes_by != me.goes_by:
            raise Unwelcome(f"it goes by {them.goes_by}, this node by {me.goes_by}: set the same secret at both")
        if with_them.certificate or me.goes_by == CERTIFICATE:
            credentials.check(with_them.certificate, them.node_id)
        both = (mine, theirs) if is_dialer else (theirs, mine)
        agreements = handshake.agree(credentials.keys, hello, them.share, *both, with_them.certificates(is_dialer))
        if is_dialer:
            self.calling[them.node_id] += 1
        try:
            linked, agreed = await self.prove(with_them, them, agreements, is_dialer)
            if self.me.node_id < them.node_id:
                number = self.decide(them, linked, is_dialer)
                with_them.say_at_once(handshake.verdict(agreed, number))
            else:
                number = handshake.check_verdict(agreed, await with_them.hear(VERDICT.size))
        finally:
            if is_dialer:
                self.calling[them.node_id] -= 1
                if self.calling[them.node_id] == 0:
                    del self.calling[them.node_id]
        if number > 0 and me is self.me and credentials is self.credentials and not self.shut:
            self.link(with_them, them, number, where.encode() if is_dialer else b"", agreed, is_dialer)
        return them.node_id

    def pass_by(self, where: str, node_id: bytes) -> bytes:
        """At a member's address is somebody else by now. We go before having said who we are: it is not to take us for
        a member of its cluster, either. The log says so once."""
        if self.is_news(where, node_id):
            raise Unwelcome("a member was there; now it is another node, which nobody told us to meet: left alone")
        return b""

    def is_twin(self, them: Hello, seen: str) -> bool:
        """Whether it has the id of a node that we are linked with, and that lives elsewhere."""
        mark = self.links.get(them.node_id)
        if mark is None or mark.peer is None or mark.run == them.run:
            return False
        facts = mark.peer.facts
        return (facts.host, facts.bus_port) != (them.host or seen, them.bus_port) and self.is_heard(mark.peer)

    def refuse_twin(self, them: Hello, seen: str) -> bytes:
        """Before it has our proof, or it might think that it has a link."""
        if self.is_news(them.node_id.decode(), them.run):
            who, here = them.node_id[:8].decode(), Place(them.host or seen, them.bus_port)
            raise Unwelcome(f"two nodes have the id {who}: the one at {here} is refused. Is its folder a copy?")
        return b""

    def is_news(self, about: str, what: bytes | int) -> bool:
        """Whether the log is yet to be told of it."""
        was = self.refused.get(about)
        self.refused[about] = what
        return was != what

    async def prove(
        self, with_them: Conversation, them: Hello, agreements: list[Agreement], is_dialer: bool
    ) -> tuple[int, Agreement]:
        """Both sides show that they know a secret, the dialer first. Which link with us the other side has, and which
        secret it is."""
        mark = self.links.get(them.node_id)
        number = mark.number if mark is not None and mark.run == them.run and not self.is_useless(mark) else 0
        if is_dialer:
            said = handshake.answer(agreements, DIALER, number)
            await with_them.say(said)
            try:
                given = await with_them.hear(ANSWER.size)
            except (OSError, EOFError):
                raise Unwelcome("it did not like our answer: is the cluster-secret the same? See its log") from None
            linked, agreed = handshake.check_answer(agreements, LISTENER, given)
            return linked, agreed.after(said, given)
        given = await with_them.hear(ANSWER.size)
        linked, agreed = handshake.check_answer(agreements, DIALER, given)
        said = handshake.answer([agreed], LISTENER, number)
        await with_them.say(said)
        return linked, agreed.after(given, said)

    def is_useless(self, mark: Linked) -> bool:
        return mark.peer is not None and self.is_stalled(mark.peer)

    def decide(self, them: Hello, linked: int, is_dialer: bool) -> int:
        """Whether this connection becomes our link: its number, or 0. Only the smaller id of a pair decides."""
        mark = self.links.get(them.node_id)
        if mark is None:
            is_needed = is_dialer or them.node_id not in self.calling
        else:
            is_young = time.monotonic() - mark.since < SETTLE_S
            is_lost = linked != mark.number or self.is_useless(mark)
            is_needed = mark.run != them.run or (is_lost and not is_young)
        if not is_needed:
            return 0
        self.number += 1
        return self.number

    def link(
        self, with_them: Conversation, them: Hello, number: int, dialed: bytes, agreed: Agreement, is_dialer: bool
    ) -> None:
        """Nothing is awaited from the verdict to here, so no other handshake can come between."""
        mark = self.links.get(them.node_id)
        if mark is not None:
            if mark.run == them.run and mark.number > number:
                return  # granted before the one we have, and overtaken by it
            if mark.peer is not None:
                self.drop(mark.peer, "a new connection has taken its place")
        host = them.host or with_them.host
        facts = PeerFacts(
            them.node_id, them.incarnation, host, them.port, them.bus_port, them.host_id, them.zone, dialed,
            them.is_invited,
        )
        if them.path and them.host_id == self.me.host_id:
            self.paths[(host, them.bus_port)] = them.path
        mark = self.links[them.node_id] = Linked(them.run, number, agreed.key)
        set_options(with_them.sock, KEEPALIVE_S)
        with_them.is_over = True
        self.news.say(f"node {them.node_id[:8].decode()}", f"linked, at {Place(host, them.bus_port)}")
        try:
            mark.peer = self.adopt(with_them.sock, facts, agreed.seals(DIALER if is_dialer else LISTENER))
        except BaseException:
            with_them.is_over = False
            raise
        finally:
            if mark.peer is None and self.links.get(them.node_id) is mark:
                del self.links[them.node_id]
        if mark.peer is None:
            self.news.say(f"node {them.node_id[:8].decode()}", "not wanted here at present")

    def lost(self, peer: Peer, why: str) -> None:
        """A link has ended."""
        self.links.pop(peer.facts.node_id, None)
        lines = self.complaints if why == FORGED else self.news
        lines.say(f"node {peer.facts.node_id[:8].decode()}", f"link lost: {why}")


class Conversation:
    """One handshake's side of a socket. Reads no byte more than it wants: what follows is for others."""

    def __init__(
        self, sock: socket.socket, credentials: Credentials, seen: str, is_wanted: bool = False,
        expected: frozenset[bytes] = frozenset(),
    ) -> None:
        self.sock = sock
        self.credentials = credentials  # as they were when it began
        self.certificate = b""  # that the other side has shown
        self.is_wanted = is_wanted  # an operator told us to call
        self.expected = expected  # who may be there; nobody said: anybody
        self.host = seen  # where the other side is seen
        self.loop = asyncio.get_running_loop()
        self.is_over = False  # the socket is somebody else's now

    async def cover(self, made: ssl.SSLContext | None, is_server: bool) -> None:
        """Speak TLS, where that is to be. Within a machine a secret is enough; where there is none, nothing else is."""
        is_near = self.sock.family == socket.AF_UNIX and self.credentials.goes_by != CERTIFICATE
        if made is not None and not is_near:
            self.sock, self.certificate = await tls.cover(self.sock, made, is_server)

    def certificates(self, is_dialer: bool) -> bytes:
        """The dialer's and the listener's, as this side sees them; nothing without TLS."""
        if not self.certificate:
            return b""
        ours, theirs = self.credentials.certificate, hash_of(self.certificate)
        return ours + theirs if is_dialer else theirs + ours

    async def say(self, data: bytes) -> None:
        await self.loop.sock_sendall(self.sock, data)

    def say_at_once(self, data: bytes) -> None:
        """A few bytes to a socket that has next to nothing in its buffer."""
        if self.sock.send(data) != len(data):
            raise OSError("no room for a word")

    async def hear(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = await self.loop.sock_recv(self.sock, count - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    async def hear_hello(self) -> tuple[int, bytes]:
        """The version of the other side, and its whole hello."""
        head = await self.hear(HEAD.size)
        version, length = handshake.read_head(head)
        if version != VERSION:
            return version, head
        return version, head + await self.hear(length)


def seen_at(sock: socket.socket) -> str:
    """The address of the other side."""
    address = sock.getpeername() if sock.family != socket.AF_UNIX else None
    return str(address[0]).removeprefix("::ffff:") if address else "127.0.0.1"
