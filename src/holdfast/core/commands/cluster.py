"""Commands about the cluster: who is in it, who can be heard, joining, leaving, forgetting."""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import away, errors, flush, heal, membership, peers, tombs, views
from holdfast.core.effects import LEAVING, NEW_ID, SAVE_NODES, Request
from holdfast.core.errors import BadRequest
from holdfast.core.ids import NODE_ID_LENGTH
from holdfast.core.job import Origin
from holdfast.core.limits import NEVER
from holdfast.core.peers import ME, NODES_MAX, Peer
from holdfast.core.reply import write_array, write_bulk, write_int, write_simple
from holdfast.core.session import FOR_JOB, Session

if TYPE_CHECKING:
    from holdfast.core.node import Node

HELLO_VERSION: Final = 1
PRIORITY_GOOD: Final = 1
PRIORITY_NO_LINK: Final = 5
PRIORITY_SUSPECT: Final = 10
PRIORITY_FAILED: Final = 100
BUS_PORT_OFFSET: Final = 10_000
PORT_DIGITS_MAX: Final = 5
HOST: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:%-")
"""What names and addresses of hosts are made of."""


def members(node: Node) -> list[Peer]:
    """This node and all it counts as part of the cluster."""
    return [peer for peer in node.peers if peer.index == ME or peer.is_member]


def write_hello(node: Node) -> None:
    """Disque's greeting: its version, my id, and for each node id, address, port and priority."""
    out = node.out
    nodes = members(node)
    write_array(out, 2 + len(nodes))
    write_int(out, HELLO_VERSION)
    write_bulk(out, node.node_id)
    for peer in nodes:
        write_array(out, 4)
        write_bulk(out, peer.node_id())
        write_bulk(out, peer.facts.host.encode())
        write_bulk(out, port_of(node, peer).encode())
        write_bulk(out, b"%d" % priority(node, peer))


def port_of(node: Node, peer: Peer) -> str:
    return node.config.text("port") if peer.index == ME and peer.facts.port == 0 else str(peer.facts.port)


def priority(node: Node, peer: Peer) -> i64:
    """How good a node is to connect to; lower is better."""
    if peer.index == ME:
        return PRIORITY_FAILED if node.is_leaving else PRIORITY_GOOD
    if peer.is_failed or peer.is_leaving(node.now):
        return PRIORITY_FAILED
    if peer.is_suspect:
        return PRIORITY_SUSPECT
    return PRIORITY_GOOD if peer.is_linked else PRIORITY_NO_LINK


def cluster(node: Node, session: Session, argv: list[bytes]) -> None:
    """Look at the cluster and change it.

    MEET joins this node's cluster and the one of the node at that address; it is tried for a minute, and shown
    as a handshake meanwhile. NODES lists the nodes, INFO sums up, MYID is this node's id. LEAVING yes makes the
    node, and those that share its port, give their jobs away and refuse new ones; LEAVING status says when it is
    safe to stop. FORGET drops a node that will not come back; for a minute it is not let in again except by
    MEET. Of a handshake it takes back the MEET or the --join. RESET forgets all nodes and deletes all jobs
    and queues; HARD gives this node another id, too. It is alone then, however often the others call it, until a
    MEET or a `join` brings it together with a node: with one it knew, it is in that cluster again. QSTAT sums the
    figures of a queue, or of all with *, over the nodes that answer, and names those that do not. AWAY lists the nodes
    that are away: for how long, when each counts as failed at the earliest (0: it does), and how many jobs wait for it,
    over the nodes that answer; then it names those that do not.
    """
    word = argv[1].upper()
    n = len(argv)
    out = node.out
    if word == b"MYID" and n == 2:
        write_bulk(out, node.node_id)
    elif word == b"NODES" and n == 2:
        lines = [describe(node, peer) for peer in members(node)] + handshakes(node)
        write_bulk(out, "".join(lines).encode())
    elif word == b"INFO" and n == 2:
        write_bulk(out, summary(node).encode())
    elif word == b"SAVECONFIG" and n == 2:
        node.requests.append(Request(SAVE_NODES, None))
        out.write(b"+OK\r\n")
    elif word == b"MEET" and n in (4, 5):
        meet(node, argv)
        out.write(b"+OK\r\n")
    elif word == b"FORGET" and n == 3:
        forget(node, argv[2])
        out.write(b"+OK\r\n")
    elif word == b"RESET" and (n == 2 or (n == 3 and argv[2].upper() in (b"SOFT", b"HARD"))):
        reset(node)
        if n == 3 and argv[2].upper() == b"HARD":
            take_new_id(node)
        out.write(b"+OK\r\n")
    elif word == b"QSTAT" and n == 3:
        views.ask(node, session, argv[2])
    elif word == b"AWAY" and n == 2:
        away.ask(node, session)
    elif word == b"LEAVING" and n in (2, 3):
        leaving(node, argv)
    else:
        raise BadRequest(b"ERR Wrong CLUSTER subcommand or number of arguments")


def describe(node: Node, peer: Peer) -> str:
    """A line of CLUSTER NODES."""
    flags = []
    if peer.index == ME:
        flags.append("myself")
    if peer.is_suspect and not peer.is_failed:
        flags.append("fail?")
    if peer.is_failed:
        flags.append("fail")
    if (peer.index == ME and node.is_leaving) or peer.is_leaving(node.now):
        flags.append("leaving")
    is_connected = peer.index == ME or peer.is_linked
    heard = 0 if peer.index == ME else node.wall - (node.now - peer.heard)
    return (
        f"{peer.node_id().decode()} {peer.facts.host}:{port_of(node, peer)} {','.join(flags) or 'noflags'} "
        f"0 {heard} {'connected' if is_connected else 'disconnected'}\n"
    )


def handshakes(node: Node) -> list[str]:
    """Lines for those we try to meet. Nobody knows their ids yet, so they are numbered."""
    return [f"{each.number:040x} {each.shown} handshake 0 0 disconnected\n" for each in node.invitations.values()]


def summary(node: Node) -> str:
    facts = {
        "cluster_state": "ok",
        "cluster_known_nodes": len(members(node)),
        "cluster_reachable_nodes": peers.reachable(node),
        "cluster_size": len(members(node)),
        "cluster_stats_messages_sent": node.bus_frames_out,
        "cluster_stats_messages_received": node.bus_frames_in,
        "cluster_stats_bytes_sent": node.bus_bytes_out,
        "cluster_endings_uncollected": len(node.endings),
        "cluster_tombstones": len(node.tombs),
        "cluster_other_node_timeouts": len(membership.of_other_timeout(node)),
        "cluster_slots_at_home": sum([1 for is_open in node.homes.opened if is_open]),
        "cluster_jobs_short_of_copies": node.census.short + len(node.filling),
    }
    if node.is_leaving:
        facts.update({f"cluster_leaving_{name}": count for name, count in heal.left_to_do(node).by_name().items()})
    facts.update({f"cluster_count_{name.replace('-', '_')}": node.counters[name] for name in sorted(node.counters)})
    return "".join([f"{name}:{value}\r\n" for name, value in facts.items()])


def meet(node: Node, argv: list[bytes]) -> None:
    why_alone = node.meter.why_alone()
    if why_alone:
        raise BadRequest(b"ERR no other node can join this one: %b" % why_alone.encode())
    port = read_port(argv[3])
    bus_port = read_port(argv[4]) if len(argv) == 5 else port + BUS_PORT_OFFSET
    host = argv[2][1:-1] if argv[2].startswith(b"[") and argv[2].endswith(b"]") else argv[2]
    if not host or len(host) > 255 or not all([c in HOST for c in host]) or bus_port > 65535:
        raise BadRequest(b"ERR Invalid node address specified: %b:%b" % (errors.printable(argv[2]), argv[3]))
    if len(node.invitations) >= NODES_MAX:
        raise BadRequest(b"ERR as many nodes are being met already as a cluster can have")
    name = host.decode("ascii")
    membership.invite(node, membership.bus_address(name, bus_port), f"{name}:{port}", node.now + membership.MEET_MS)


def read_port(text: bytes) -> int:
    if len(text) > PORT_DIGITS_MAX or not text.isdigit() or not 0 < int(text) < 65536:
        raise BadRequest(b"ERR Invalid TCP port specified: %b" % errors.printable(text))
    return int(text)


def forget(node: Node, node_id: bytes) -> None:
    if node_id == node.node_id:
        raise BadRequest(b"ERR I tried hard but I can't forget myself...")
    if len(node_id) != NODE_ID_LENGTH:
        raise BadRequest(b"ERR Invalid node identifier")
    for each in node.invitations.values():
        if node_id == b"%040x" % each.number:
            each.until = node.now
            membership.call(node)
            return
    peer = node.by_id.get(node_id)
    if peer is None or not peer.is_member:
        raise BadRequest(b"ERR Unknown node %b" % errors.printable(node_id))
    membership.forget(node, peer, node.now + membership.FORGET_MS)


def reset(node: Node) -> None:
    flush.flush_all(node)
    tombs.forget_all(node)
    node.invitations.clear()
    for peer in members(node):
        if peer.index != ME:
            membership.forget(node, peer, NEVER)


def take_new_id(node: Node) -> None:
    """RESET HARD: nobody is to take this node for the one it was. At this moment it has no jobs, and soon no links."""
    node_id = b"".join([b"%08x" % (node.random.next() & 0xFFFFFFFF) for _ in range(NODE_ID_LENGTH // 8)])
    del node.by_id[node.node_id]
    node.node_id = node.peers[ME].facts.node_id = node_id
    node.by_id[node_id] = node.peers[ME]
    node.own = Origin(b"DI" + node_id[:8])
    node.origins = {node.own.prefix: node.own}
    node.requests.append(Request(NEW_ID, None, node_id))


def leaving(node: Node, argv: list[bytes]) -> None:
    if len(argv) == 2:
        write_simple(node.out, b"yes" if node.is_leaving else b"no")
        return
    word = argv[2].lower()
    if word == b"status":
        is_safe = node.is_leaving and heal.is_safe_to_stop(node) and node.meter.are_siblings_safe()
        write_simple(node.out, b"safe" if is_safe else b"draining" if node.is_leaving else b"no")
        return
    if word not in (b"yes", b"no"):
        raise BadRequest(b"ERR Wrong argument for CLUSTER LEAVING. Use 'yes', 'no' or 'status'")
    leave(node, word == b"yes")
    if node.is_one_of_many:
        node.requests.append(Request(LEAVING, None, word))
    node.out.write(b"+OK\r\n")


def leave(node: Node, is_leaving: bool) -> None:
    node.is_leaving = is_leaving
    node.settle()
    heal.forget_vouched(node)
    if node.is_leaving:
        turn_away(node)
    for peer in node.peers:
        if peer.is_linked and (node.is_leaving or not node.broken("staying-untold")):
            membership.write_ping(node, peer)  # before they hear of consumers, whom they would take for leaving


def turn_away(node: Node) -> None:
    """Consumers that wait here had better wait elsewhere."""
    waiting = [session for session in node.sessions.values() if session.blocked == FOR_JOB]
    for session in waiting:
        node.answer(session, b"-" + errors.LEAVING + b"\r\n")
