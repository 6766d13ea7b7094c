"""Commands about the cluster, as a node answers them that is alone."""
from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core import errors
from holdfast.core.errors import BadRequest
from holdfast.core.ids import NODE_ID_LENGTH
from holdfast.core.reply import write_array, write_bulk, write_int, write_simple
from holdfast.core.session import FOR_JOB, Session

if TYPE_CHECKING:
    from holdfast.core.node import Node

HELLO_VERSION = 1
PRIORITY_GOOD = 1
PRIORITY_LEAVING = 100


def write_hello(node: Node) -> None:
    """Disque's greeting: its version, my id, and for each node id, address, port and priority."""
    out = node.out
    write_array(out, 3)
    write_int(out, HELLO_VERSION)
    write_bulk(out, node.node_id)
    write_array(out, 4)
    write_bulk(out, node.node_id)
    write_bulk(out, b"")
    write_bulk(out, node.config.text("port").encode())
    write_bulk(out, b"%d" % (PRIORITY_LEAVING if node.is_leaving else PRIORITY_GOOD))


def cluster(node: Node, session: Session, argv: list[bytes]) -> None:
    """Look at the cluster and change it.

    NODES lists the nodes, INFO sums up, MYID is this node's id. LEAVING yes makes the node refuse new jobs
    and turn waiting consumers away, so that it can be stopped. RESET deletes all jobs and queues.
    """
    word = argv[1].upper()
    n = len(argv)
    out = node.out
    if word == b"MYID" and n == 2:
        write_bulk(out, node.node_id)
    elif word == b"NODES" and n == 2:
        flags = "myself,leaving" if node.is_leaving else "myself"
        line = f"{node.node_id.decode()} :{node.config.text('port')} {flags} 0 0 connected\n"
        write_bulk(out, line.encode())
    elif word == b"INFO" and n == 2:
        lines = ["cluster_state:ok", "cluster_known_nodes:1", "cluster_reachable_nodes:0", "cluster_size:1",
                 "cluster_stats_messages_sent:0", "cluster_stats_messages_received:0"]
        write_bulk(out, ("\r\n".join(lines) + "\r\n").encode())
    elif word == b"SAVECONFIG" and n == 2:
        out.write(b"+OK\r\n")
    elif word == b"MEET" and n == 4:
        meet(argv)
    elif word == b"FORGET" and n == 3:
        forget(node, argv[2])
    elif word == b"RESET" and (n == 2 or (n == 3 and argv[2].upper() in (b"SOFT", b"HARD"))):
        node.flush_all()
        out.write(b"+OK\r\n")
    elif word == b"LEAVING" and n in (2, 3):
        leaving(node, argv)
    else:
        raise BadRequest(b"ERR Wrong CLUSTER subcommand or number of arguments")


def meet(argv: list[bytes]) -> None:
    if not argv[3].isdigit() or not 0 < int(argv[3]) < 65536:
        raise BadRequest(b"ERR Invalid TCP port specified: %b" % errors.printable(argv[3]))
    raise BadRequest(b"ERR this version runs single nodes only: clusters come with a later one")


def forget(node: Node, node_id: bytes) -> None:
    if node_id == node.node_id:
        raise BadRequest(b"ERR I tried hard but I can't forget myself...")
    if len(node_id) != NODE_ID_LENGTH:
        raise BadRequest(b"ERR Invalid node identifier")
    raise BadRequest(b"ERR Unknown node %b" % errors.printable(node_id))


def leaving(node: Node, argv: list[bytes]) -> None:
    if len(argv) == 2:
        write_simple(node.out, b"yes" if node.is_leaving else b"no")
        return
    word = argv[2].lower()
    if word not in (b"yes", b"no"):
        raise BadRequest(b"ERR Wrong argument for CLUSTER LEAVING. Use 'yes' or 'no'")
    node.is_leaving = word == b"yes"
    node.settle()
    if node.is_leaving:
        turn_away(node)
    node.out.write(b"+OK\r\n")


def turn_away(node: Node) -> None:
    """Consumers that wait here had better wait elsewhere."""
    waiting = [session for session in node.sessions.values() if session.blocked == FOR_JOB]
    for session in waiting:
        node.answer(session, b"-" + errors.LEAVING + b"\r\n")
