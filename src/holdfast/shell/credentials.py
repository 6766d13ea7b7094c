"""What a node shows to other nodes, and what it asks of them. Decides whether there is a bus at all.

    a cluster-secret                     nodes that know it, anywhere
    tls-cluster and tls-node-name        nodes whose certificate has such a name, anywhere
    neither                              nodes of the same user on the same machine (cluster_secret.py), unless users, a
                                         password or the mode of a Unix socket guard the node: then there is no bus,
                                         or every process of that user could go past them

With tls-cluster the certificate is asked for as well, and both sides sign which certificates they saw.

All of it is read at the start and again on SIGHUP, as a whole or not at all.
"""
from __future__ import annotations

import hashlib
import re
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.core.config import Config
from holdfast.shell import cluster_secret, tls
from holdfast.shell.cluster_secret import KEY_BYTES, BadSecret
from holdfast.shell.handshake import CERTIFICATE, MACHINE, SECRET, Unwelcome
from holdfast.shell.settings import Settings, SettingsError

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

NODE = "{id}"
"""In tls-node-name: the id of the node that shows the certificate."""
HOW = ("set cluster-secret-file, the same at all nodes (`holdfast secret new FILE` makes one), or tls-cluster with "
       "tls-node-name")


class NoBus(Exception):
    """No other node can join this one; the message says why, and what to do about it."""


@dataclass(frozen=True)
class Credentials:
    goes_by: str
    keys: tuple[bytes, ...]
    """Of the secrets that are valid, the newest first."""
    to_nodes: ssl.SSLContext | None = None
    """How nodes elsewhere are spoken to; None: without TLS."""
    from_nodes: ssl.SSLContext | None = None
    certificate: bytes = b""
    """The hash of our own."""
    names: tuple[str, ...] = ()
    """Patterns of names, one of which a node has in its certificate."""

    def check(self, certificate: bytes, node_id: bytes) -> None:
        """Whether a node of that id may show this certificate. Raises Unwelcome."""
        from cryptography import x509

        try:
            shown = x509.load_der_x509_certificate(certificate)
            is_for_nodes, names = is_for_both_sides(shown), names_of(shown)
        except ValueError:
            raise Unwelcome("a certificate that cannot be read") from None
        if not is_for_nodes:
            raise Unwelcome("its certificate is not for both sides of a connection (serverAuth and clientAuth), as "
                            "that of a node is: is it that of a client?")
        if not self.names:
            return
        patterns = [pattern.replace(NODE, node_id.decode()) for pattern in self.names]
        if not any(matches(name, pattern) for name in names for pattern in patterns):
            raise Unwelcome("no name in its certificate is one that tls-node-name allows to it")


def is_guarded(config: Config) -> bool:
    """Whether clients are asked who they are, or cannot come in over the network at all."""
    return bool(config.text("users-file") or config.text("requirepass") or not config.text("bind").split())


def read(settings: Settings) -> Credentials:
    """Raises NoBus, or SettingsError where what was set cannot be used."""
    config = settings.config
    names = tuple(config.text("tls-node-name").split())
    if names and not config.is_on("tls-cluster"):
        raise SettingsError("tls-node-name says whose certificates are those of nodes: it takes tls-cluster yes")
    goes_by, keys = what_proves(settings, bool(names))
    if not config.is_on("tls-cluster"):
        return Credentials(goes_by, keys)
    to_nodes, from_nodes = tls.context(config, False, "yes"), tls.context(config, True, "yes")
    return Credentials(goes_by, keys, to_nodes, from_nodes, hash_of(tls.own_certificate(config)), names)


def what_proves(settings: Settings, has_names: bool) -> tuple[str, tuple[bytes, ...]]:
    config = settings.config
    if settings.secrets:
        return SECRET, tuple(cluster_secret.key_of(secret) for secret in settings.secrets)
    if config.is_on("tls-cluster") and has_names:
        return CERTIFICATE, (bytes(KEY_BYTES),)
    try:
        if config.number("core") > 0:
            secret = cluster_secret.of_cores(config.text("cluster-bus-unixsocket"))
            if secret:
                return MACHINE, (cluster_secret.key_of(secret),)
        if is_guarded(config):
            raise NoBus("clients of this node are asked who they are, and without a secret other processes of this "
                        f"user could join as nodes and go past that: {HOW}")
        return MACHINE, (cluster_secret.key_of(cluster_secret.machine_secret()),)
    except BadSecret as error:
        raise NoBus(f"{error}; {HOW}") from None


# -- certificates ------------------------------------------------------------------------------------------


def hash_of(certificate: bytes) -> bytes:
    return hashlib.sha256(certificate).digest()


def is_for_both_sides(shown: Certificate) -> bool:
    """A node dials and is dialed. A certificate that does not say what it is for is for anything."""
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    try:
        usage = shown.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    return ExtendedKeyUsageOID.SERVER_AUTH in usage and ExtendedKeyUsageOID.CLIENT_AUTH in usage


def names_of(shown: Certificate) -> list[str]:
    """The names that the authority vouches for: DNS names and URIs. The common name is none of these."""
    from cryptography import x509

    try:
        found = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    hosts = [name.lower() for name in found.get_values_for_type(x509.DNSName)]
    return hosts + found.get_values_for_type(x509.UniformResourceIdentifier)


def matches(name: str, pattern: str) -> bool:
    """`*` stands for anything within one part of a name: no dot of a host, no slash of a URI."""
    is_uri = "://" in pattern
    parts = [re.escape(part) for part in (pattern if is_uri else pattern.lower()).split("*")]
    return re.fullmatch(("[^/]*" if is_uri else "[^./]*").join(parts), name) is not None


__all__ = ["Credentials", "NoBus", "read"]
