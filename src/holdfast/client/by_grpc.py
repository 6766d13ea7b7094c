"""Commands over gRPC, by grpcio, which is imported when such a url is opened and not before."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from .errors import (
    BadReply,
    BadRequest,
    Closed,
    ConnectionLost,
    Error,
    NoAnswer,
    NotAllowed,
    NotAvailable,
    Refused,
    Unreachable,
)
from .resp import Argv, Reply, to_bytes
from .tunnel import AsyncThrough, Place, Through, read_replies, refusal

CALL: Final = "/holdfast.v1.Queue/Call"
CODE: Final = "holdfast-code"
MESSAGE_BYTES_MAX: Final = 64 * 1024 * 1024


def field(number: int, data: bytes) -> bytes:
    """One field of bytes in a protobuf message: the two messages we need are written by hand, so that a client
    needs neither generated code nor protobuf."""
    return bytes([number << 3 | 2]) + varint(len(data)) + data


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def call_request(commands: Sequence[Argv], near: str) -> bytes:
    words = [b"".join(field(1, to_bytes(word)) for word in argv) for argv in commands]
    return b"".join(field(1, each) for each in words) + (field(2, near.encode()) if near else b"")


def call_reply(data: bytes) -> bytes:
    """The replies of a CallReply, one after the other."""
    at, found = 0, []
    while at < len(data):
        tag, at = read_varint(data, at)
        size, at = read_varint(data, at)
        if tag == 1 << 3 | 2:
            found.append(data[at:at + size])
        at += size
    return b"".join(found)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


class _Grpc:
    """What both gRPC channels have in common."""

    def __init__(self, place: Place) -> None:
        try:
            import grpc
        except ImportError:
            raise NotAvailable("grpc: urls need grpcio: pip install 'holdfast[grpc]'") from None
        self.grpc = grpc
        self.place = place
        self.is_closed = False
        self.metadata = [("authorization", place.authorization)] if place.authorization else []

    def connect(self, module: Any) -> Any:
        options = [
            ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX), ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
            ("grpc.max_reconnect_backoff_ms", 2000), ("grpc.enable_http_proxy", 0),
        ]
        if not self.place.is_safe:
            return module.insecure_channel(self.place.address, options)
        credentials = self.grpc.ssl_channel_credentials(
            self.place.read("ca"), self.place.read("key"), self.place.read("cert")
        )
        return module.secure_channel(self.place.address, credentials, options)

    def method(self, channel: Any) -> Any:
        return channel.unary_unary(CALL, request_serializer=None, response_deserializer=None)

    def told(self, error: Any) -> Error:
        status, words = error.code(), error.details() or ""
        code = dict(error.trailing_metadata() or ()).get(CODE, "")
        kinds = self.grpc.StatusCode
        if code:
            return refusal({kinds.UNAUTHENTICATED: 401, kinds.PERMISSION_DENIED: 403, kinds.UNKNOWN: 504,
                            kinds.UNAVAILABLE: 503, kinds.RESOURCE_EXHAUSTED: 503}.get(status, 400), words, code)
        if status == kinds.UNAUTHENTICATED:
            return NotAllowed(words, "NOAUTH")
        if status == kinds.DEADLINE_EXCEEDED:
            return NoAnswer(f"the gateway at {self.place.address} does not answer")
        if status == kinds.UNAVAILABLE and ("connect" in words.lower() or "resolution" in words.lower()):
            return Unreachable(f"no connection to the gateway at {self.place.address}: {words}")
        if status == kinds.UNIMPLEMENTED:
            return BadReply(f"this is no gateway of Holdfast: {words}")
        return ConnectionLost(f"the call to the gateway at {self.place.address} broke: {words}")


class GrpcChannel(_Grpc, Through):
    """Commands over gRPC, for threads."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.channel = self.connect(self.grpc)
        self.run = self.method(self.channel)

    def _send(self, commands: Sequence[Argv], patience: float | None, near: str) -> list[Reply]:
        if self.is_closed:
            raise Closed("this queue was closed")
        try:
            data = self.run(call_request(commands, near), timeout=self.place.wait_s(patience), metadata=self.metadata)
        except self.grpc.RpcError as error:
            if self.is_closed:
                raise Closed("this queue was closed") from None
            return _or_raise(self.told(error), len(commands), error)
        except ValueError:  # the channel was closed by another thread
            raise Closed("this queue was closed") from None
        return read_replies(call_reply(data), len(commands))

    def twin(self) -> AsyncGrpcChannel:
        return AsyncGrpcChannel(self.place)

    def close(self) -> None:
        self.is_closed = True
        self.channel.close()


class AsyncGrpcChannel(_Grpc, AsyncThrough):
    """The same for asyncio."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.channel = self.connect(self.grpc.aio)
        self.run = self.method(self.channel)

    async def _send(self, commands: Sequence[Argv], patience: float | None, near: str) -> list[Reply]:
        if self.is_closed:
            raise Closed("this queue was closed")
        try:
            data = await self.run(
                call_request(commands, near), timeout=self.place.wait_s(patience), metadata=self.metadata
            )
        except self.grpc.RpcError as error:
            if self.is_closed:
                raise Closed("this queue was closed") from None
            return _or_raise(self.told(error), len(commands), error)
        except asyncio.CancelledError:
            if self.is_closed:
                raise Closed("this queue was closed") from None
            raise
        return read_replies(call_reply(data), len(commands))

    async def close(self) -> None:
        self.is_closed = True
        await self.channel.close()


def _or_raise(error: Error, count: int, cause: BaseException) -> list[Reply]:
    """An error reply is returned, as a node's would be; what happened to the call itself is raised."""
    if isinstance(error, BadRequest | Refused) and not isinstance(error, Unreachable):
        return [error] * count
    raise error from cause
