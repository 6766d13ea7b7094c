"""Commands over HTTP, by httpx, which is imported when such a url is opened and not before."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Any, Final

from .errors import (
    BadReply,
    BadRequest,
    Closed,
    ConnectionLost,
    Error,
    NoAnswer,
    NotAvailable,
    Refused,
    Unreachable,
)
from .resp import Argv, Reply, encode, to_bytes
from .tunnel import AsyncThrough, Place, Through, read_replies, refusal

MEDIA_TYPE: Final = "application/vnd.holdfast.resp"



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


class HttpChannel(_Http, Through):
    """Commands over HTTP, for threads."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.client = self.httpx.Client(**self.options())

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


class AsyncHttpChannel(_Http, AsyncThrough):
    """The same for asyncio. A task that is cancelled closes its connection, and the gateway gives back what it took."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.client = self.httpx.AsyncClient(**self.options())

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
