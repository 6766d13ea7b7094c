"""What the machine asks of the shell, and the order in which it must be done.

Stepping the machine (Node.execute, disconnect, tick) leaves four things behind:

    out        the reply to the command just run, for the session that sent it (Node.take_output)
    wakeups    (session, bytes) for sessions that were blocked; empty bytes: just go on with its commands
    requests   things only the shell can do: close a connection, save settings, stop
    log        records: what must be in the journal before anything of this turn leaves
    frames     (peer, bytes) to be sent over the link with that peer, made by Node.flush at the end of a turn

The contract: the shell may step many events before it acts, but then it writes the records first, sends
frames, replies and wakeups after that, and carries out requests last. For one session, bytes leave in the order in
which they were made. `wakeups` and `requests` are the same list objects for the whole life of a node: the
shell keeps a reference, looks whether they are empty without a call, and drains them in place.
"""
from __future__ import annotations

from typing import Final

from holdfast.core.peers import Peer
from holdfast.core.session import Session

DIAL: Final = "dial"  # make a link to `peer` at `argument`, host:port of its bus, or to another member that is there
MEET: Final = "meet"  # the same, because an operator said so: tell what came of it (membership.met, and the log)
UNREACHED: Final = "unreached"  # nobody was met at `argument`, and we have given up
DROP_LINK: Final = "drop-link"  # end the link with `peer`
NEW_ID: Final = "new-id"  # this node has another id from now on: keep it, and introduce us by it
SAVE_NODES: Final = "save-nodes"  # keep the list of known nodes for the next start
CLOSE: Final = "close"  # send what is owed to the session, then close it
KILL: Final = "kill"  # close it now
SAVE_SETTINGS: Final = "save-settings"  # CONFIG REWRITE: answer the session when done
APPLY_SETTINGS: Final = "apply-settings"  # CONFIG SET changed something
LEAVING: Final = "leaving"  # CLUSTER LEAVING: `argument`, yes or no, holds for all nodes that share our port
SHUTDOWN: Final = "shutdown"  # `argument`: REWRITE-AOF, NOSAVE or nothing
REWRITE: Final = "rewrite"  # BGREWRITEAOF: answer the session when it has begun
HISTORY: Final = "history"  # `argument` says which command: answer the session when done
RESTART: Final = "restart"  # DEBUG RESTART: a clean stop and a new start
CRASH: Final = "crash"  # DEBUG SEGFAULT and its like: end without any cleaning up
VERIFY: Final = "verify"  # whether `argument` is the name and secret of a user: tell (logins.py) the session
SLEEP: Final = "sleep"  # DEBUG SLEEP: stand still for so many milliseconds


class Request:
    """Something only the shell can do. Where `session` is blocked it waits for Node.answer."""

    def __init__(
        self, kind: str, session: Session | None, argument: bytes = b"", peer: Peer | None = None
    ) -> None:
        self.kind: str = kind
        self.session: Session | None = session
        self.argument: bytes = argument
        self.peer: Peer | None = peer
