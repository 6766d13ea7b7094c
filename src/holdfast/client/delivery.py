"""One hand-out of one job: what the node said of it, read when somebody asks.

A worker may take thousands a second and look at two fields of each. So a hand-out keeps the node's answer as it came,
and an id or a token goes back to the node as it came. `Job`, `AsyncJob` and the worker's `RunningJob` are this, and
what may be done with it.

    GETJOB …                            queue, id, body
    GETJOB WITHCOUNTERS WITHMETA …      and names and values, as in META

Fields a newer node adds are passed over, and what an older one leaves out has the value it would have said.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from .resp import Reply, to_bytes
from .values import data, fields, items, strings, text, unexpected, whole

Entry: TypeAlias = "list[Any]"
"""Three long, or as long as WHOLE."""

QUEUE: Final = 0
ID: Final = 1
BODY: Final = 2
BARE: Final = 3
META: Final[list[tuple[bytes, Any]]] = [
    (b"nacks", 0), (b"additional-deliveries", 0), (b"token", b""), (b"attempt", 1), (b"priority", 5), (b"headers", []),
    (b"keys", []),
]
NACKS, AGAIN, TOKEN, ATTEMPT, PRIORITY, HEADERS, KEYS = range(BARE + 1, BARE + 2 * len(META), 2)
TOKEN_NAME: Final = TOKEN - 1
WHOLE: Final = BARE + 2 * len(META)


def entries(reply: Reply) -> list[Entry]:
    """What GETJOB answers, with or without counters and meta; null is no job."""
    if reply is None:
        return []
    return [
        entry if type(entry) is list and (
            len(entry) == BARE or (len(entry) == WHOLE and entry[TOKEN_NAME] == b"token")
        ) else _arranged(items(entry))
        for entry in items(reply)
    ]


def _arranged(entry: Entry) -> Entry:
    """An entry of a node that says more or less, in the order we know."""
    if len(entry) < BARE:
        raise unexpected("queue, id, body", entry)
    extra = fields(entry[BARE:])
    whole_one = entry[:BARE]
    for name, value in META:
        whole_one += (name, extra.get(name.decode(), value))
    if "attempt" not in extra:
        whole_one[ATTEMPT] = 1 + whole(whole_one[NACKS]) + whole(whole_one[AGAIN])
    return whole_one


def entry_of(job_id: str, token: str) -> Entry:
    """What a hand-out would say of which somebody remembers no more than this."""
    return _arranged([b"", to_bytes(job_id), b"", b"token", to_bytes(token)])


class Delivery:
    """A hand-out, as data."""

    __slots__ = ("entry",)

    def __init__(self, entry: Entry) -> None:
        self.entry = entry

    @property
    def id(self) -> str:
        """48 characters, unique in the cluster."""
        return text(self.entry[ID])

    @property
    def queue(self) -> str:
        """The queue it was taken from."""
        return text(self.entry[QUEUE])

    @property
    def body(self) -> bytes:
        """What the producer gave it."""
        return data(self.entry[BODY])

    @property
    def text(self) -> str:
        """The body as text (UTF-8)."""
        return self.body.decode()

    @property
    def token(self) -> str:
        """The proof that this hand-out is ours; empty where it was not asked for."""
        return text(self._said(TOKEN, b""))

    @property
    def near(self) -> str:
        """The node that handed it out: a token begins with eight digits of its id."""
        return self.token[:8]

    @property
    def attempt(self) -> int:
        """1 for the first hand-out."""
        return whole(self._said(ATTEMPT, 1))

    @property
    def nacks(self) -> int:
        """How often a worker gave it back."""
        return whole(self._said(NACKS, 0))

    @property
    def additional_deliveries(self) -> int:
        """How often it was handed out again because nobody answered for it."""
        return whole(self._said(AGAIN, 0))

    @property
    def priority(self) -> int:
        """0 to 9, 9 first."""
        return whole(self._said(PRIORITY, 5))

    @property
    def headers(self) -> dict[str, str]:
        """Short strings that travel with it."""
        return strings(self._said(HEADERS, []))

    @property
    def keys(self) -> dict[str, str]:
        """What it is known by, where it has one: tenant, domain, group, unique, batch, parent."""
        return strings(self._said(KEYS, []))

    def _said(self, place: int, otherwise: Any) -> Any:
        return self.entry[place] if len(self.entry) > place else otherwise

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.queue!r}, {len(self.body)} bytes>"
