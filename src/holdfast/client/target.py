"""Where a node is, how to introduce oneself there, and how to speak about it.

Nothing here does I/O: `connection` reads these values. A password is never shown, neither by `repr` nor
in an error text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from .errors import BadReply, BadRequest, ConnectionLost, Error, NoAnswer, Unreachable
from .resp import Argv

if TYPE_CHECKING:
    import ssl

PORT: Final = 7711
CONNECT_TIMEOUT_S: Final = 5.0
ANSWER_TIMEOUT_S: Final = 30.0
"""A node that says nothing for this long, on top of what the command may take, is given up on."""


@dataclass(frozen=True, slots=True)
class Target:
    """One node: a host and port, or the path of a Unix socket."""

    host: str = "127.0.0.1"
    port: int = PORT
    path: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    connect_timeout: float = CONNECT_TIMEOUT_S
    answer_timeout: float | None = ANSWER_TIMEOUT_S
    resp3: bool = False
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    name: str = ""
    """What the node calls our connections, where it says who has a job; a word."""
    _hash: int = field(init=False, repr=False, compare=False)
    """Known from the start: each call looks its connection up by this."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.host, self.port, self.path)))

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        if self.path:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def greeting(self) -> list[Argv]:
        """What to say first on a new connection."""
        words: list[Argv] = []
        if self.password:
            words.append(["AUTH", self.user, self.password] if self.user else ["AUTH", self.password])
        if self.resp3:
            words.append(["HELLO", 3])
        if self.name:
            words.append(["CLIENT", "SETNAME", self.name])
        return words

    def allowance(self, patience: float | None) -> float | None:
        """Seconds until an answer must be here; None: it may take for ever."""
        if patience is None or self.answer_timeout is None:
            return None
        return patience + self.answer_timeout

    def unreachable(self, reason: BaseException | str) -> Unreachable:
        return Unreachable(f"no connection to {self}: {explain(reason)}")

    def lost(self, reason: BaseException | str) -> ConnectionLost:
        return ConnectionLost(
            f"the connection to {self} broke before the answer came ({explain(reason)}); "
            "it is not known whether the command was executed"
        )

    def not_a_node(self, reason: str) -> BadReply:
        return BadReply(f"{self}: this does not look like a Holdfast node ({reason})")

    def silent(self, seconds: float) -> NoAnswer:
        return NoAnswer(
            f"{self} did not answer within {seconds:g} s; it is not known whether the command was executed"
        )


def explain(reason: BaseException | str) -> str:
    """An operating system's error in a few words."""
    if isinstance(reason, TimeoutError) and not reason.args:
        return "timed out"
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror.lower()
    return str(reason) or type(reason).__name__


def none_reachable(failures: list[Error]) -> Error:
    """One error for a list of nodes of which none could be reached."""
    if len(failures) == 1:
        return failures[0]
    return Unreachable("no node can be reached: " + "; ".join(each.text for each in failures))


def parse_address(text: str) -> tuple[str, int]:
    """`host`, `host:port`, `[v6 address]:port` → host and port."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise BadRequest(f"not an address: {text!r}")
        port = rest[1:]
    elif text.count(":") > 1:
        host, port = text, ""
    else:
        host, _, port = text.partition(":")
    if not host:
        raise BadRequest(f"not an address: {text!r} (host missing)")
    if not port:
        return host, PORT
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise BadRequest(f"not a port: {port!r} in {text!r}")
    return host, int(port)
