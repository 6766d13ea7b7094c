"""How two nodes prove to each other that they belong together, as bytes and without any I/O.

    dialer                                 listener
      hello  ─────────────────────────────▶
             ◀─────────────────────────────  hello
      answer ─────────────────────────────▶
             ◀─────────────────────────────  answer
             ◀──── verdict, by the node with the smaller id ────▶

A hello says who one is, where one can be reached, and 32 random bytes. An answer is an HMAC-SHA256 with the
cluster's secret over both hellos, so

* a recorded answer is worth nothing next time: the other side's random bytes are new;
* an answer given by us and sent back to us does not pass: dialer and listener sign under different labels,
  and the dialer's hello always comes first;
* an id, address or number changed on the way does not pass: it is under the signature;
* a stranger who dials learns nothing that depends on the secret: the dialer answers first.

It says who is at the other end, once. It does not encrypt or sign what follows: that is TLS's business.

The verdict settles which of several connections between two nodes is their link: see bus.py.

All numbers little-endian:

    hello     magic 8 · version u16 · length u16 · flags u8 · node id 40 · incarnation u64 · run u64 · nonce 32
              · port u16 · bus port u16 · four texts, each behind its length as u8: host, path, host id, zone
    answer    linked u64 · HMAC 32
    verdict   u64
"""
from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import struct
from dataclasses import dataclass, replace

from holdfast.shell.bounds import HELLO_BYTES_MAX
from holdfast.wire.bus import VERSION

MAGIC = b"HOLDFAST"
HEAD = struct.Struct("<8sHH")
FIXED = struct.Struct("<B40sQQ32sHH")
ANSWER = struct.Struct("<Q32s")
VERDICT = struct.Struct("<Q")
FLAG_SECRET = 1
FLAG_INVITED = 2
NONCE_BYTES = 32
DIALER = b"holdfast bus: I dialed"
LISTENER = b"holdfast bus: I was dialed"

NODE_ID = re.compile(rb"[0-9a-f]{40}")
# What a host name, an address or a name of our own may be made of: it ends up in lists, logs and files.
WORD = re.compile(rb"[A-Za-z0-9._:%+-]*")
PATH = re.compile(rb"[!-~]*")


class Unwelcome(Exception):
    """The other side is no node of this cluster. The words are for our log, and hold none of its bytes."""


@dataclass(frozen=True)
class Hello:
    node_id: bytes
    incarnation: int  # of the node's data
    run: int  # of its process: drawn at each start
    port: int
    bus_port: int
    host: str = ""  # where others reach it; empty: where they see it
    path: str = ""  # its bus on a Unix socket, for nodes on the same host
    host_id: bytes = b""
    zone: bytes = b""
    has_secret: bool = False
    nonce: bytes = b""
    is_invited: bool = False  # an operator told it to call

    def anew(self, is_invited: bool = False) -> Hello:
        """The same with other random bytes, for the next connection."""
        return replace(self, nonce=secrets.token_bytes(NONCE_BYTES), is_invited=is_invited)

    def pack(self) -> bytes:
        flags = FLAG_SECRET * self.has_secret | FLAG_INVITED * self.is_invited
        body = FIXED.pack(
            flags, self.node_id, self.incarnation, self.run, self.nonce, self.port, self.bus_port,
        )
        for text in (self.host.encode(), self.path.encode(), self.host_id, self.zone):
            body += bytes([len(text)]) + text
        return HEAD.pack(MAGIC, VERSION, len(body)) + body


def read_head(head: bytes) -> tuple[int, int]:
    """The version the other side speaks, and how long the rest of its hello is."""
    magic, version, length = HEAD.unpack(head)
    if magic != MAGIC:
        raise Unwelcome("what it says is not the language of nodes")
    if version == VERSION and not FIXED.size + 4 <= length <= HELLO_BYTES_MAX:
        raise Unwelcome("a hello of a length that none has")
    return version, length


def read_hello(body: bytes) -> Hello:
    flags, node_id, incarnation, run, nonce, port, bus_port = FIXED.unpack_from(body)
    texts = []
    at = FIXED.size
    for _ in range(4):
        if at >= len(body):
            raise Unwelcome("a hello that ends too early")
        end = at + 1 + body[at]
        texts.append(body[at + 1:end])
        at = end
    if at != len(body):
        raise Unwelcome("a hello that does not end where it should")
    host, path, host_id, zone = texts
    if NODE_ID.fullmatch(node_id) is None or not 0 < incarnation < 1 << 63:
        raise Unwelcome("a hello without a node's id")
    if any(WORD.fullmatch(word) is None for word in (host, host_id, zone)) or PATH.fullmatch(path) is None:
        raise Unwelcome("a hello with characters that no name has")
    return Hello(
        node_id, incarnation, run, port, bus_port, host.decode(), path.decode(), host_id, zone,
        bool(flags & FLAG_SECRET), nonce, bool(flags & FLAG_INVITED),
    )


def answer(secret: bytes, role: bytes, dialer: bytes, listener: bytes, linked: int) -> bytes:
    """Proof of the secret by one side of a connection, over both hellos as they were sent."""
    return ANSWER.pack(linked, sign(secret, role, dialer, listener, linked))


def check_answer(secret: bytes, role: bytes, dialer: bytes, listener: bytes, given: bytes) -> int:
    """The number of the link that the other side says it has with us. Raises Unwelcome."""
    linked: int
    linked, signature = ANSWER.unpack(given)
    if not hmac.compare_digest(signature, sign(secret, role, dialer, listener, linked)):
        raise Unwelcome("it does not know the cluster's secret")
    return linked


def sign(secret: bytes, role: bytes, dialer: bytes, listener: bytes, linked: int) -> bytes:
    # Each part is behind its length, or the end of one could be read as the beginning of the next.
    parts = (role, dialer, listener, VERDICT.pack(linked))
    return hmac.new(secret, b"".join(struct.pack("<I", len(part)) + part for part in parts), hashlib.sha256).digest()
