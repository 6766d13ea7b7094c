"""TLS: for clients on a port of their own, and for links with other nodes.

The sockets of a node know nothing of it. A client that speaks TLS is an asyncio transport whose bytes are fed to
the node as if they had come from a socket (Sockets.attach). A link is a socket to the rest of the node, so there
TLS ends at a pair of local sockets: one end is given away as the link, and what passes through the other is carried
over, encrypted. TLS 1.2 is the oldest that is spoken.
"""
from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any

from holdfast.core.config import Config
from holdfast.shell.bounds import ACCEPTS_PER_ROUND, NO_DESCRIPTORS, READ_BYTES
from holdfast.shell.listening import address_text, bind
from holdfast.shell.settings import SettingsError
from holdfast.shell.strangers import HANDSHAKE_S, HANDSHAKES_MAX, HANDSHAKES_PER_HOST, Strangers

CARRIED = READ_BYTES
AGAIN_S = 0.1
"""Without a free descriptor: until we look again."""


def context(config: Config, is_server: bool, asks_for: str) -> ssl.SSLContext:
    """What the settings say. `asks_for`: whether the other side must show a certificate: no, optional, yes."""
    cert, key, ca = (config.text(name) for name in ("tls-cert-file", "tls-key-file", "tls-ca-file"))
    if not cert or not key:
        raise SettingsError("TLS takes a tls-cert-file and a tls-key-file")
    if asks_for != "no" and not ca:
        raise SettingsError("to check certificates of others, set tls-ca-file")
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        made.load_cert_chain(cert, key)
        if ca:
            made.load_verify_locations(ca)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"cannot use {cert}, {key} and {ca or 'no CA'} for TLS: {error}") from None
    made.check_hostname = False  # nodes go by their ids, and move; who signed is what counts
    made.verify_mode = {"no": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "yes": ssl.CERT_REQUIRED}[asks_for]
    return made


def own_certificate(config: Config) -> bytes:
    """The certificate that context() shows to others."""
    path = config.text("tls-cert-file")
    try:
        with open(path, encoding="ascii") as file:
            text = file.read()
        end = "-----END CERTIFICATE-----"
        first = text[text.index("-----BEGIN CERTIFICATE-----"):text.index(end) + len(end)]
        return ssl.PEM_cert_to_DER_cert(first)
    except (OSError, ValueError) as error:
        raise SettingsError(f"cannot use {path} for TLS: {error}") from None


def common_name(certificate: Any) -> str:
    """Whose certificate it is, as it says itself."""
    for part in (certificate or {}).get("subject", ()):
        for name, value in part:
            if name == "commonName":
                return str(value)
    return ""


class Client(asyncio.Protocol):
    """A client that speaks TLS: a transport for Sockets."""

    def __init__(
        self, sockets: Any, is_turned: Callable[[int], None], is_known: Callable[[Any, str], None], hard_bytes: int
    ) -> None:
        self.sockets = sockets
        self.is_turned = is_turned
        self.is_known = is_known
        self.hard_bytes = hard_bytes
        self.connection: Any = None
        self.transport: Any = None
        self.is_owed = False
        self.is_full = False

    def connection_made(self, transport: Any) -> None:  # uvloop's are not asyncio's, by type
        self.transport = transport
        address = transport.get_extra_info("peername")
        host = f"[{address[0]}]" if ":" in address[0] else address[0]
        self.connection = self.sockets.attach(self, f"{host}:{address[1]}")
        if self.connection is None:
            transport.write(b"-ERR max number of clients reached\r\n")
            transport.close()
            return
        name = common_name(transport.get_extra_info("peercert"))
        if name:
            self.is_known(self.connection.session, name)

    def data_received(self, data: bytes) -> None:
        if self.connection is not None:
            self.is_turned(self.sockets.feed(self.connection, data))

    def connection_lost(self, exc: Exception | None) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            self.sockets.detach(connection)

    def pause_writing(self) -> None:
        """It does not read: then it is not read from either, and owed no more than it has asked for."""
        self.is_owed = True
        self.read_or_not()

    def resume_writing(self) -> None:
        self.is_owed = False
        self.read_or_not()

    def read_or_not(self) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        if self.is_owed or self.is_full:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    # What Sockets asks of a transport.

    def hold(self, is_full: bool) -> None:
        """Whether it has sent ahead as much as it may."""
        if is_full != self.is_full:
            self.is_full = is_full
            self.read_or_not()

    def write(self, data: bytes) -> None:
        if self.transport is None:
            return
        self.transport.write(data)
        if 0 < self.hard_bytes < self.transport.get_write_buffer_size():
            self.transport.abort()

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()


class Listener:
    """Accepts those who want to speak TLS. An event loop that accepts them itself tells nobody before TLS is agreed
    on; here each counts from its first moment, as a handshake that is under way, and goes when there are too many.

    `is_full`: whether there is no connection left for it.
    """

    def __init__(
        self, hosts: list[str], port: int, backlog: int, made: ssl.SSLContext, client: Callable[[], asyncio.Protocol],
        is_full: Callable[[int], bool],
    ) -> None:
        self.made = made
        self.client = client
        self.is_full = is_full
        self.shaking = Strangers(HANDSHAKES_MAX, HANDSHAKES_PER_HOST)
        self.loop = asyncio.get_running_loop()
        self.listeners: list[socket.socket] = []
        self.tasks: set[asyncio.Task[None]] = set()
        """Handshakes that hold a descriptor: those of `shaking`, and those that were shut and are not closed yet."""
        self.resting: set[socket.socket] = set()
        try:
            for host in hosts:
                self.listeners.append(bind(host, port, backlog))
        except SettingsError:
            self.close()
            raise
        for listener in self.listeners:
            listener.setblocking(False)
            self.loop.add_reader(listener.fileno(), self.accept, listener)

    def accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_ROUND):
            if self.tasks and (len(self.tasks) >= HANDSHAKES_MAX or self.is_full(len(self.tasks))):
                self.shaking.make_room()
                self.rest(listener)
                return
            try:
                sock, address = listener.accept()
            except OSError as error:
                if error.errno in NO_DESCRIPTORS and not self.shaking.make_room():
                    self.rest(listener)
                    self.loop.call_later(AGAIN_S, self.listen_again)
                return
            if self.is_full(0):
                sock.close()
                continue
            task = self.loop.create_task(self.shake(sock))
            self.tasks.add(task)
            self.shaking.arrive(task, address_text(sock, address), partial(shut, sock))
            task.add_done_callback(self.is_over)

    def rest(self, listener: socket.socket) -> None:
        """Others wait in the system's backlog, and we do not spin, until a handshake is over."""
        self.loop.remove_reader(listener.fileno())
        self.resting.add(listener)

    def is_over(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self.shaking.leave(task)
        self.listen_again()

    def listen_again(self) -> None:
        for listener in self.resting:
            if listener.fileno() >= 0:
                self.loop.add_reader(listener.fileno(), self.accept, listener)
        self.resting.clear()

    async def shake(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        try:
            await self.loop.connect_accepted_socket(
                self.client, sock, ssl=self.made, ssl_handshake_timeout=HANDSHAKE_S
            )
        except (OSError, ssl.SSLError, TimeoutError):
            sock.close()

    def close(self) -> None:
        for listener in self.listeners:
            self.loop.remove_reader(listener.fileno())
            listener.close()
        for task in self.tasks:
            task.cancel()


def shut(sock: socket.socket) -> None:
    """End both ways: whoever reads from it hears so, and closes it."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


async def cover(sock: socket.socket, made: ssl.SSLContext, is_server: bool) -> tuple[socket.socket, bytes]:
    """Speak TLS on a connected socket, and give back one that speaks as before, and the certificate of the other side.
    Raises OSError or TimeoutError."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=CARRIED)
    protocol = asyncio.StreamReaderProtocol(reader)
    try:
        if is_server:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, sock, ssl=made, ssl_handshake_timeout=HANDSHAKE_S
            )
        else:
            transport, _ = await loop.create_connection(
                lambda: protocol, sock=sock, ssl=made, server_hostname="", ssl_handshake_timeout=HANDSHAKE_S
            )
    except BaseException:
        sock.close()
        raise
    shown = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    inner_reader, inner_writer = await asyncio.open_connection(sock=theirs, limit=CARRIED)
    carriers = [loop.create_task(carry(reader, inner_writer)), loop.create_task(carry(inner_reader, writer))]
    for task in carriers:
        CARRIERS.add(task)
        task.add_done_callback(CARRIERS.discard)
    return ours, shown


CARRIERS: set[asyncio.Task[None]] = set()  # so that a running one is not collected


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Bytes from one to the other until either ends; then both do."""
    with contextlib.suppress(OSError, ssl.SSLError):
        while data := await reader.read(CARRIED):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError, ssl.SSLError):
        writer.close()
