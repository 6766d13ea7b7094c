"""Channels through a gateway: the commands of a node as they are, inside HTTP or gRPC.

    holdfast.open("http://gateway:7780")      holdfast.open("https://alice:secret@gateway:7780")
    holdfast.open("grpc://gateway:7790")      holdfast.open("grpcs://gateway:7790?ca=ca.pem")

A channel runs commands, and a gateway has a call for just that; so everything a queue can do it can do here, with the
same answers. What is lost on the way is told as ever: a request that was sent and not answered is `Unknown`, one that
could not be sent is `Unreachable`. httpx and grpcio are imported when such a url is opened, and not before.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from .asks import Undo
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
    from_reply,
)
from .resp import NOT_READY, Argv, ProtocolError, Reply, encode, new_reader, to_bytes

MEDIA_TYPE: Final = "application/vnd.holdfast.resp"
SLACK_S: Final = 10.0
"""How much longer than the node may hold an answer back we wait for it."""


class Place:
    """A gateway: where it is, who we are to it, and how patient we are."""

    def __init__(self, url: str, connect_timeout: float, answer_timeout: float | None) -> None:
        parts = urlsplit(url)
        self.scheme = parts.scheme
        self.is_safe = parts.scheme.endswith("s")
        if not parts.hostname or parts.path not in ("", "/"):
            raise BadRequest(f"a {parts.scheme} url is {parts.scheme}://host:port")
        try:
            port = parts.port
        except ValueError:
            raise BadRequest("the port of the url is no port") from None
        self.port = port or (7780 if parts.scheme.startswith("http") else 7790)
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        self.address = f"{host}:{self.port}"
        self.authorization = ""
        if parts.username is not None:
            from urllib.parse import unquote

            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self.authorization = "Basic " + base64.b64encode(login.encode()).decode()
        self.files = dict(pair.partition("=")[::2] for pair in parts.query.split("&") if pair)
        for name in self.files:
            if name not in ("ca", "cert", "key"):
                raise BadRequest(f"a {self.scheme} url takes ca, cert and key after the question mark, not {name!r}")
        self.connect_timeout = connect_timeout
        self.answer_timeout = answer_timeout

    def wait_s(self, patience: float | None) -> float | None:
        if patience is None or self.answer_timeout is None:
            return None
        return self.answer_timeout + patience + (SLACK_S if patience else 0.0)

    def read(self, name: str) -> bytes | None:
        path = self.files.get(name)
        if path is None:
            return None
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError as error:
            raise BadRequest(f"cannot read {name}={path}: {error.strerror}") from None


def read_replies(data: bytes, count: int) -> list[Reply]:
    reader = new_reader()
    reader.feed(data)
    found: list[Reply] = []
    try:
        while len(found) < count and (reply := reader.gets()) is not NOT_READY:
            found.append(reply)
    except ProtocolError as error:
        raise BadReply(f"the gateway answers with what is not RESP: {error}") from None
    if len(found) != count:
        raise BadReply(f"the gateway answered {len(found)} of {count} commands")
    return found


def refusal(status: int, detail: str, code: str) -> Error:
    """What a gateway says that did not run our commands."""
    made = from_reply(f"{code or 'ERR'} {detail}")
    if type(made) is not BadRequest:
        return made
    if status in (401, 403):
        return NotAllowed(detail, code or "NOAUTH")
    if status == 504:
        return NoAnswer(detail)
    if status >= 500 or status == 429:
        return Refused(detail, code or "REFUSED")
    return made


# -- HTTP -------------------------------------------------------------------------------------------------


class _Http:
    """What the sync and the async channel have in common."""

    def __init__(self, place: Place) -> None:
        try:
            import httpx
        except ImportError:
            raise NotAvailable("http: urls need httpx: pip install 'holdfast[http]'") from None
        self.httpx = httpx
        self.place = place
        self.is_closed = False

    def options(self) -> dict[str, Any]:
        headers = {"Content-Type": MEDIA_TYPE}
        if self.place.authorization:
            headers["Authorization"] = self.place.authorization
        verify: Any = True
        if self.place.is_safe and self.place.files:
            try:
                verify = ssl.create_default_context(cafile=self.place.files.get("ca"))
                if "cert" in self.place.files:
                    verify.load_cert_chain(self.place.files["cert"], self.place.files.get("key"))
            except (OSError, ssl.SSLError) as error:
                raise BadRequest(f"the TLS files of the url cannot be used: {error}") from None
        scheme = "https" if self.place.is_safe else "http"
        return {
            "base_url": f"{scheme}://{self.place.address}", "headers": headers, "verify": verify, "trust_env": False,
            "limits": self.httpx.Limits(max_connections=1000, max_keepalive_connections=100),
        }

    def request(self, commands: Sequence[Argv], patience: float | None, near: str) -> dict[str, Any]:
        if self.is_closed:
            raise Closed("this queue was closed")
        timeout = self.httpx.Timeout(self.place.wait_s(patience), connect=self.place.connect_timeout)
        return {
            "content": b"".join(encode([to_bytes(word) for word in argv]) for argv in commands), "timeout": timeout,
            "headers": {"Holdfast-Near": near} if near else {},
        }

    def replies(self, answer: Any, count: int) -> list[Reply]:
        if answer.status_code == 200 and answer.headers.get("content-type", "").startswith(MEDIA_TYPE):
            return read_replies(answer.content, count)
        try:
            problem = answer.json()
            detail, code = str(problem["detail"]), str(problem.get("code", ""))
        except (ValueError, KeyError, TypeError):
            raise BadReply(f"this is no gateway of Holdfast: it answers with status {answer.status_code}") from None
        error = refusal(answer.status_code, detail, code)
        if isinstance(error, BadRequest | Refused):
            return [error] * count
        raise error

    def told(self, error: Exception) -> Error:
        """What went wrong with the request itself."""
        words = str(error) or type(error).__name__
        if isinstance(error, self.httpx.ConnectError | self.httpx.ConnectTimeout | self.httpx.PoolTimeout):
            return Unreachable(f"no connection to the gateway at {self.place.address}: {words}")
        if isinstance(error, self.httpx.TimeoutException):
            return NoAnswer(f"the gateway at {self.place.address} does not answer")
        return ConnectionLost(f"the connection to the gateway at {self.place.address} broke: {words}")


class HttpChannel(_Http):
    """Commands over HTTP, for threads."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.client = self.httpx.Client(**self.options())

    def call(self, argv: Argv, patience: float | None = 0.0, undo: Undo | None = None, near: str = "") -> Reply:
        return self._send([argv], patience, near)[0]

    def call_many(self, commands: Sequence[Argv], near: str = "") -> list[Reply]:
        return self._send(commands, 0.0, near) if commands else []

    def _send(self, commands: Sequence[Argv], patience: float | None, near: str) -> list[Reply]:
        try:
            return self.replies(self.client.post("/v1/call", **self.request(commands, patience, near)), len(commands))
        except (self.httpx.HTTPError, RuntimeError) as error:
            if self.is_closed:
                raise Closed("this queue was closed") from None
            raise self.told(error) from error

    def twin(self) -> AsyncHttpChannel:
        return AsyncHttpChannel(self.place)

    def close(self) -> None:
        self.is_closed = True
        self.client.close()


class AsyncHttpChannel(_Http):
    """The same for asyncio. A task that is cancelled closes its connection, and the gateway gives back what it took."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.client = self.httpx.AsyncClient(**self.options())

    async def call(
        self, argv: Argv, patience: float | None = 0.0, undo: Undo | None = None, near: str = ""
    ) -> Reply:
        return (await self._send([argv], patience, near))[0]

    async def call_many(self, commands: Sequence[Argv], near: str = "") -> list[Reply]:
        return await self._send(commands, 0.0, near) if commands else []

    async def _send(self, commands: Sequence[Argv], patience: float | None, near: str) -> list[Reply]:
        try:
            answer = await self.client.post("/v1/call", **self.request(commands, patience, near))
        except (self.httpx.HTTPError, RuntimeError) as error:
            if self.is_closed:
                raise Closed("this queue was closed") from None
            raise self.told(error) from error
        return self.replies(answer, len(commands))

    async def close(self) -> None:
        self.is_closed = True
        await self.client.aclose()


# -- gRPC -------------------------------------------------------------------------------------------------

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


class GrpcChannel(_Grpc):
    """Commands over gRPC, for threads."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.channel = self.connect(self.grpc)
        self.run = self.method(self.channel)

    def call(self, argv: Argv, patience: float | None = 0.0, undo: Undo | None = None, near: str = "") -> Reply:
        return self._send([argv], patience, near)[0]

    def call_many(self, commands: Sequence[Argv], near: str = "") -> list[Reply]:
        return self._send(commands, 0.0, near) if commands else []

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


class AsyncGrpcChannel(_Grpc):
    """The same for asyncio."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.channel = self.connect(self.grpc.aio)
        self.run = self.method(self.channel)

    async def call(
        self, argv: Argv, patience: float | None = 0.0, undo: Undo | None = None, near: str = ""
    ) -> Reply:
        return (await self._send([argv], patience, near))[0]

    async def call_many(self, commands: Sequence[Argv], near: str = "") -> list[Reply]:
        return await self._send(commands, 0.0, near) if commands else []

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
