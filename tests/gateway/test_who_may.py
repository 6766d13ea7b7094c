"""Users over HTTP and gRPC: the same roles and queues as at a node, tokens that are bound to less, TLS."""
from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import httpx
import pytest
import trustme
from tests.gateway.running import Gateway, address
from tests.proc.harness import Node
from tests.proc.users_file import SECRETS, users
from tests.unit.core.spelled import phrases
from tests.unit.core.test_users import is_refused, keeper

import holdfast
from holdfast.client.errors import NotAllowed, Unreachable
from holdfast.client.resp import Argv, Reply, to_bytes
from holdfast.core.rights import READ, User
from holdfast.core.users import may_touch
from holdfast.gateway.proto import messages as pb
from holdfast.gateway.proto import services
from holdfast.gateway.who import Allowed, narrow, queues_of


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    path = tmp_path_factory.mktemp("users") / "users.toml"
    users(path, "add", "boss", "--role", "admin", "--secret-stdin", secret=SECRETS["boss"])
    users(path, "add", "shop", "--role", "produce", "--queue", "orders.*", "--secret-stdin", secret=SECRETS["shop"])
    roles = [word for role in ("read", "produce", "consume") for word in ("--role", role)]
    users(path, "add", "mailer", *roles, "--queue", "mail.*", "--secret-stdin", secret=SECRETS["mailer"])
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
    ("boss", ";queues=q", "GET", "/v1/queues/q", None, 200),
    ("boss", ";queues=?", "GET", "/v1/queues", None, 403),
    ("boss", ";queues=[*]", "GET", "/v1/queues/*", None, 403),
    ("shop", ";scope=admin", "GET", "/v1/info", None, 403),
    ("shop", ";queues=mail", "POST", "/v1/queues/mail/jobs", {"body": "x"}, 401),
    ("shop", ";queues=*", "POST", "/v1/queues/orders.new/jobs", {"body": "x"}, 201),
    ("shop", ";queues=*", "POST", "/v1/queues/mail/jobs", {"body": "x"}, 403),
    ("shop", ";queues=mail,*", "POST", "/v1/queues/mail/jobs", {"body": "x"}, 403),
    ("shop", ";queues=orders.new", "POST", "/v1/queues/orders.old/jobs", {"body": "x"}, 403),
    ("shop", ";nonsense=1", "GET", "/v1/info", None, 401),
])
def test_roles_queues_and_bound_tokens(
    guarded: Gateway, name: str, more: str, method: str, path: str, body: object, status: int
) -> None:
    with guarded.client() as http:
        answer = http.request(method, path, json=body, headers=bearer(name, more))
        assert answer.status_code == status, answer.text


@pytest.mark.parametrize(("patterns", "words", "touches"), [
    ([b"mail.?"], "queues=mail.*", {b"mail.a"}), ([b"mail.?"], "queues=*", {b"mail.a", b"mail.b"}),
    ([b"mail.*"], "queues=mail.?", {b"mail.a", b"mail.b"}), ([b"?"], "queues=[*],?", {b"q"}),
    ([b"??????"], "queues=mail.*,**", {b"mail.a", b"mail.b"}), ([], "queues=mail.a", {b"mail.a"}),
    ([b"mail.?"], "queues=mail.a;queues=*", {b"mail.a"}),
])
def test_a_token_is_never_bound_to_more_than_its_user(patterns: list[bytes], words: str, touches: set[bytes]) -> None:
    names = (b"mail.a", b"mail.b", b"mail.secret", b"q", b"*")
    bound = narrow(User(b"u", READ, patterns), words)
    assert bound.patterns and {name for name in names if may_touch(bound, name)} >= touches
    user = User(b"u", READ, patterns or [b"*"])
    assert not {name for name in names if may_touch(bound, name) and not may_touch(user, name)}


def test_a_user_bound_to_queues_gets_at_no_job_of_another_by_its_id(guarded: Gateway) -> None:
    """Of its own queue each of these is answered; nothing has happened to the job of the other."""
    with guarded.client(headers=bearer("boss")) as boss, guarded.client(headers=bearer("mailer")) as http:
        ids = {}
        for queue in ("mail.out", "payroll"):
            boss.post(f"/v1/queues/{queue}/jobs", json={"body": "secret"}).raise_for_status()
            ids[queue] = boss.post("/v1/take", json={"queues": [queue], "lease": 60}).json()["jobs"][0]
        for queue, job in ids.items():
            at, held = f"/v1/jobs/{job['id']}", {"token": job["token"]}
            command = b"*2\r\n$4\r\nSHOW\r\n$48\r\n%b\r\n" % job["id"].encode()
            resp = {"Content-Type": "application/vnd.holdfast.resp"}
            answers = [
                http.get(at), http.get(f"{at}/explain"), http.post(f"{at}/extend", json={**held, "seconds": 60}),
                http.post(f"{at}/progress", json={**held, "fraction": 0.5}),
                http.post("/v1/keepalive", json={"seconds": 60, "jobs": [{"id": job["id"], **held}]}),
                http.post("/v1/call", content=command, headers=resp), http.post(f"{at}/cancel"),
                http.post("/v1/wait", json={"ids": [job["id"]], "timeout": 0.01}),
                http.post(f"{at}/release", json=held), http.post(f"{at}/fail", json={}),
                http.post(f"{at}/done", json={}), http.delete(at),
            ]
            codes = {answer.status_code for answer in answers}
            if queue == "payroll":
                assert codes == {403}, [answer.text for answer in answers]
                assert "may not touch the queue 'payroll'" in answers[0].json()["detail"]
            else:
                assert codes <= {200, 204, 404, 409}, [answer.text for answer in answers]
        bound = guarded.client(headers=bearer("boss", ";scope=admin;queues=mail.*"))
        assert bound.patch(f"/v1/jobs/{ids['payroll']['id']}", json={"run_now": True}).status_code == 403
        left = boss.get(f"/v1/jobs/{ids['payroll']['id']}").json()
        assert left["token"] == ids["payroll"]["token"] and left["progress"] is None
        assert boss.post(f"/v1/jobs/{ids['payroll']['id']}/done", json={}).json() == {"count": 1}


def test_nor_over_grpc(guarded: Gateway) -> None:
    with guarded.client(headers=bearer("boss")) as boss, grpc.insecure_channel(
        f"127.0.0.1:{guarded.grpc_port}"
    ) as channel:
        job = boss.post("/v1/queues/payroll/jobs", json={"body": "secret"}).json()["id"]
        stub, held = services.QueueStub(channel), pb.Held(id=job, token="")
        me = (("authorization", bearer("mailer")["Authorization"]),)
        for method, said in (
            ("Explain", pb.JobRequest(id=job)), ("Cancel", pb.JobRequest(id=job)), ("Done", pb.DoneRequest(job=held)),
            ("Fail", pb.FailRequest(job=held)), ("Release", pb.ReleaseRequest(job=held)),
            ("Wait", pb.WaitRequest(ids=[job])), ("Progress", pb.ProgressRequest(job=held, fraction=0.1)),
            ("KeepAlive", pb.KeepAliveRequest(jobs=[pb.Held(id=job, token="1.1.1")], seconds=1)),
            ("Call", pb.CallRequest(commands=[pb.Words(words=[b"ACKJOB", job.encode()])])),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                getattr(stub, method)(said, metadata=me)
            assert caught.value.code() == grpc.StatusCode.PERMISSION_DENIED, (method, caught.value.details())
        assert boss.delete(f"/v1/jobs/{job}").status_code == 204


def test_a_job_is_looked_for_where_it_was_made_and_then_elsewhere() -> None:
    """What one node does not know another may: a job goes where it is wanted."""
    ids = [b"DI" + origin + b"0" * 36 + b"SQ" for origin in (b"aaaaaaaa", b"bbbbbbbb", b"cccccccc")]
    known = {("aaaaaaaa", ids[0]): b"here", ("bbbbbbbb", ids[2]): b"there"}
    asked: list[tuple[str, int]] = []

    class Nodes:
        async def call(self, argv: Argv, patience: float | None = 0.0, undo: object = None, near: str = "") -> Reply:
            return b"aaaaaaaa1 :1\nbbbbbbbb2 :2\n"

        async def call_many(self, commands: Sequence[Argv], near: str = "") -> list[Reply]:
            asked.append((near, len(commands)))
            found = [known.get((near, to_bytes(argv[1]))) for argv in commands]
            return [None if queue is None else [b"id", b"x", b"queue", queue] for queue in found]

        async def close(self) -> None: ...

    with ThreadPoolExecutor(1) as aside:  # a browser of other tests may have its loop in this thread
        assert aside.submit(asyncio.run, queues_of(Nodes(), ids)).result() == {b"here", b"there"}
    assert asked == [("aaaaaaaa", 1), ("bbbbbbbb", 1), ("cccccccc", 1), ("aaaaaaaa", 2), ("bbbbbbbb", 2)]


class OneQueue:
    """Nodes whose jobs and schedules are all of one queue."""

    def __init__(self, queue: str) -> None:
        self.described: Reply = [b"name", b"x", b"queue", queue.encode()]

    async def call(self, argv: Argv, patience: float | None = 0.0, undo: object = None, near: str = "") -> Reply:
        return self.described

    async def call_many(self, commands: Sequence[Argv], near: str = "") -> list[Reply]:
        return [self.described for _ in commands]

    async def close(self) -> None: ...


@pytest.mark.parametrize("queue", ["other", "mine.x"])
def test_a_gateway_lets_nobody_by_whom_a_node_would_not(queue: str) -> None:
    """Every command of the table, said by an admin of the queues mine.*."""
    bench, user, job = keeper(queue)
    allowed = Allowed(OneQueue(queue), user)

    async def refused() -> list[list[bytes]]:
        found = []
        for _, argv in phrases(queue, job):
            try:
                await allowed.check([argv])
            except NotAllowed:
                found.append(argv)
        return found

    with ThreadPoolExecutor(1) as aside:
        at_gateway = aside.submit(asyncio.run, refused()).result()
    assert at_gateway == [argv for _, argv in phrases(queue, job) if is_refused(bench, user, argv)]


@pytest.mark.parametrize(("method", "path", "body"), [
    ("POST", "/v1/queues/payroll/flush", {}), ("POST", "/v1/queues/payroll/pause", {"how": "all"}),
    ("PATCH", "/v1/queues/payroll", {"maxlen": 1}), ("POST", "/v1/dead/retry", {"queue": "payroll"}),
    ("POST", "/v1/dead/delete", {}), ("PUT", "/v1/cron/pay", {"schedule": "@daily", "queue": "payroll", "body": "x"}),
    ("PUT", "/v1/cron/pay", {"schedule": "@daily", "queue": "mail.x", "body": "x"}), ("DELETE", "/v1/cron/pay", None),
    ("PATCH", "/v1/jobs/{mail}", {"queue": "payroll"}), ("PATCH", "/v1/jobs/{payroll}", {"priority": 9}),
    ("PUT", "/v1/domains/example.org", {"rate": "1/s"}), ("DELETE", "/v1/domains/example.org", None),
])
def test_an_admin_of_some_queues_changes_no_others(guarded: Gateway, method: str, path: str, body: object) -> None:
    with guarded.client(headers=bearer("boss")) as boss, guarded.client(
        headers=bearer("boss", ";scope=admin;queues=mail.*")
    ) as http:
        ids = {name: boss.post(f"/v1/queues/{queue}/jobs", json={"body": "x"}).json()["id"]
               for name, queue in (("mail", "mail.x"), ("payroll", "payroll"))}
        boss.put("/v1/cron/pay", json={"schedule": "@daily", "queue": "payroll", "body": "x"}).raise_for_status()
        answer = http.request(method, path.format(**ids), json=body)
        assert answer.status_code == 403, answer.text
        mine = {"schedule": "@daily", "queue": "mail.x", "body": "x"}
        assert http.put("/v1/cron/letters", json=mine).status_code == 204
        assert http.delete("/v1/cron/letters").status_code == 204
        assert http.post("/v1/queues/mail.x/flush", json={}).json()["count"] >= 1
        assert boss.post("/v1/queues/payroll/flush", json={}).json()["count"] >= 1


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
