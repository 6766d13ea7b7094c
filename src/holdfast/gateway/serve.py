"""HTTP by uvicorn and gRPC in one loop, before one queue: a gateway as a process, until a signal, or inside a program
that serves its embedded queue (holdfast.serving)."""
from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from holdfast.client.errors import BadRequest, Error
from holdfast.client.queue import AsyncQueue
from holdfast.doors import aopen
from holdfast.gateway.app import make_app
from holdfast.gateway.asking import Behind
from holdfast.gateway.connections import Places
from holdfast.gateway.who import Door
from holdfast.shell.listening import is_loopback
from holdfast.shell.settings import SettingsError

log = logging.getLogger("holdfast.gateway")

GRACE_S = 10
"""How long requests that are under way have to end after SIGTERM."""
DOUBT_S = 2.0
"""After so long without an answer a node is asked whether it is there, and has as long again to say so: one that is
stopped costs a caller twice this, once, and then nobody any more. A node answers within milliseconds."""
AGAIN_S = 0.2
"""Between two looks whether a node is there: they often start at the same time."""


@dataclass
class Plan:
    """What a gateway is to be. A port of -1: not that way."""

    connect: str = ""
    bind: str = "127.0.0.1"
    http: int = 7780
    grpc: int = 7790
    queue: str = "default"
    size: int = 0
    users: Path | None = None
    insecure: bool = False
    cert: str = ""
    key: str = ""
    ca: str = ""
    lake: Path | None = None
    console: bool = True
    grace_s: int = GRACE_S
    hosts: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    """Addresses of proxies that are believed when they say whom they ask for."""

    def check(self) -> None:
        """Raises SettingsError where it must not be like this."""
        if not is_loopback(self.bind) and self.users is None and not self.insecure:
            raise SettingsError(
                f"refusing to listen on {self.bind} without users. Give a --users-file (see `holdfast users`), or say "
                "--insecure if the network is yours alone"
            )
        if bool(self.cert) != bool(self.key):
            raise SettingsError("TLS takes both --tls-cert and --tls-key")
        if self.ca and not self.cert:
            raise SettingsError("--tls-ca goes with --tls-cert")


class Gateway:
    """Runs until `stop`. `http_port` and `grpc_port` are what it listens on, once `ready` is set."""

    def __init__(self, plan: Plan, door: Door | None = None) -> None:
        self.plan = plan
        if door is None:
            plan.check()
            door = Door(plan.users)
        self.door = door
        self.places = Places()
        self.ready = asyncio.Event()
        self.stopping = asyncio.Event()
        self.http_port = 0
        self.grpc_port = 0
        self.server: uvicorn.Server | None = None
        self.rpc: Any = None
        self.is_told = False  # that no node answers

    async def run(self) -> None:
        queue = await aopen(self.plan.connect, try_now=False, connect_timeout=2 * DOUBT_S, doubt_s=DOUBT_S)
        greeting: asyncio.Task[None] | None = None
        try:
            if not await self.greet(queue):
                greeting = asyncio.create_task(self.greet_until_answered(queue))
                greeting.add_done_callback(self.after_greeting)
            await self.serve(queue)
        finally:
            if greeting is not None:
                greeting.cancel()
            await queue.close()
            self.door.close()
        if greeting is not None and greeting.done() and not greeting.cancelled():
            greeting.result()  # raises why we had to stop

    async def greet(self, queue: AsyncQueue) -> bool:
        """Whether a node is there; if so, it knows how long the queue may get. What waiting does not mend is raised."""
        try:
            await queue.call("PING")
            if self.plan.size > 0:
                await queue.configure(self.plan.queue, totalmaxlen=self.plan.size)
        except BadRequest:
            raise
        except Error as error:
            if not self.is_told:
                log.warning("no node answers at %s (%s); trying again", without_secret(self.plan.connect), error)
            self.is_told = True
            return False
        return True

    async def greet_until_answered(self, queue: AsyncQueue) -> None:
        """The nodes may be starting, too. Meanwhile /healthz says that we are there, /readyz that nobody else is."""
        while not await self.greet(queue):
            await asyncio.sleep(AGAIN_S)
        log.info("a node answers")

    def after_greeting(self, greeting: asyncio.Task[None]) -> None:
        if not greeting.cancelled() and greeting.exception() is not None:
            self.stop()

    async def serve(self, queue: AsyncQueue) -> None:
        plan = self.plan
        if plan.grpc >= 0:
            from holdfast.gateway import rpc

            host = f"[{plan.bind}]" if ":" in plan.bind else plan.bind
            behind = Behind(queue, self.door, plan.queue)
            self.rpc = await rpc.start(behind, f"{host}:{plan.grpc}", self.credentials())
            self.grpc_port = self.rpc.holdfast_port
        try:
            if plan.http >= 0:
                await self.serve_http(queue)
            else:
                self.ready.set()
                await self.stopping.wait()
        finally:
            if self.rpc is not None:
                await self.rpc.stop(plan.grace_s)

    async def serve_http(self, queue: AsyncQueue) -> None:
        plan = self.plan
        app = make_app(queue, self.door, plan.queue, plan.lake, plan.console, plan.hosts)
        listening = listen(plan.bind, plan.http)
        self.http_port = listening.getsockname()[1]
        config = uvicorn.Config(
            app, log_config=None, access_log=False, timeout_graceful_shutdown=plan.grace_s, lifespan="off",
            ssl_certfile=plan.cert or None, ssl_keyfile=plan.key or None, ssl_ca_certs=plan.ca or None,
            ssl_cert_reqs=ssl.CERT_REQUIRED if plan.ca else ssl.CERT_NONE, server_header=False,
            http=self.places.protocol(), ws="none",
            proxy_headers=bool(plan.proxies), forwarded_allow_ips=list(plan.proxies),
        )
        self.server = uvicorn.Server(config)
        self.server.should_exit = self.stopping.is_set()  # told to while we looked for a node
        self.server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        serving = asyncio.create_task(self.server.serve([listening]))
        try:
            while not self.server.started and not serving.done():
                await asyncio.sleep(0.01)
            self.ready.set()
            await serving
        finally:
            await app.state.live.close()

    def credentials(self) -> Any:
        if not self.plan.cert:
            return None
        import grpc

        ca = Path(self.plan.ca).read_bytes() if self.plan.ca else None
        pair = (Path(self.plan.key).read_bytes(), Path(self.plan.cert).read_bytes())
        return grpc.ssl_server_credentials([pair], ca, require_client_auth=bool(ca))

    def stop(self) -> None:
        self.stopping.set()
        if self.server is not None:
            self.server.should_exit = True

    def reload(self) -> None:
        try:
            self.door.reload()
            log.info("users reloaded")
        except SettingsError as error:
            log.error("users not reloaded: %s", error)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens. Ours, since uvicorn ends the process where it cannot have one."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise SettingsError(f"cannot listen on {host} port {port}: {error.strerror}") from error


async def run(plan: Plan) -> None:
    """Until SIGTERM or SIGINT; SIGHUP reads the users again."""
    gateway = Gateway(plan)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, gateway.stop)
    loop.add_signal_handler(signal.SIGHUP, gateway.reload)
    running = asyncio.create_task(gateway.run())
    waiting = asyncio.create_task(gateway.ready.wait())
    await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
    if gateway.ready.is_set():
        scheme = "https" if plan.cert else "http"
        rpc = f"gRPC on {gateway.grpc_port}" if plan.grpc >= 0 else "no gRPC"
        log.info("ready on %s://%s:%d, %s, before %s", scheme, plan.bind, gateway.http_port, rpc,
                 without_secret(plan.connect))
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


def without_secret(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"
