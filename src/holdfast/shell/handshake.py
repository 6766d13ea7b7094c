"""How two nodes prove to each other that they belong together, as bytes and without any I/O.

    dialer                                 listener
      hello  ─────────────────────────────▶
             ◀─────────────────────────────  hello
      answer ─────────────────────────────▶
             ◀─────────────────────────────  answer
             ◀──── verdict, by the node with the smaller id ────▶
      frames ◀────────────── sealed (seal.py) ─────────────▶  frames

A hello says who one is, where one can be reached, and has a public key of X25519 that is made for this connection
alone. From the cluster's secret, what the two keys come to, both hellos as they were sent and, with TLS, both
certificates, either side makes the keys of the connection (HKDF with SHA-256). An answer is an HMAC under these, so

* a recorded answer is worth nothing next time: the other side's key is new;
* an answer given by us and sent back to us does not pass: dialer and listener sign under different labels,
  and the dialer's hello always comes first;
* an id, address or number changed on the way does not pass: it is under the signature. The verdict and the keys of
  frames depend on both answers, too, to the last byte;
* who stands between two nodes with a certificate of its own does not pass: each side signs the certificate it saw;
* a stranger who dials learns nothing that depends on the secret: the dialer answers first;
* what was recorded stays closed to who learns the secret later: the keys of X25519 are gone by then.

Two secrets may be valid (cluster_secret.py). A dialer proves each of its own; the listener takes the first of its own
that is among these, and the two go on with that.

The verdict settles which of several connections between two nodes is their link: see bus.py.

All numbers little-endian:

    hello     magic 8 · version u16 · length u16 · flags u8 · node id 40 · incarnation u64 · run u64 · key 32
              · port u16 · bus port u16 · four texts, each behind its length as u8: host, path, host id, zone
    answer    linked u64 · HMAC 32 · HMAC 32 (random bytes, where there is one secret)
    verdict   u64 · HMAC 32
"""
from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from holdfast.shell import seal
from holdfast.shell.bounds import HELLO_BYTES_MAX
from holdfast.wire.bus import VERSION

MAGIC = b"HOLDFAST"
HEAD = struct.Struct("<8sHH")
FIXED = struct.Struct("<B40sQQ32sHH")
ANSWER = struct.Struct("<Q32s32s")
VERDICT = struct.Struct("<Q32s")
NUMBER = struct.Struct("<Q")
FLAG_SECRET = 1
FLAG_INVITED = 2
FLAG_MACHINE = 4
SHARE_BYTES = 32
PROOF_BYTES = 32
DIALER = b"holdfast bus: I dialed"
LISTENER = b"holdfast bus: I was dialed"
DECISION = b"holdfast bus: the verdict"
FRAMES = {DIALER: b"holdfast bus: frames of the dialer", LISTENER: b"holdfast bus: frames of the listener"}

# What a node goes by: a secret that all nodes of the cluster were given, the one of its user on this machine, or its
# certificate alone.
SECRET, MACHINE, CERTIFICATE = "the cluster's secret", "the secret of its user on its machine", "its certificate"

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
    goes_by: str = SECRET
    share: bytes = b""  # its public key
    is_invited: bool = False  # an operator told it to call
    private: X25519PrivateKey | None = field(default=None, compare=False, repr=False)

    def anew(self, is_invited: bool = False) -> Hello:
        """The same with another key, for the next connection."""
        private = X25519PrivateKey.generate()
        share = private.public_key().public_bytes_raw()
        return replace(self, private=private, share=share, is_invited=is_invited)

    def pack(self) -> bytes:
        flags = FLAG_SECRET * (self.goes_by == SECRET) | FLAG_MACHINE * (self.goes_by == MACHINE)
        flags |= FLAG_INVITED * self.is_invited
        body = FIXED.pack(
            flags, self.node_id, self.incarnation, self.run, self.share, self.port, self.bus_port,
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
    flags, node_id, incarnation, run, share, port, bus_port = FIXED.unpack_from(body)
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
    goes_by = SECRET if flags & FLAG_SECRET else MACHINE if flags & FLAG_MACHINE else CERTIFICATE
    return Hello(
        node_id, incarnation, run, port, bus_port, host.decode(), path.decode(), host_id, zone,
        goes_by, share, bool(flags & FLAG_INVITED),
    )


# -- proofs ------------------------------------------------------------------------------------------------


class Agreement:
    """What both sides of a connection come to under one secret: proofs of it, and the keys of the link."""

    def __init__(self, key: bytes, base: bytes) -> None:
        self.key = key  # of the secret
        self.base = base

    def after(self, dialers: bytes, listeners: bytes) -> Agreement:
        """The same once both have answered: what comes next holds only if both heard what the other said."""
        return Agreement(self.key, hmac.digest(self.base, dialers + listeners, "sha256"))

    def sign(self, label: bytes, number: int = 0) -> bytes:
        """HKDF's expand, to one block."""
        return hmac.digest(self.base, label + NUMBER.pack(number) + b"\x01", "sha256")

    def seals(self, role: bytes) -> seal.Seals:
        """For the side that was the dialer, or the listener."""
        other = LISTENER if role == DIALER else DIALER
        return seal.seals(self.sign(FRAMES[role]), self.sign(FRAMES[other]))


def agree(
    keys: Sequence[bytes], mine: Hello, share: bytes, dialer: bytes, listener: bytes, certificates: bytes = b""
) -> list[Agreement]:
    """One for each secret we know. `dialer` and `listener` are the hellos as they were sent."""
    assert mine.private is not None
    try:
        shared = mine.private.exchange(X25519PublicKey.from_public_bytes(share))
    except ValueError:
        raise Unwelcome("a hello with a key that no node makes") from None
    # Each part is behind its length, or the end of one could be read as the beginning of the next.
    parts = (dialer, listener, certificates)
    transcript = hashlib.sha256(b"".join(struct.pack("<I", len(part)) + part for part in parts)).digest()
    return [Agreement(key, hmac.digest(key, shared + transcript, "sha256")) for key in keys]  # HKDF's extract


def answer(agreements: Sequence[Agreement], role: bytes, linked: int) -> bytes:
    """Proof of each secret, by one side of a connection."""
    proofs = [each.sign(role, linked) for each in agreements]
    proofs += [secrets.token_bytes(PROOF_BYTES)] * (2 - len(proofs))
    return ANSWER.pack(linked, *proofs)


def check_answer(agreements: Sequence[Agreement], role: bytes, given: bytes) -> tuple[int, Agreement]:
    """The number of the link that the other side says it has with us, and what we agree on. Raises Unwelcome."""
    linked: int
    linked, *proofs = ANSWER.unpack(given)
    for each in agreements:
        wanted = each.sign(role, linked)
        if any([hmac.compare_digest(proof, wanted) for proof in proofs]):
            return linked, each
    raise Unwelcome("it does not know the cluster's secret")


def verdict(agreement: Agreement, number: int) -> bytes:
    return VERDICT.pack(number, agreement.sign(DECISION, number))


def check_verdict(agreement: Agreement, given: bytes) -> int:
    number: int
    number, proof = VERDICT.unpack(given)
    if not hmac.compare_digest(proof, agreement.sign(DECISION, number)):
        raise Unwelcome("its verdict was changed on the way")
    return number
