"""The gRPC side of a gateway: the service of proto/holdfast.proto over the same queue, with health and reflection.

Python code for the messages is made from the .proto when the package is built (setup.py), or at the first import where
that has not been done and grpcio-tools is there; it is never committed.
"""
from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from holdfast.client import asks, errors
from holdfast.client.delivery import entry_of
from holdfast.client.jobs import AsyncJob
from holdfast.client.queue import AsyncQueue
from holdfast.core.limits import MIB
from holdfast.gateway.asking import Behind
from holdfast.gateway.models import TAKE_MAX
from holdfast.gateway.problems import Unauthorized
from holdfast.gateway.proto import messages as pb
from holdfast.gateway.proto import services
from holdfast.gateway.tunnel import WAITS, encode, is_instant, patience_of
from holdfast.shell.settings import SettingsError
from holdfast.shell.strangers import CONNECTIONS_MAX, HANDSHAKE_S

MESSAGE_BYTES_MAX = 64 * MIB
IDLE_S = 60
"""A connection without a call is closed after this time; clients open it again when they have one."""
STREAMS_MAX = 256
"""Calls at one time on one connection."""
CALLS_MAX = 4096
"""Calls at one time on all connections. More are answered RESOURCE_EXHAUSTED."""
METADATA_BYTES_MAX = 16 * 1024
SERVICE = "holdfast.v1.Queue"
WORK_LEASE_S = 30.0
"""How long a stream has a job if it does not say; kept alive three times in that time."""
KEEP_S_MIN = 0.05
"""A lease that is shorter than this can't be kept by anybody."""
CREDIT_MAX = TAKE_MAX

STATUS: dict[type[Exception], grpc.StatusCode] = {
    errors.MaxLen: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.OutOfMemory: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.Duplicate: grpc.StatusCode.ALREADY_EXISTS,
    errors.LeaseLost: grpc.StatusCode.FAILED_PRECONDITION,
    errors.TooLate: grpc.StatusCode.FAILED_PRECONDITION,
    errors.NoJob: grpc.StatusCode.NOT_FOUND,
    errors.NotAllowed: grpc.StatusCode.PERMISSION_DENIED,
    errors.NotAvailable: grpc.StatusCode.UNIMPLEMENTED,
    errors.BadRequest: grpc.StatusCode.INVALID_ARGUMENT,
    errors.Refused: grpc.StatusCode.UNAVAILABLE,
    errors.Unknown: grpc.StatusCode.UNKNOWN,
    errors.Closed: grpc.StatusCode.UNAVAILABLE,
    errors.Error: grpc.StatusCode.INTERNAL,
    Unauthorized: grpc.StatusCode.UNAUTHENTICATED,
    TypeError: grpc.StatusCode.INVALID_ARGUMENT,
    ValueError: grpc.StatusCode.INVALID_ARGUMENT,
}
CODE = "holdfast-code"
JOBS = "holdfast-jobs"


def options_of(said: Any) -> dict[str, Any]:
    """What the message says, by the names of AddOptions."""
    found = {field.name: value for field, value in said.ListFields() if field.name not in ("headers", "batch", "index")}
    if found.get("ttl") == 0:
        found["ttl"] = None
    if said.headers:
        found["headers"] = dict(said.headers)
    if said.HasField("batch"):
        found["batch"] = (said.batch, said.index)
    return found


def held(queue: AsyncQueue, said: Any) -> AsyncJob:
    return AsyncJob(entry_of(said.id, said.token), queue)


def job_of(job: AsyncJob) -> Any:
    return pb.Job(
        id=job.id, queue=job.queue, body=job.body, token=job.token, attempt=job.attempt, priority=job.priority,
        nacks=job.nacks, additional_deliveries=job.additional_deliveries, headers=job.headers, keys=job.keys,
    )


def optional(said: Any, field: str) -> Any:
    return getattr(said, field) if said.HasField(field) else None


async def abort(context: Any, error: Exception) -> None:
    for kind in type(error).__mro__:
        if kind in STATUS:
            trailing = [(CODE, getattr(error, "code", "ERR"))]
            if isinstance(error, errors.Unknown):
                trailing.append((JOBS, ",".join(error.jobs)))
            text = error.text if isinstance(error, errors.Error) else str(error)
            await context.abort(STATUS[kind], text.encode("ascii", "backslashreplace").decode(), tuple(trailing))
    raise error


def reading(made: type[Any]) -> Callable[[bytes], Any]:
    """Read a message. Bytes that are none become the error that says so: raised here, grpc would call it UNKNOWN."""

    def read(data: bytes) -> Any:
        try:
            return made.FromString(data)
        except DecodeError:
            return errors.BadRequest(f"these bytes are no {made.DESCRIPTOR.name}")

    return read


def told(method: Callable[[Any, AsyncQueue, Any], Awaitable[Any]]) -> Callable[[Any, Any, Any], Awaitable[Any]]:
    """A call: who is it, may they, and what went wrong as a status. Who it is comes first: to the server each call is a
    stream, whose message is not taken in before somebody asks for it. On the wire there is no difference."""

    async def run(self: Service, requests: AsyncIterator[Any], context: Any) -> Any:
        try:
            queue = await self.queue(context)
            request = await anext(aiter(requests), None)
            if request is None:
                raise errors.BadRequest("a call has a message")
            if isinstance(request, errors.BadRequest):
                raise request
            return await method(self, queue, request)
        except Exception as error:
            await abort(context, error)

    return run


class Service(services.QueueServicer):  # type: ignore[name-defined,misc]  # made by a generator
    def __init__(self, behind: Behind) -> None:
        self.behind = behind

    async def queue(self, context: Any) -> AsyncQueue:
        """The queue as far as the caller may use it."""
        said = dict(context.invocation_metadata() or ())
        user = await self.behind.door.who(str(said.get("authorization", "")), address_in(context.peer()))
        return self.behind.for_user(user)

    @told
    async def Add(self, queue: AsyncQueue, said: Any) -> Any:
        return pb.AddReply(id=await queue.add(said.queue, said.body, **options_of(said.options)))

    @told
    async def AddMany(self, queue: AsyncQueue, said: Any) -> Any:
        return pb.AddManyReply(ids=await queue.add_many(said.queue, list(said.bodies), **options_of(said.options)))

    @told
    async def Take(self, queue: AsyncQueue, said: Any) -> Any:
        jobs = await queue.take(
            *said.queues, count=min(said.count or 1, TAKE_MAX), timeout=said.timeout, lease=optional(said, "lease")
        )
        return pb.TakeReply(jobs=map(job_of, jobs))

    @told
    async def Done(self, queue: AsyncQueue, said: Any) -> Any:
        return pb.Count(count=await queue.done(held(queue, said.job), result=optional(said, "result")))

    @told
    async def Fail(self, queue: AsyncQueue, said: Any) -> Any:
        return pb.Count(count=await fail(queue, said))

    @told
    async def Release(self, queue: AsyncQueue, said: Any) -> Any:
        return pb.Count(count=await queue.release(held(queue, said.job), after=optional(said, "after")))

    @told
    async def KeepAlive(self, queue: AsyncQueue, said: Any) -> Any:
        jobs = [held(queue, each) for each in said.jobs]
        return pb.KeepAliveReply(outcomes=await queue.keep(jobs, said.seconds))

    @told
    async def Progress(self, queue: AsyncQueue, said: Any) -> Any:
        return pb.ProgressReply(go_on=await queue.progress(held(queue, said.job), said.fraction, said.text))

    @told
    async def Cancel(self, queue: AsyncQueue, said: Any) -> Any:
        return pb.CancelReply(outcome=await queue.cancel(said.id))

    @told
    async def Wait(self, queue: AsyncQueue, said: Any) -> Any:
        found = await queue.wait(*said.ids, timeout=said.timeout or 0.001, any=said.any)
        return pb.WaitReply(jobs=[pb.Waited(id=each.id, state=each.state, result=each.result) for each in found])

    @told
    async def Explain(self, queue: AsyncQueue, said: Any) -> Any:
        found = await queue.explain(said.id)
        if found is None:
            raise errors.NoJob("nobody knows this job")
        reasons = [pb.Reason(code=each.code, words=each.words, ms_until=each.ms_until) for each in found.reasons]
        return pb.ExplainReply(
            id=found.id, state=found.state, summary=found.summary, reasons=reasons, history=found.history
        )

    @told
    async def Call(self, queue: AsyncQueue, said: Any) -> Any:
        commands = [list(each.words) for each in said.commands]
        if not commands or not all(commands):
            raise errors.BadRequest("a command has at least one word")
        if len(commands) == 1 and commands[0][0].upper() in WAITS and not is_instant(commands[0]):
            undo = asks.give_back if commands[0][0].upper() == b"GETJOB" else None
            replies = [await queue.channel.call(commands[0], patience_of(commands[0]), undo, said.near)]
        else:
            replies = await queue.channel.call_many(commands, said.near)
        return pb.CallReply(replies=map(encode, replies))

    async def Work(self, requests: AsyncIterator[Any], context: Any) -> None:
        try:
            await Stream(await self.queue(context), context).run(requests)
        except Exception as error:
            await abort(context, error)


async def fail(queue: AsyncQueue, said: Any) -> int:
    return await queue.fail(
        held(queue, said.job), error=said.error, after=optional(said, "after"), dead=said.dead, throttled=said.throttled
    )


class Stream:
    """One worker's stream: what it may still be given, and what it has."""

    def __init__(self, queue: AsyncQueue, context: Any) -> None:
        self.queue = queue
        self.context = context
        self.queues: list[str] = []
        self.credit = 0
        self.lease = WORK_LEASE_S
        self.held: dict[str, AsyncJob] = {}
        self.is_wanted = asyncio.Event()
        self.writing = asyncio.Lock()

    async def run(self, requests: AsyncIterator[Any]) -> None:
        first = await anext(requests, None)
        if isinstance(first, errors.BadRequest):
            raise first
        if first is None or first.WhichOneof("what") != "begin" or not first.begin.queues:
            raise errors.BadRequest("a stream begins with `begin`, and names at least one queue")
        self.queues = list(first.begin.queues)
        self.lease = first.begin.lease or WORK_LEASE_S
        self.want(first.begin.credit or 1)
        tasks = [asyncio.create_task(self.fetch()), asyncio.create_task(self.keep())]
        hearing = asyncio.create_task(self.hear(requests))
        try:
            done, _ = await asyncio.wait([hearing, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in [hearing, *tasks]:
                task.cancel()
            await asyncio.gather(hearing, *tasks, return_exceptions=True)
            if self.held:
                with contextlib.suppress(errors.Error):
                    await asyncio.shield(self.queue.release(*self.held.values()))

    def want(self, more: int) -> None:
        self.credit = max(0, min(CREDIT_MAX, self.credit + more))
        if self.credit > 0:
            self.is_wanted.set()

    async def say(self, **what: Any) -> None:
        async with self.writing:
            await self.context.write(pb.WorkReply(**what))

    async def fetch(self) -> None:
        """Jobs as they come, as many as are wanted."""
        while True:
            await self.is_wanted.wait()
            jobs = await self.queue.take(*self.queues, count=self.credit, timeout=None, lease=self.lease)
            for job in jobs:
                self.held[job.id] = job
                self.credit -= 1
                await self.say(job=job_of(job))
            if self.credit <= 0:
                self.is_wanted.clear()

    async def keep(self) -> None:
        """Leases of what the stream holds, three times in the time of one."""
        while True:
            await asyncio.sleep(max(KEEP_S_MIN, self.lease / 3))
            jobs = list(self.held.values())
            if not jobs:
                continue
            for job, outcome in zip(jobs, await self.queue.keep(jobs, self.lease), strict=True):
                if outcome == "lost" and self.held.pop(job.id, None) is not None:
                    await self.say(lost=job.id)
                elif outcome == "cancelled":
                    await self.say(cancelled=job.id)

    async def hear(self, requests: AsyncIterator[Any]) -> None:
        async for request in requests:
            if isinstance(request, errors.BadRequest):
                raise request
            kind = request.WhichOneof("what")
            if kind == "more":
                self.want(request.more)
            elif kind in ("done", "fail", "release"):
                await self.settle(kind, getattr(request, kind))
            else:
                raise errors.BadRequest("a stream begins once, then says more, done, fail or release")

    async def settle(self, kind: str, said: Any) -> None:
        job_id = said.job.id
        try:
            job = held(self.queue, said.job)
            if kind == "done":
                await self.queue.done(job, result=optional(said, "result"))
            elif kind == "fail":
                await fail(self.queue, said)
            else:
                await self.queue.release(job, after=optional(said, "after"))
        except errors.Error as error:
            await self.say(settled=pb.Settled(id=job_id, ok=False, error=str(error)))
            if not isinstance(error, errors.LeaseLost):
                return
        else:
            await self.say(settled=pb.Settled(id=job_id, ok=True))
        self.held.pop(job_id, None)


def address_in(peer: str) -> str:
    """host:port of ipv4:127.0.0.1:80, ipv6:%5B::1%5D:80"""
    return unquote(peer.partition(":")[2])


def methods(service: Service) -> dict[str, Any]:
    """The methods of the service, as the .proto has them. What is made by protoc would not let us read."""
    found: dict[str, Any] = {}
    for method in pb.DESCRIPTOR.services_by_name["Queue"].methods:
        is_both_ways = method.client_streaming
        made = grpc.stream_stream_rpc_method_handler if is_both_ways else grpc.stream_unary_rpc_method_handler
        found[method.name] = made(
            getattr(service, method.name), reading(GetMessageClass(method.input_type)),
            GetMessageClass(method.output_type).SerializeToString,
        )
    return found


async def start(behind: Behind, address: str, credentials: Any = None) -> Any:
    """A server that is listening; it has `port`."""
    server = grpc.aio.server(options=[
        ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX), ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
        ("grpc.so_reuseport", 0),
        ("grpc.compression_enabled_algorithms_bitset", 1 << grpc.Compression.NoCompression),
        ("grpc.server_handshake_timeout_ms", 1000 * HANDSHAKE_S), ("grpc.max_connection_idle_ms", 1000 * IDLE_S),
        ("grpc.max_allowed_incoming_connections", CONNECTIONS_MAX), ("grpc.max_concurrent_streams", STREAMS_MAX),
        ("grpc.max_metadata_size", METADATA_BYTES_MAX), ("grpc.absolute_max_metadata_size", METADATA_BYTES_MAX),
    ], maximum_concurrent_rpcs=CALLS_MAX)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods(Service(behind))),))
    checks = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    await checks.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)
    reflection.enable_server_reflection([SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME], server)
    try:
        server.holdfast_port = (
            server.add_insecure_port(address) if credentials is None else server.add_secure_port(address, credentials)
        )
    except RuntimeError as error:
        raise SettingsError(f"cannot listen on {address}: {error}") from None
    await server.start()
    return server
