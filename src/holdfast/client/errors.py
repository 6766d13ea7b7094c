"""What can go wrong, as one tree.

A caller has only three questions when a call fails: may I try again, must I change something,
could it have happened? The three families answer them; everything else is detail.

    Error                     has `.code` (first word of the node's reply) and `.text` (the rest)
    ├─ Refused                the node will not do it now; nothing was kept; safe to try again, or elsewhere
    │   ├─ NoRepl             fewer nodes than `replicate`; said at once
    │   ├─ Paused             the queue takes no jobs at the moment
    │   ├─ MaxLen             the queue is as long as it may get
    │   ├─ OutOfMemory        the node is full
    │   ├─ Leaving            the node is on its way out of the cluster; use another one
    │   ├─ Loading            the node is still reading its journal
    │   ├─ Misconfigured      the node cannot write its journal
    │   ├─ Duplicate          the unique key is taken, and the producer wanted to know; has `.existing`
    │   ├─ TooManyClients     a limit on connections was reached (the node's, or this client's own)
    │   └─ Unreachable        no connection could be made; nothing was sent
    ├─ BadRequest             the caller's fault; the same call will fail again
    │   ├─ BadId              not a job id
    │   ├─ NoJob              the node does not know this job
    │   ├─ LeaseLost          the job was ours and is not any more: somebody else may have it
    │   ├─ TooLate            the job is too old for its lease to be extended
    │   ├─ NotAllowed         no password, or the wrong one, or no right to do this
    │   └─ NotAvailable       this version of Holdfast cannot do it
    ├─ Unknown                we cannot say if it happened; has `.jobs`, the ids it is about
    │   ├─ CopiesLate         the copies were not made in time; they are taken back from all who can hear it
    │   ├─ ConnectionLost     the connection broke after the command was sent
    │   ├─ NoAnswer           the node stayed silent for longer than it may
    │   └─ BadReply           the node answered something this client does not understand
    ├─ Empty                  no job came within the timeout; not a fault
    └─ Closed                 this queue was closed, by us

`Unknown` is never hidden as success or as failure: an ADDJOB whose connection broke may have been
kept. Add it again only if running it twice is fine.

A code that is not in the tree (a newer node) becomes a `BadRequest` that carries the code: the
side on which nobody repeats a call blindly.
"""

from __future__ import annotations

from typing import Final


class Error(Exception):
    """Base of everything Holdfast raises on purpose."""

    code: str = "ERR"
    text: str

    def __init__(self, text: str, code: str | None = None) -> None:
        super().__init__(text)
        self.text = text
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return f"{self.code} {self.text}".strip()

    def __reduce__(self) -> tuple[type[Error], tuple[str, str]]:
        return type(self), (self.text, self.code)


class Refused(Error):
    """The node will not do it now. Nothing was kept; trying again later or elsewhere is safe."""

    code = "REFUSED"


class NoRepl(Refused):
    """There are fewer nodes than the job's `replicate`. Said at once: nothing was copied."""

    code = "NOREPL"


class Paused(Refused):
    """The queue is paused for new jobs."""

    code = "PAUSED"


class MaxLen(Refused):
    """The queue already holds as many jobs as it may."""

    code = "MAXLEN"


class OutOfMemory(Refused):
    """The node is full."""

    code = "OOM"


class Leaving(Refused):
    """The node is leaving the cluster. Use another one."""

    code = "LEAVING"


class Loading(Refused):
    """The node has started and is still reading its journal."""

    code = "LOADING"


class Misconfigured(Refused):
    """The node cannot write its journal, so it promises nothing."""

    code = "MISCONF"


class Duplicate(Refused):
    """The unique key is taken by another job, and the producer asked to be told."""

    code = "DUPLICATE"

    @property
    def existing(self) -> str:
        """The id of the job that has the key."""
        return self.text.partition(" ")[0]


class TooManyClients(Refused):
    """A limit on the number of connections was reached."""

    code = "MAXCLIENTS"


class Unreachable(Refused):
    """No connection could be made. Nothing was sent."""

    code = "UNREACHABLE"


class BadRequest(Error):
    """The caller's fault. The same call will fail again."""

    code = "ERR"


class BadId(BadRequest):
    """Not a job id."""

    code = "BADID"


class NoJob(BadRequest):
    """The node does not know this job: done, expired, or never seen here."""

    code = "NOJOB"


class LeaseLost(BadRequest):
    """The job was ours and is not any more: its lease ended, and somebody else may have it."""

    code = "LEASELOST"


class TooLate(BadRequest):
    """More than half of the job's time to live has passed; its lease can't be extended this way."""

    code = "TOOLATE"


class NotAllowed(BadRequest):
    """No password was given, or the wrong one, or this user may not do that."""

    code = "NOAUTH"


class NotAvailable(BadRequest):
    """Understood, but this version of Holdfast cannot do it."""

    code = "NOTAVAILABLE"


class Unknown(Error):
    """We cannot say if it happened."""

    code = "UNKNOWN"
    jobs: tuple[str, ...] = ()
    """The jobs the call was about, where they had ids already."""


class CopiesLate(Unknown):
    """Fewer nodes than `replicate` had a copy in time. The copies are taken back, but a node that is cut off does not
    hear of that, and may hand its copy out."""

    code = "NOREPL"


class ConnectionLost(Unknown):
    """The connection broke after the command had been sent."""

    code = "LOST"


class NoAnswer(Unknown):
    """The node did not answer within the time it is allowed to take."""

    code = "NOANSWER"


class BadReply(Unknown):
    """The node answered something this client does not understand."""

    code = "BADREPLY"


class Empty(Error):
    """No job came within the timeout."""

    code = "EMPTY"


class Closed(Error):
    """The queue object was closed, in this process. A call that was waiting took no job."""

    code = "CLOSED"


_KINDS: Final[tuple[type[Error], ...]] = (
    NoRepl, Paused, MaxLen, OutOfMemory, Leaving, Loading, Misconfigured, Duplicate, BadId, NoJob, LeaseLost,
    TooLate, NotAllowed, Unknown,
)
_BY_CODE: Final[dict[str, type[Error]]] = {
    **{kind.code: kind for kind in _KINDS},
    "WRONGPASS": NotAllowed,
    "NOPERM": NotAllowed,
    "TRYAGAIN": Refused,
    "UNREACHED": Refused,
}
# These share their code with others: only the text tells them apart.
_BY_TEXT: Final[tuple[tuple[str, str, type[Error]], ...]] = (
    ("ERR", "max number of clients", TooManyClients),
    ("ERR", "invalid password", NotAllowed),
    ("NOREPL", "Timeout reached", CopiesLate),
    ("NOREPL", "job removed", CopiesLate),
)
_SHARED: Final = frozenset(code for code, _, _ in _BY_TEXT)


def from_reply(line: str) -> Error:
    """Turn the text of an error reply into the exception that stands for it."""
    code, _, text = line.partition(" ")
    kind = _BY_CODE.get(code, BadRequest)
    if code in _SHARED:
        kind = next((k for c, begins, k in _BY_TEXT if c == code and text.startswith(begins)), kind)
    return kind(text, code)
