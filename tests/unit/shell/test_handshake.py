"""The bytes of a handshake, and what they prove: without sockets and without nodes."""
from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from holdfast.shell import handshake
from holdfast.shell.handshake import ANSWER, CERTIFICATE, DIALER, HEAD, LISTENER, MACHINE, SECRET, Agreement, Hello
from holdfast.shell.handshake import Unwelcome as Refused
from holdfast.shell.seal import nonce
from holdfast.wire.bus import VERSION

SMALL = b"1" * 40
OLD, NEW, OTHER = b"o" * 32, b"n" * 32, b"x" * 32
SHARE = bytes(range(32))
HELLO = Hello(
    SMALL, (1 << 63) - 1, (1 << 64) - 1, 65535, 1, "host.example", "/run/x", b"h", b"z", SECRET, SHARE,
)


def test_a_hello_as_bytes() -> None:
    """Golden: another version of this program must be able to read it."""
    data = HELLO.pack()
    assert data == (
        b"HOLDFAST" + b"\x07\x00" + b"\x75\x00" + b"\x01" + SMALL + b"\xff" * 7 + b"\x7f" + b"\xff" * 8
        + SHARE + b"\xff\xff\x01\x00" + b"\x0chost.example" + b"\x06/run/x" + b"\x01h" + b"\x01z"
    )
    assert handshake.read_head(data[:HEAD.size]) == (VERSION, len(data) - HEAD.size)
    assert handshake.read_hello(data[HEAD.size:]) == HELLO
    assert HELLO.anew().share != HELLO.anew().share


@pytest.mark.parametrize("goes_by", [SECRET, MACHINE, CERTIFICATE])
def test_a_hello_tells_what_a_node_goes_by(goes_by: str) -> None:
    told = Hello(SMALL, 1, 1, 1, 1, goes_by=goes_by).anew(is_invited=True)
    read = handshake.read_hello(told.pack()[HEAD.size:])
    assert (read.goes_by, read.is_invited) == (goes_by, True)


def test_keys_and_proofs_as_bytes() -> None:
    """Golden, with keys that never change: two builds must come to the same."""
    private = X25519PrivateKey.from_private_bytes(bytes([7]) * 32)
    mine = Hello(SMALL, 1, 1, 1, 1, share=private.public_key().public_bytes_raw(), private=private)
    share = X25519PrivateKey.from_private_bytes(bytes([9]) * 32).public_key().public_bytes_raw()
    (agreed,) = handshake.agree([OLD], mine, share, b"one", b"two", b"certificates")
    assert handshake.answer([agreed], DIALER, 5)[:40].hex() == (
        "0500000000000000dfadcea36970dbd7498b9b461042cd0c50a61cd847a7306a619f831242851007"
    )
    assert handshake.verdict(agreed, 3).hex() == (
        "0300000000000000bd515efbb624d8445a653770c73dfd400ce6271aae08e4d6372a0c8e6baca44e"
    )
    sealed = agreed.seals(DIALER).out.encrypt(nonce(1), b"frame", None)
    assert sealed.hex() == "2d995b4f1fab7c5527177eaa8de177c601a22eea39"


class Side:
    """One side of a connection; `says` is its hello."""

    def __init__(self, keys: Sequence[bytes], role: bytes, certificates: bytes = b"") -> None:
        self.keys = keys
        self.role = role
        self.certificates = certificates
        self.hello = Hello(SMALL if role == DIALER else b"2" * 40, 1, 1, 1, 1).anew()
        self.says = self.hello.pack()

    def hear(self, theirs: bytes) -> list[Agreement]:
        share = handshake.read_hello(theirs[HEAD.size:]).share
        both = (self.says, theirs) if self.role == DIALER else (theirs, self.says)
        return handshake.agree(self.keys, self.hello, share, *both, self.certificates)


def shake(dialer: Side, listener: Side) -> tuple[Agreement, Agreement]:
    """Both sides to the end. What each of them agrees to."""
    asked, answered = dialer.hear(listener.says), listener.hear(dialer.says)
    said = handshake.answer(asked, DIALER, 3)
    linked, theirs = handshake.check_answer(answered, DIALER, said)
    assert linked == 3
    back = handshake.answer([theirs], LISTENER, 4)
    linked, ours = handshake.check_answer(asked, LISTENER, back)
    assert linked == 4
    ours, theirs = ours.after(said, back), theirs.after(said, back)
    assert handshake.check_verdict(ours, handshake.verdict(theirs, 9)) == 9
    return ours, theirs


@pytest.mark.parametrize("dialer, listener, agreed", [
    ([OLD], [OLD], OLD), ([NEW, OLD], [OLD], OLD), ([OLD], [NEW, OLD], OLD), ([NEW, OLD], [NEW, OLD], NEW),
    ([OLD, NEW], [NEW, OLD], NEW), ([NEW, OLD], [NEW], NEW), ([NEW], [NEW, OLD], NEW),
])
def test_while_a_cluster_changes_its_secret_any_two_of_its_nodes_agree(
    dialer: list[bytes], listener: list[bytes], agreed: bytes
) -> None:
    ours, theirs = shake(Side(dialer, DIALER), Side(listener, LISTENER))
    assert ours.key == theirs.key == agreed
    said, heard = ours.seals(DIALER), theirs.seals(LISTENER)
    for one, other in ((said.out, heard.into), (heard.out, said.into)):
        assert other.decrypt(nonce(5), one.encrypt(nonce(5), b"frame", None), None) == b"frame"
    with pytest.raises(InvalidTag):
        said.into.decrypt(nonce(5), said.out.encrypt(nonce(5), b"frame", None), None)


@pytest.mark.parametrize("dialer, listener", [([OLD], [NEW]), ([OLD, OTHER], [NEW]), ([OLD], [NEW, OTHER])])
def test_without_a_secret_in_common_they_do_not(dialer: list[bytes], listener: list[bytes]) -> None:
    with pytest.raises(Refused):
        shake(Side(dialer, DIALER), Side(listener, LISTENER))


def test_who_saw_other_certificates_does_not_agree() -> None:
    """Somebody stands between two nodes, and shows each a certificate of its own that is as good as theirs."""
    with pytest.raises(Refused):
        shake(Side([OLD], DIALER, b"dialer's" + b"the thief's"), Side([OLD], LISTENER, b"the thief's" + b"listener's"))


def test_an_answer_holds_for_one_side_of_one_conversation() -> None:
    dialer, listener = Side([OLD], DIALER), Side([OLD], LISTENER)
    asked, answered = dialer.hear(listener.says), listener.hear(dialer.says)
    given = handshake.answer(asked, DIALER, 3)
    assert handshake.check_answer(answered, DIALER, given)[0] == 3
    again = Side([OLD], LISTENER)
    changed = dialer.says.replace(SMALL, b"3" * 40)
    for agreements, role, said in [
        (answered, LISTENER, given), (asked, LISTENER, given), (again.hear(dialer.says), DIALER, given),
        (listener.hear(changed), DIALER, given), (answered, DIALER, b"\4" + given[1:]),
        (answered, DIALER, bytes(ANSWER.size)),
    ]:
        with pytest.raises(Refused):
            handshake.check_answer(agreements, role, said)


def test_a_verdict_that_was_changed_is_none() -> None:
    ours, theirs = shake(Side([OLD], DIALER), Side([OLD], LISTENER))
    for said in (b"\0" + handshake.verdict(theirs, 9)[1:], bytes(handshake.VERDICT.size)):
        with pytest.raises(Refused):
            handshake.check_verdict(ours, said)


@pytest.mark.parametrize("share", [bytes(32), b"\1" + bytes(31)])
def test_a_key_that_gives_everybody_the_same_is_refused(share: bytes) -> None:
    """Points of small order: the keys of the link would not depend on what we drew."""
    with pytest.raises(Refused):
        handshake.agree([OLD], HELLO.anew(), share, b"one", b"two")


@pytest.mark.parametrize("seed", range(300))
def test_a_spoiled_hello_is_refused_or_read_but_breaks_nothing(seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(HELLO.pack()[HEAD.size:])
    for _ in range(rng.randrange(1, 4)):
        way = rng.randrange(3)
        at = rng.randrange(len(data))
        if way == 0:
            data[at] = rng.randrange(256)
        elif way == 1 and len(data) > handshake.FIXED.size + 4:
            del data[-1:]
        else:
            data[at:at] = rng.randbytes(2)
    try:
        read = handshake.read_hello(bytes(data))
    except Refused as why:
        assert str(why).isascii()
        return
    assert len(read.node_id) == 40 and read.host.isprintable() and read.path.isprintable()


@pytest.mark.parametrize("change", [
    {"node_id": b"A" * 40}, {"node_id": b"1" * 39 + b"\n"}, {"incarnation": 0}, {"incarnation": 1 << 63},
    {"host": "two words"}, {"host": "line\nbreak"}, {"path": "a\x00b"}, {"host_id": b"\xff"}, {"zone": b"a b"},
])
def test_names_that_could_do_harm_in_a_list_are_refused(change: dict[str, Any]) -> None:
    fields = {**HELLO.__dict__, **change}
    with pytest.raises(Refused):
        handshake.read_hello(Hello(**fields).pack()[HEAD.size:])
