"""A url to a queue: the one function a user starts with.

    holdfast.open("memory:")                              a node in this process
    holdfast.open("file:./jobs")                          the same, kept in a folder, for one process at a time
    holdfast.open("holdfast://10.0.0.1:7711,10.0.0.2")    the first node of the list that answers
    holdfast.open("holdfast://:secret@10.0.0.1")          with a password (percent-encode odd characters)
    holdfast.open("holdfasts://10.0.0.1?ca=ca.pem")       with TLS; also cert= and key= to show who we are
    holdfast.open("unix:///run/holdfast.sock")            a node on this machine
    holdfast.open("http://gateway:7780")                  through a gateway; also https://, grpc:// and grpcs://
    await holdfast.aopen(…)                               the same, for asyncio

What comes back is the same `Queue` (or `AsyncQueue`) whatever the url says, so moving from an embedded
queue to a cluster is a change of a string. Settings of an embedded node go after a question mark:
`memory:?maxmemory=100mb` (`holdfast.embedded.SETTINGS` are those that mean something there).

A bare `host:port`, or several with commas, is taken for `holdfast://host:port`, and `:port` is one on this machine.

A connection is tried at once: a wrong address, a wrong password or a missing one is an exception here and
not a surprise at the first job.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from holdfast.client.errors import BadReply, BadRequest, ConnectionLost, Error, Loading
from holdfast.client.pool import AsyncPool, Pool
from holdfast.client.queue import AsyncQueue, Queue
from holdfast.client.target import ANSWER_TIMEOUT_S, CONNECT_TIMEOUT_S, Target, parse_address

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

    from holdfast.client.by_grpc import AsyncGrpcChannel, GrpcChannel
    from holdfast.client.by_http import AsyncHttpChannel, HttpChannel

PLAIN: Final = ("memory", "file", "holdfast", "holdfasts", "unix")
THROUGH: Final = ("http", "https", "grpc", "grpcs")
"""Doors that lead through a gateway."""
HOST: Final = r"(?:\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::\d+)?"
BARE: Final = re.compile(rf"(?:[^@/\s]*@)?{HOST}(?:,{HOST})*")
"""Hosts and ports without a scheme."""
SHORT: Final = re.compile(r":\d+")
"""A port of this machine."""


def open(
    url: str,
    *,
    connect_timeout: float = CONNECT_TIMEOUT_S,
    answer_timeout: float | None = ANSWER_TIMEOUT_S,
    name: str = "",
) -> Queue:
    """Open the queue behind a url (see the top of this module), for threads. `name`: what nodes call us."""
    scheme, rest = split(url)
    if scheme == "memory":
        from holdfast.embedded import open_memory

        return open_memory(memory_settings(rest))
    if scheme == "file":
        from holdfast.embedded import open_file

        return open_file(*folder_settings(rest))
    pool: Pool | HttpChannel | GrpcChannel
    if scheme in THROUGH:
        from holdfast.client.tunnel import Place

        place = Place(url, connect_timeout, answer_timeout)
        if scheme.startswith("http"):
            from holdfast.client.by_http import HttpChannel

            pool = HttpChannel(place)
        else:
            from holdfast.client.by_grpc import GrpcChannel

            pool = GrpcChannel(place)
    else:
        pool = Pool(targets(scheme, rest, connect_timeout, answer_timeout, name))
    try:
        check(pool.call(["PING"]))
    except ConnectionLost as error:
        pool.close()
        raise hung_up(error) from error
    except BaseException:
        pool.close()
        raise
    return Queue(pool)


async def aopen(
    url: str,
    *,
    connect_timeout: float = CONNECT_TIMEOUT_S,
    answer_timeout: float | None = ANSWER_TIMEOUT_S,
    try_now: bool = True,
    doubt_s: float | None = None,
) -> AsyncQueue:
    """Open the queue behind a url, for asyncio. `try_now`: no: nobody needs to be there yet. `doubt_s`: after so long
    without an answer find out whether the node is there, also where there is no other (client/attending.py)."""
    scheme, rest = split(url)
    if scheme == "memory":
        from holdfast.embedded import open_memory_async

        return open_memory_async(memory_settings(rest))
    if scheme == "file":
        from holdfast.embedded import open_file_async

        return open_file_async(*folder_settings(rest))
    pool: AsyncPool | AsyncHttpChannel | AsyncGrpcChannel
    if scheme in THROUGH:
        from holdfast.client.tunnel import Place

        place = Place(url, connect_timeout, answer_timeout)
        if scheme.startswith("http"):
            from holdfast.client.by_http import AsyncHttpChannel

            pool = AsyncHttpChannel(place)
        else:
            from holdfast.client.by_grpc import AsyncGrpcChannel

            pool = AsyncGrpcChannel(place)
    else:
        pool = AsyncPool(targets(scheme, rest, connect_timeout, answer_timeout), doubt_s)
    if not try_now:
        return AsyncQueue(pool)
    try:
        check(await pool.call(["PING"]))
    except ConnectionLost as error:
        await pool.close()
        raise hung_up(error) from error
    except BaseException:
        await pool.close()
        raise
    return AsyncQueue(pool)


def url_of(place: str) -> str:
    """A place as somebody types it, as a url: `10.0.0.1:7711` is at a node."""
    if SHORT.fullmatch(place):
        return f"holdfast://127.0.0.1{place}"
    is_host = ("." in place or ":" in place or place == "localhost") and BARE.fullmatch(place) is not None
    is_scheme = place.partition(":")[0].lower() in (*PLAIN, *THROUGH)
    return f"holdfast://{place}" if is_host and not is_scheme else place


def split(url: str) -> tuple[str, str]:
    """Scheme and rest, or a sentence about what is wrong."""
    given: object = url
    if not isinstance(given, str):
        kind = "None" if given is None else type(given).__name__
        raise TypeError(f"open() takes a url as a str, such as 'memory:' or 'holdfast://host', not {kind}")
    scheme, colon, rest = url_of(url).partition(":")
    scheme = scheme.lower()
    if not colon or scheme not in (*PLAIN, *THROUGH):
        # Not the whole url: a password may be in it.
        raise BadRequest(
            f"{scheme[:20]!r} is no kind of queue: use memory:, file:folder, holdfast://host:port, unix:///path, "
            "http://host:port or grpc://host:port (with TLS: holdfasts, https, grpcs)"
        )
    return scheme, rest


def memory_settings(rest: str) -> dict[str, str]:
    """What follows `memory:`: nothing, or settings of the node."""
    path, _, query = rest.partition("?")
    if path not in ("", "//"):
        raise BadRequest(f"memory: has no path, got {path!r}")
    return pairs(query)


def pairs(query: str) -> dict[str, str]:
    """What follows a question mark."""
    from urllib.parse import parse_qsl

    return dict(parse_qsl(query, keep_blank_values=True))


def folder_settings(rest: str) -> tuple[Path, dict[str, str]]:
    """What follows `file:`: a folder, and perhaps settings of the node."""
    path, _, query = rest.partition("?")
    if path.startswith("//"):
        path = path[2:]
    if not path:
        raise BadRequest("file: needs a folder, as in file:./jobs or file:///var/lib/jobs")
    from pathlib import Path
    from urllib.parse import unquote

    return Path(unquote(path)), pairs(query)


def targets(
    scheme: str, rest: str, connect_timeout: float, answer_timeout: float | None, name: str = ""
) -> list[Target]:
    """What follows `holdfast:` or `unix:`: where the nodes are and who we are."""
    if not rest.startswith("//"):
        raise BadRequest(f"a {scheme} url begins with {scheme}://")
    login, at, place = rest[2:].rpartition("@")
    user, colon, password = login.partition(":")
    if at and not colon:
        raise BadRequest("write the password as :password@ or user:password@")

    tls: ssl.SSLContext | None = None
    if scheme == "holdfasts":
        place, _, query = place.partition("?")
        tls = tls_context(pairs(query))

    def target(host: str = "", port: int = 0, path: str = "") -> Target:
        return Target(
            host, port, path, plainly(user), plainly(password), connect_timeout, answer_timeout, tls=tls,
            name="-".join(name.split()),
        )

    if scheme == "unix":
        if not place.startswith("/"):
            raise BadRequest("a unix url has an absolute path: unix:///run/holdfast.sock")
        return [target(path=plainly(place))]
    place, _, path = place.partition("/")
    if path or "?" in place:
        raise BadRequest("a holdfast url ends after the last port")
    return [target(*parse_address(each)) for each in place.split(",")]


def plainly(text: str) -> str:
    """Without the percent signs that stand for odd characters."""
    if "%" not in text:
        return text
    from urllib.parse import unquote

    return unquote(text)


def nodes_at(url: str, connect_timeout: float = CONNECT_TIMEOUT_S) -> list[Target]:
    """The nodes that a url names, for what speaks to nodes itself and to no gateway."""
    scheme, rest = split(url)
    if scheme not in ("holdfast", "holdfasts", "unix"):
        raise BadRequest(f"this speaks to a node: holdfast://host:port, holdfasts://host:port or unix:///path, "
                         f"not {scheme}:")
    return targets(scheme, rest, connect_timeout, ANSWER_TIMEOUT_S)


def tls_context(files: dict[str, str]) -> ssl.SSLContext:
    """How to talk TLS: whom we believe (the system's authorities, or those of `ca`), and our own certificate."""
    import ssl

    for name in files:
        if name not in ("ca", "cert", "key"):
            raise BadRequest(f"a holdfasts url takes ca, cert and key after the question mark, not {name!r}")
    try:
        context = ssl.create_default_context(cafile=files.get("ca"))
        if "cert" in files:
            context.load_cert_chain(files["cert"], files.get("key"))
    except (OSError, ssl.SSLError) as error:
        raise BadRequest(f"the TLS files of the url cannot be used: {error}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def check(reply: object) -> None:
    """Is it a node, and is it willing? One that is still loading will be."""
    if isinstance(reply, Error):
        if isinstance(reply, Loading):
            return
        raise reply
    if reply != b"PONG":
        raise BadReply(f"this does not look like a Holdfast node: it answers PING with {reply!r:.40}")


def hung_up(error: ConnectionLost) -> ConnectionLost:
    """What closes the connection at the first word is seldom a node."""
    return ConnectionLost(f"{error.text}. If it never answers, this does not look like a Holdfast node")
