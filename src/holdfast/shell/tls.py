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
from typing import Any

from holdfast.core.config import Config
from holdfast.shell.bounds import READ_BYTES, TLS_HANDSHAKE_S
from holdfast.shell.settings import SettingsError

CARRIED = READ_BYTES


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
        if self.transport is not None:
            self.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    # What Sockets asks of a transport.

    def write(self, data: bytes) -> None:
        if self.transport is None:
            return
        self.transport.write(data)
        if 0 < self.hard_bytes < self.transport.get_write_buffer_size():
            self.transport.abort()

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()


async def cover(sock: socket.socket, made: ssl.SSLContext, is_server: bool) -> tuple[socket.socket, bytes]:
    """Speak TLS on a connected socket, and give back one that speaks as before, and the certificate of the other side.
    Raises OSError or TimeoutError."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=CARRIED)
    protocol = asyncio.StreamReaderProtocol(reader)
    try:
        if is_server:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, sock, ssl=made, ssl_handshake_timeout=TLS_HANDSHAKE_S
            )
        else:
            transport, _ = await loop.create_connection(
                lambda: protocol, sock=sock, ssl=made, server_hostname="", ssl_handshake_timeout=TLS_HANDSHAKE_S
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
