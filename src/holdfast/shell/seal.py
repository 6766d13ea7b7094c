"""The seal of a link: every frame encrypted and authenticated, under a key for each direction.

The keys are those of one connection (handshake.py). The number of the frame is its nonce, so a frame that was changed,
left out, sent twice or sent in another order does not open. Then the link ends: what follows would be believed, too.

AES-256-GCM costs less than a hash for all but the shortest frames, so nothing is gained by signing alone.
"""
from __future__ import annotations

from typing import NamedTuple, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

TAG_BYTES = 16
"""What sealing adds to a frame."""
NONCE_BYTES = 12
FORGED = "a frame that does not open: it was changed on its way, or is out of its order"


class Cipher(Protocol):
    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes: ...

    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes: ...


class Seals(NamedTuple):
    """Of one link: for what this node says, and for what it hears."""

    out: Cipher
    into: Cipher


def seals(out_key: bytes, in_key: bytes) -> Seals:
    return Seals(AESGCM(out_key), AESGCM(in_key))


def nonce(number: int) -> bytes:
    return number.to_bytes(NONCE_BYTES, "little")


__all__ = ["FORGED", "NONCE_BYTES", "TAG_BYTES", "Cipher", "InvalidTag", "Seals", "nonce", "seals"]
