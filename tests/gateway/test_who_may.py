"""Users over HTTP and gRPC: the same roles and queues as at a node, tokens that are bound to less, TLS."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import trustme
from tests.gateway.running import Gateway, address
from tests.proc.harness import Node
from tests.proc.users_file import SECRETS, users

import holdfast
from holdfast.client.errors import NotAllowed, Unreachable


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    path = tmp_path_factory.mktemp("users") / "users.toml"
    users(path, "add", "boss", "--role", "admin", "--secret-stdin", secret=SECRETS["boss"])
    users(path, "add", "shop", "--role", "produce", "--queue", "orders.*", "--secret-stdin", secret=SECRETS["shop"])
    with Node("--users-file", str(path)) as node, Gateway(
        address(node).replace("//", "//boss@"), "--users-file", str(path), env={"HOLDFAST_SECRET": SECRETS["boss"]}
    ) as gateway:
        yield gateway


def bearer(name: str, more: str = "", secret: str = "") -> dict[str, str]:
    return {"Authorization": f"Bearer {name}.{secret or SECRETS[name]}{more}"}


def test_a_stranger_is_asked_who_it_is(guarded: Gateway) -> None:
    with guarded.client() as http:
        answer = http.get("/stats")
        assert answer.status_code == 401 and "Bearer" in answer.headers["www-authenticate"]
        assert http.get("/stats", headers=bearer("boss", secret="wrong-wrong-wrong")).status_code == 401
        assert http.get("/healthz").status_code == 200


@pytest.mark.parametrize(("name", "more", "method", "path", "body", "status"), [
    ("boss", "", "GET", "/v1/info", None, 200),
    ("shop", "", "POST", "/v1/queues/orders.new/jobs", {"body": "x"}, 201),
    ("shop", "", "POST", "/v1/queues/mail/jobs", {"body": "x"}, 403),
    ("shop", "", "POST", "/v1/take", {"queues": ["orders.new"]}, 403),
    ("shop", "", "GET", "/v1/queues", None, 403),
    ("shop", "", "PATCH", "/v1/queues/orders.new", {"maxlen": 1}, 403),
    ("boss", ";scope=read", "GET", "/v1/info", None, 200),
    ("boss", ";scope=read", "POST", "/v1/queues/q/jobs", {"body": "x"}, 403),
    ("boss", ";scope=produce;queues=a", "POST", "/v1/queues/a/jobs", {"body": "x"}, 201),
    ("boss", ";scope=produce;queues=a", "POST", "/v1/queues/b/jobs", {"body": "x"}, 403),
    ("shop", ";scope=admin", "GET", "/v1/info", None, 403),
    ("shop", ";queues=mail", "POST", "/v1/queues/mail/jobs", {"body": "x"}, 401),
    ("shop", ";nonsense=1", "GET", "/v1/info", None, 401),
])
def test_roles_queues_and_bound_tokens(
    guarded: Gateway, name: str, more: str, method: str, path: str, body: object, status: int
) -> None:
    with guarded.client() as http:
        answer = http.request(method, path, json=body, headers=bearer(name, more))
        assert answer.status_code == status, answer.text


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_our_clients_log_in_through_a_gateway(guarded: Gateway, scheme: str) -> None:
    port = guarded.port if scheme == "http" else guarded.grpc_port
    with holdfast.open(f"{scheme}://shop:{SECRETS['shop']}@127.0.0.1:{port}") as q:
        assert len(q.add("orders.new", "x")) == 48
        with pytest.raises(NotAllowed):
            q.add("mail", "x")
        with pytest.raises(NotAllowed):
            q.take("orders.new")
    with pytest.raises(NotAllowed), holdfast.open(f"{scheme}://shop:wrong-wrong-wrong@127.0.0.1:{port}") as q:
        q.add("orders.new", "x")


def test_tls_on_http_and_grpc(node: Node, tmp_path: Path) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    server, client = ca.issue_cert("127.0.0.1", "localhost"), ca.issue_cert("me.example.org", common_name="me")
    server.private_key_pem.write_to_path(tmp_path / "key.pem")
    server.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    client.private_key_pem.write_to_path(tmp_path / "my.key")
    client.cert_chain_pems[0].write_to_path(tmp_path / "my.pem")
    flags = [f"--tls-{name}={tmp_path}/{name}.pem" for name in ("cert", "key", "ca")]
    with Gateway(address(node), *flags) as gateway:
        mine = f"?ca={tmp_path}/ca.pem&cert={tmp_path}/my.pem&key={tmp_path}/my.key"
        for url in (f"https://127.0.0.1:{gateway.port}", f"grpcs://localhost:{gateway.grpc_port}"):
            with holdfast.open(url + mine) as q:
                q.add("by-tls", "x")
                assert q.next("by-tls", timeout=5).body == b"x"
        with pytest.raises((Unreachable, holdfast.Error)):
            holdfast.open(f"https://127.0.0.1:{gateway.port}?ca={tmp_path}/ca.pem").add("q", "x")
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://127.0.0.1:{gateway.port}/healthz", trust_env=False)


def test_beyond_this_machine_only_with_users(node: Node) -> None:
    refused = Gateway(address(node), "--bind", "0.0.0.0", wait=False)
    assert refused.process.wait(30) == 1 and "without users" in refused.log()
