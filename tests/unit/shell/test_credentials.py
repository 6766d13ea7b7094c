"""Whose certificate is that of a node, what a file of secrets may hold, and when there is no bus."""
from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from holdfast.shell import cluster_secret, credentials
from holdfast.shell.cluster_secret import BadSecret
from holdfast.shell.credentials import Credentials, NoBus, matches
from holdfast.shell.handshake import MACHINE, SECRET, Unwelcome
from holdfast.shell.settings import Settings, SettingsError

BOTH = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
ID = "0123456789abcdef" * 2 + "01234567"


def certificate(usages: Sequence[x509.ObjectIdentifier] | None, *names: x509.GeneralName, common: str = "x") -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common)])
    began = datetime.datetime(2020, 1, 1)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(began).not_valid_after(began + datetime.timedelta(days=1))
    if usages is not None:
        made = made.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    if names:
        made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def passes(shown: bytes, *patterns: str) -> bool:
    try:
        Credentials(SECRET, (b"k" * 32,), names=patterns).check(shown, ID.encode())
    except Unwelcome as why:
        assert str(why).isascii()
        return False
    return True


@pytest.mark.parametrize("usages, is_good", [
    (None, True), (BOTH, True), (BOTH[:1], False), (BOTH[1:], False), ([ExtendedKeyUsageOID.CODE_SIGNING], False),
])
def test_a_node_is_on_both_sides_of_connections(
    usages: Sequence[x509.ObjectIdentifier] | None, is_good: bool
) -> None:
    assert passes(certificate(usages)) == is_good


def test_a_name_is_one_that_the_authority_vouches_for() -> None:
    shown = certificate(BOTH, x509.DNSName("N1.nodes.example.org"), x509.UniformResourceIdentifier("spiffe://a/node/1"))
    for pattern in ("n1.nodes.example.org", "*.nodes.example.org", "spiffe://a/node/*", "other spiffe://a/*/1"):
        assert passes(shown, *pattern.split()), pattern
    for pattern in ("nodes.example.org", "*.example.org", "n2.*", "spiffe://a/*", "spiffe://a/node/1/x"):
        assert not passes(shown, pattern), pattern
    assert not passes(certificate(BOTH, common="n1.nodes.example.org"), "n1.nodes.example.org")
    assert not passes(b"no certificate", "x")


def test_a_certificate_can_be_for_one_node_alone() -> None:
    shown = certificate(BOTH, x509.UniformResourceIdentifier(f"spiffe://a/{ID}"))
    assert passes(shown, "spiffe://a/{id}")
    assert not passes(certificate(BOTH, x509.UniformResourceIdentifier("spiffe://a/" + "1" * 40)), "spiffe://a/{id}")


@pytest.mark.parametrize("name, pattern, is_so", [
    ("a.b", "a.b", True), ("a.b", "A.B", True), ("aXb", "a.b", False), ("x.a.b", "*.a.b", True), ("a.b", "*", False),
    ("x.y.a.b", "*.a.b", False), ("n-7.b", "n-*.b", True), ("", "*", True), ("spiffe://a/b", "spiffe://a/B", False),
    ("a", "[a]", False), ("a.b\n", "a.b", False),
])
def test_patterns(name: str, pattern: str, is_so: bool) -> None:
    assert matches(name, pattern) == is_so


# -- secrets -----------------------------------------------------------------------------------------------


def test_a_file_has_two_secrets_at_most_and_none_that_is_short(tmp_path: Path) -> None:
    path = tmp_path / "secret"

    def read(text: str) -> tuple[bytes, ...]:
        path.write_text(text)
        return cluster_secret.read_file(str(path))

    assert read("one that is long enough\n\n  two, long enough, too \n") == (
        b"one that is long enough", b"two, long enough, too",
    )
    three = "\n".join(["x" * 20] * 3)
    for text, words in (("", "nothing"), ("x" * 15, "soon guessed"), ("x" * 5000, "longer"),
                        ("x" * 20 + "\nshort", "soon guessed"), (three, "3 lines")):
        with pytest.raises(BadSecret, match=words):
            read(text)


def test_keys_of_secrets() -> None:
    """Golden: nodes of two builds must come to the same."""
    made = "00112233445566778899aabbccddeeff" * 2
    assert cluster_secret.key_of(made.encode()).hex() == made
    assert cluster_secret.key_of(b"correct horse battery staple").hex() == (
        "23c9bbde58584f3f73c485ccb2eb6013310bb0e0cf4e806706c5acd0d199feb5"
    )


# -- whether there is a bus --------------------------------------------------------------------------------


@pytest.mark.parametrize("flags, goes_by", [
    ({}, MACHINE), ({"requirepass": "x"}, ""), ({"bind": "", "unixsocket": "x"}, ""), ({"users-file": "x"}, ""),
    ({"cluster-secret": "x" * 16}, SECRET), ({"cluster-secret": "x" * 16, "requirepass": "x"}, SECRET),
])
def test_when_there_is_a_bus(
    flags: dict[str, str], goes_by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    settings = Settings(flags, environ={})
    if goes_by:
        assert credentials.read(settings).goes_by == goes_by
    else:
        with pytest.raises(NoBus, match="cluster-secret-file"):
            credentials.read(settings)


def test_where_no_secret_of_the_machine_can_be_kept_there_is_no_bus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(NoBus, match="cannot use"):
        credentials.read(Settings({}, environ={}))


def test_names_of_nodes_take_tls() -> None:
    with pytest.raises(SettingsError, match="takes tls-cluster yes"):
        credentials.read(Settings({"tls-node-name": "*.example.org"}, environ={}))
