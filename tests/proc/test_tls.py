"""TLS with real certificates: clients on a port of their own, names on certificates, and links between nodes."""
from __future__ import annotations

import contextlib
import signal
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
import redis
import trustme
from cluster_harness import free_ports
from harness import Client, Node, until
from users_file import SECRETS, users

from holdfast.shell.handshake import CERTIFICATE, MAGIC, Hello

BIG = 300_000


class Papers:
    """A certificate authority, and files signed by it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = trustme.CA()
        self.ca.cert_pem.write_to_path(folder / "ca.pem")
        self.issue("node", "localhost", "127.0.0.1")

    def issue(self, name: str, *hosts: str, common_name: str | None = None) -> None:
        """Files for a name, in place of those that are there."""
        made = self.ca.issue_cert(*(hosts or (f"{name}.example.org",)), common_name=common_name)
        made.private_key_pem.write_to_path(self.folder / f"{name}.key")
        made.cert_chain_pems[0].write_to_path(self.folder / f"{name}.pem")

    def flags(self, port: int, **more: str) -> list[str]:
        settings = {
            "tls-port": str(port), "tls-cert-file": f"{self.folder}/node.pem",
            "tls-key-file": f"{self.folder}/node.key", "tls-ca-file": f"{self.folder}/ca.pem",
            **{key.replace("_", "-"): value for key, value in more.items()},
        }
        return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]

    def client(self, port: int, name: str = "") -> Client:
        """A client of ours behind TLS, with the certificate of that name."""
        made = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        if name:
            made.load_cert_chain(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        client = Client.__new__(Client)
        client.sock = made.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="localhost")
        client.data = b""
        return client


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return Papers(tmp_path_factory.mktemp("papers"))


def test_a_client_speaks_tls_and_gets_the_same_answers(papers: Papers) -> None:
    port = free_ports(1)[0]
    with Node(*papers.flags(port)) as node, papers.client(port) as client, node.client() as plain:
        job = client.ask("ADDJOB", "q", b"x" * BIG, 0)
        assert plain.ask("QLEN", "q") == 1
        assert client.ask("GETJOB", "FROM", "q") == [[b"q", job, b"x" * BIG]]
        client.send("GETJOB", "TIMEOUT", 10000, "FROM", "later")  # blocks, and is woken by somebody without TLS
        late = plain.ask("ADDJOB", "later", "hello", 0)
        assert client.read() == [[b"later", late, b"hello"]]
        assert plain.ask("CLIENT", "LIST").count(b"\n") == 2
        client.close()
        until(lambda: plain.ask("CLIENT", "LIST").count(b"\n") == 1)


def test_redis_py_connects_by_tls(papers: Papers) -> None:
    port = free_ports(1)[0]
    with Node(*papers.flags(port)):
        client = redis.Redis(port=port, ssl=True, ssl_ca_certs=f"{papers.folder}/ca.pem", ssl_check_hostname=False)
        pipe = client.pipeline(transaction=False)
        for i in range(500):
            pipe.execute_command("ADDJOB", "q", f"{i}" * 100, 0)
        assert len(set(pipe.execute())) == 500
        client.close()


def test_old_tls_and_no_tls_are_refused(papers: Papers) -> None:
    port = free_ports(1)[0]
    with Node(*papers.flags(port)) as node:
        with Client(("127.0.0.1", port)) as plain:
            plain.send_raw(b"PING\r\n")
            assert b"PONG" not in plain.read_to_end()
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        with contextlib.suppress(ValueError):
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, OSError)), socket.create_connection(("127.0.0.1", port)) as sock:
            old.wrap_socket(sock)
        with node.client() as client:
            assert client.ask("PING") == b"PONG"


def test_a_certificate_is_asked_for_and_logs_its_owner_in(papers: Papers, tmp_path: Path) -> None:
    users(tmp_path / "users.toml", "add", "shop", "--role", "produce", "--secret-stdin", secret=SECRETS["shop"])
    papers.issue("shop", common_name="shop")
    papers.issue("stranger", common_name="stranger")
    port = free_ports(1)[0]
    flags = papers.flags(port, tls_auth_clients="yes", users_file=f"{tmp_path}/users.toml")
    with Node(*flags) as node:
        with papers.client(port, "shop") as shop:
            assert len(shop.ask("ADDJOB", "q", "x", 0)) == 48
            assert shop.ask("CONFIG", "GET", "*").startswith(b"NOPERM")
        with papers.client(port, "stranger") as stranger:
            assert stranger.ask("PING").startswith(b"NOAUTH")
        with pytest.raises((OSError, EOFError)), papers.client(port) as nobody:
            nobody.ask("PING")
        assert node.alarms() == []


def start_some(papers: Papers, tmp_path: Path, *flags: tuple[str, ...]) -> contextlib.ExitStack:
    stack = contextlib.ExitStack()
    ports = free_ports(len(flags))
    nodes: list[Any] = []
    for i, each in enumerate(flags):
        join = ("--join", f"127.0.0.1:{ports[0]}") if i else ()
        folder = tmp_path / str(i)
        nodes.append(stack.enter_context(Node("--dir", str(folder), *each, *join, port=ports[i])))
    stack.nodes = nodes  # type: ignore[attr-defined]
    return stack


def test_nodes_are_linked_by_tls_and_copy_jobs(papers: Papers, tmp_path: Path) -> None:
    flags = tuple(papers.flags(0, tls_cluster="yes"))
    with start_some(papers, tmp_path, flags, flags) as stack:
        a, b = stack.nodes  # type: ignore[attr-defined]
        with a.client() as client, b.client() as other:
            until(lambda: b"cluster_size:2" in client.ask("CLUSTER", "INFO") or len(client.ask("HELLO")) == 4)
            job = until(lambda: (lambda r: r if len(r) == 48 else None)(
                client.ask("ADDJOB", "q", b"y" * BIG, 5000, "REPLICATE", 2)))
            assert other.ask("SHOW", job) is not None
            assert client.ask("ACKJOB", job) == 1
            until(lambda: other.ask("SHOW", job) is None)


def test_a_node_without_tls_is_not_linked(papers: Papers, tmp_path: Path) -> None:
    with start_some(papers, tmp_path, tuple(papers.flags(0, tls_cluster="yes")), ()) as stack:
        a = stack.nodes[0]  # type: ignore[attr-defined]
        until(lambda: "no TLS with it" in a.log())
        with a.client() as client:
            assert client.ask("ADDJOB", "q", "x", 100, "REPLICATE", 2).startswith(b"NOREPL")


def test_papers_that_do_not_fit_stop_the_start_with_words(papers: Papers, tmp_path: Path) -> None:
    port = free_ports(1)[0]
    for flags, words in (
        (["--set", f"tls-port={port}"], "TLS takes a tls-cert-file"),
        ([*papers.flags(port), "--set", f"tls-key-file={tmp_path}/none"], "cannot use"),
        ([*papers.flags(port, tls_auth_clients="yes"), "--set", "tls-ca-file="], "set tls-ca-file"),
    ):
        node = Node(*flags, wait=False)
        assert node.wait() == 1 and words in node.log(), node.log()
        node.stop()


# -- whose certificate is that of a node -------------------------------------------------------------------


def in_cluster(papers: Papers, name: str, *more: str) -> list[str]:
    """Flags of a node with the certificate of that name."""
    files = [f"tls-cert-file={papers.folder}/{name}.pem", f"tls-key-file={papers.folder}/{name}.key",
             f"tls-ca-file={papers.folder}/ca.pem", "tls-cluster=yes", *more]
    return [word for setting in files for word in ("--set", setting)]


def test_the_certificate_of_a_client_is_not_that_of_a_node(papers: Papers, tmp_path: Path) -> None:
    """Also where its owner has come by the secret, and where it was issued for both sides of a connection."""
    papers.issue("prod", "prod.clients.example.org")
    papers.issue("n1", "n1.nodes.example.org")
    papers.issue("n2", "n2.nodes.example.org")
    ours = "tls-node-name=*.nodes.example.org", "cluster-secret=known to them all"
    theirs = "tls-node-name=*.example.org *.clients.example.org *.nodes.example.org", ours[1]
    flags = [in_cluster(papers, "n1", *ours), in_cluster(papers, "n2", *ours), in_cluster(papers, "prod", *theirs)]
    with start_some(papers, tmp_path, *(tuple(each) for each in flags)) as stack:
        first, second, rogue = stack.nodes  # type: ignore[attr-defined]
        with first.client() as client, rogue.client() as theirs_client:
            until(lambda: b"cluster_reachable_nodes:1" in client.ask("CLUSTER", "INFO"))
            until(lambda: "no name in its certificate is one that tls-node-name allows" in first.log())
            assert b"cluster_reachable_nodes:0" in theirs_client.ask("CLUSTER", "INFO")
            assert client.ask("CLUSTER", "INFO").count(b"cluster_reachable_nodes:1") == 1
        until(lambda: "linked, at" in second.log())
        assert "linked, at" not in rogue.log()


def test_certificates_with_names_of_nodes_are_enough_without_a_secret(papers: Papers, tmp_path: Path) -> None:
    papers.issue("n1", "n1.nodes.example.org")
    papers.issue("n2", "n2.nodes.example.org")
    more = "tls-node-name=*.nodes.example.org", "requirepass=a password"
    flags = [tuple(in_cluster(papers, name, *more)) for name in ("n1", "n2")]
    with start_some(papers, tmp_path, *flags) as stack:
        first, _ = stack.nodes  # type: ignore[attr-defined]
        with first.client() as client:
            client.ask("AUTH", "a password")
            until(lambda: b"cluster_reachable_nodes:1" in client.ask("CLUSTER", "INFO"))
            assert client.ask("ADDJOB", "q", "body", 5000, "REPLICATE", 2).startswith(b"DI")


def test_without_a_secret_a_unix_socket_takes_a_certificate_too(papers: Papers, tmp_path: Path) -> None:
    """Or each process of the same user could join over it."""
    papers.issue("n1", "n1.nodes.example.org")
    papers.issue("n2", "n2.nodes.example.org")
    bus = tmp_path / "bus"
    more = "tls-node-name=*.nodes.example.org", "requirepass=a password"
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(Node(*in_cluster(papers, "n1", *more, f"cluster-bus-unixsocket={bus}")))
        second = stack.enter_context(Node(*in_cluster(papers, "n2", *more), "--join", f"unix:{bus}"))
        with first.client() as client:
            client.ask("AUTH", "a password")
            until(lambda: b"cluster_reachable_nodes:1" in client.ask("CLUSTER", "INFO"))
        until(lambda: "linked, at" in second.log())
        with socket.socket(socket.AF_UNIX) as rogue:
            rogue.connect(str(bus))
            hello = Hello(b"0" * 40, 1, 1, 1, 1, goes_by=CERTIFICATE).anew()
            rogue.sendall(hello.pack())
            rogue.settimeout(10)
            with contextlib.suppress(ConnectionError):
                assert MAGIC not in rogue.recv(4096), "the node speaks to it without TLS"
        until(lambda: "no TLS with it" in first.log())


def serial(port: int, papers: Papers) -> bytes:
    """Of the certificate that is shown at a port."""
    made = ssl.create_default_context(cafile=str(papers.folder / "ca.pem"))
    made.check_hostname = False
    made.load_cert_chain(papers.folder / "n1.pem", papers.folder / "n1.key")
    with socket.create_connection(("127.0.0.1", port)) as sock, made.wrap_socket(sock) as covered:
        shown = covered.getpeercert()
        assert shown is not None
        return str(shown["serialNumber"]).encode()


def test_certificates_are_read_again_on_sighup(papers: Papers, tmp_path: Path) -> None:
    papers.issue("n1", "n1.nodes.example.org")
    papers.issue("n2", "n2.nodes.example.org")
    client_port = free_ports(3)[2]  # start_some takes the first two
    more = "tls-node-name=*.nodes.example.org", "cluster-secret=known to them all"
    flags = [(*in_cluster(papers, "n1", *more), "--set", f"tls-port={client_port}"), in_cluster(papers, "n2", *more)]
    with start_some(papers, tmp_path, *(tuple(each) for each in flags)) as stack:
        first, _ = stack.nodes  # type: ignore[attr-defined]
        with first.client() as client:
            until(lambda: b"cluster_reachable_nodes:1" in client.ask("CLUSTER", "INFO"))
            doors = first.port + 10_000, client_port
            before = [serial(port, papers) for port in doors]
            papers.issue("n1", "n1.nodes.example.org")
            first.signal(signal.SIGHUP)
            until(lambda: all(serial(port, papers) not in before for port in doors))
            good = (papers.folder / "n1.pem").read_text()
            (papers.folder / "n1.pem").write_text("no certificate")
            first.signal(signal.SIGHUP)
            until(lambda: "no new links with other nodes until secrets and certificates can be read" in first.log())
            assert b"credentials_reload_failed:1" in client.ask("INFO", "stats")
            (papers.folder / "n1.pem").write_text(good)
            first.signal(signal.SIGHUP)
            until(lambda: b"credentials_reload_failed:0" in client.ask("INFO", "stats"))
            assert client.ask("ADDJOB", "q", "body", 5000, "REPLICATE", 2).startswith(b"DI"), "the link was left alone"
