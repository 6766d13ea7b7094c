"""What peers say: links that come and go, and which function each message of a frame goes to."""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter

from holdfast.core import (
    acks,
    away,
    batches,
    cancel,
    change,
    cron,
    dead,
    domains,
    explain,
    fate,
    federate,
    flush,
    forward,
    grants,
    handback,
    held,
    homecoming,
    inquire,
    links,
    longer,
    membership,
    placement,
    quota,
    registers,
    remote,
    replicate,
    requeue,
    results,
    salvage,
    slots,
    takeover,
    tokens,
    unique,
    views,
    whereabouts,
    workers,
)
from holdfast.core.limits import NEVER
from holdfast.core.peers import NODES_MAX, UNEXPLAINED, Peer, PeerFacts, bit_of
from holdfast.core.store import Unreadable
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node

Handler = Callable[["Node", Peer, Reader], None]

HANDLERS: Final[dict[int, Handler]] = {
    bus.NODE: membership.on_node,
    bus.PING: membership.on_ping,
    bus.FAIL: membership.on_fail,
    bus.REPL: replicate.on_repl,
    bus.GOTJOB: replicate.on_gotjob,
    bus.REFUSED: replicate.on_refused,
    bus.ENQUEUE: replicate.on_enqueue,
    bus.HOLDERS: replicate.on_holders,
    bus.WILLQUEUE: requeue.on_willqueue,
    bus.STATE: requeue.on_state,
    bus.QUEUED: requeue.on_queued,
    bus.SALVAGED: salvage.on_salvaged,
    bus.SEEN: salvage.on_seen,
    bus.WORKING: longer.on_working,
    bus.OUT: whereabouts.on_out,
    bus.WITHYOU: whereabouts.on_withyou,
    bus.NOTHERE: whereabouts.on_nothere,
    bus.SETACK: acks.on_setack,
    bus.GOTACK: acks.on_gotack,
    bus.DELJOB: acks.on_deljob,
    bus.NEED: federate.on_need,
    bus.YOURJOB: federate.on_yourjob,
    bus.TAKEN: federate.on_taken,
    bus.NOTTAKEN: federate.on_nottaken,
    bus.MOVED: federate.on_moved,
    bus.REGISTER: registers.on_register,
    bus.DIGEST: registers.on_digest,
    bus.CRONRAN: cron.on_ran,
    bus.WANT: grants.on_want,
    bus.GRANT: grants.on_grant,
    bus.SPENT: grants.on_spent,
    bus.UNSPENT: grants.on_unspent,
    bus.LEVEL: grants.on_level,
    bus.SLOW: grants.on_slow,
    bus.REFUND: grants.on_refund,
    bus.QUOTA: quota.on_quota,
    bus.LEVELS: quota.on_levels,
    bus.RECALL: quota.on_recall,
    bus.SLOTS: takeover.on_slots,
    bus.SLOTASK: takeover.on_ask,
    bus.SLOTGAVE: takeover.on_gave,
    bus.HANDOVER: takeover.on_handover,
    bus.HOMED: homecoming.on_homed,
    bus.KEYTAKEN: unique.on_taken,
    bus.MERGED: unique.on_merged,
    bus.ADD: forward.on_add,
    bus.ADDED: forward.on_added,
    bus.NOTHOME: forward.on_nothome,
    bus.RUN: forward.on_run,
    bus.RAN: forward.on_ran,
    bus.BATCHBIT: batches.on_bit,
    bus.BATCHGOT: batches.on_got,
    bus.BATCHSTATE: batches.on_state,
    bus.LEND: remote.on_lend,
    bus.BORROWED: remote.on_borrowed,
    bus.RETURNED: remote.on_returned,
    bus.ASK: inquire.on_ask,
    bus.TELL: inquire.on_tell,
    bus.FATE: fate.on_fate,
    bus.GOTFATE: fate.on_gotfate,
    bus.RESULT: results.on_result,
    bus.WATCH: results.on_watch,
    bus.ENDED: results.on_ended,
}

explain.REASONS.append(held.of_rules)
inquire.KINDS.update({
    inquire.FIGURES: views.tell,
    inquire.AWAY: away.tell,
    inquire.FLUSHED: flush.tell,
    inquire.COUNTED: flush.tell_count,
    inquire.LEASED: tokens.tell,
    inquire.CANCELLED: cancel.tell,
    inquire.WORKERS: workers.tell,
    inquire.EXPLAINED: explain.tell,
    inquire.DEAD: dead.tell,
    inquire.CHANGED: change.tell,
    inquire.HANDED_BACK: handback.tell,
    inquire.BUCKET: domains.tell,
})


def link_up(node: Node, facts: PeerFacts) -> Peer | None:
    """A link is there: a new epoch. None if we do not want to talk to that node."""
    peer = membership.meet(node, facts)
    if peer is None:
        return None
    if peer.is_linked:
        link_down(node, peer)
    peer.is_linked = True
    if peer.away_since > 0:
        node.promised.links.note(node.now - peer.away_since)
    peer.out = BytesWriter()
    peer.sent = peer.acked = peer.received = peer.awaited = 0
    peer.owes_ack = False
    peer.fastest = NEVER
    peer.told = 0
    peer.table = [UNEXPLAINED] * (NODES_MAX + 1)
    placement.regard_hosts(node)
    node.count("link-up")
    if node.broken("resend-after-reconnect"):
        links.explain(node, peer, bit_of(len(node.peers)) - 1)
        for _, body in peer.unheard:
            peer.out.write(body)
        peer.unheard.clear()
    membership.link_up(node, peer)
    registers.link_up(node, peer)
    cron.link_up(node, peer)
    quota.link_up(node, peer)
    acks.link_up(node, peer)
    fate.link_up(node, peer)
    requeue.link_up(node, peer)
    salvage.link_up(node, peer)
    federate.link_up(node, peer)
    replicate.link_up(node, peer)
    takeover.link_up(node, peer)
    batches.link_up(node, peer)
    forward.link_up(node, peer)
    results.link_up(node, peer)
    whereabouts.link_up(node, peer)
    return peer


def link_down(node: Node, peer: Peer) -> None:
    """The epoch is over. What was on its way may have arrived or not; its receiver is in every holder set."""
    if not peer.is_linked:
        return
    peer.is_linked = False
    peer.away_since = node.now
    peer.is_shy = peer.received == 0
    peer.out = BytesWriter()
    for jobs in [*[jobs for _, jobs in peer.flying], peer.boarding]:
        links.land(jobs)
        peer.doubted.update(dict.fromkeys(jobs))
    peer.flying.clear()
    peer.taking.clear()
    peer.boarding = []
    placement.regard_hosts(node)
    node.count("link-down")
    membership.link_down(node, peer)
    federate.link_down(node, peer)
    grants.link_down(node, peer)
    quota.link_down(node, peer)
    requeue.link_down(node, peer)
    takeover.link_down(node, peer)
    forward.link_down(node, peer)
    remote.link_down(node, peer)
    unique.link_down(node, peer)
    inquire.link_down(node, peer)
    results.link_down(node, peer)


def frame(node: Node, peer: Peer, data: bytes) -> bool:
    """Do what a frame says. False: it is no frame of this epoch; the link must be closed."""
    if not peer.is_linked:
        return False
    try:
        reader = Reader(data)
        seq = reader.long()
        ack = reader.long()
        sent_at = reader.long()
        if not 0 <= sent_at < NEVER:
            raise BadFrame("a time that no clock shows")
        if seq != 0:
            if seq != peer.received + 1:
                raise BadFrame("a frame is missing, or came twice")
            peer.received = seq
        if ack < peer.acked or ack > peer.sent:
            raise BadFrame("an acknowledgement of a frame that was never sent")
        links.note_ack(peer, ack)
        links.note_time(node, peer, sent_at)
        slots.gather(node)
        while reader.more():
            kind = reader.u8()
            # The ones that come a million times are called by name: that is compiled to a plain call.
            if kind == bus.REPL:
                replicate.on_repl(node, peer, reader)
            elif kind == bus.GOTJOB:
                replicate.on_gotjob(node, peer, reader)
            elif kind == bus.SETACK:
                acks.on_setack(node, peer, reader)
            elif kind == bus.GOTACK:
                acks.on_gotack(node, peer, reader)
            elif kind == bus.DELJOB:
                acks.on_deljob(node, peer, reader)
            else:
                handler = HANDLERS.get(kind)
                if handler is None:
                    raise BadFrame("a message of a type there is none of")
                handler(node, peer, reader)
    except BadFrame as why:
        node.count("bad-frame")
        node.notice(peer.node_id(), f"what it says is refused, and the link ends: {why}")
        return False
    except Unreadable:
        node.count("unreadable")  # a job that it is about: what was missed is repaired over the next link
        return False
    finally:
        slots.release_all(node)
    node.bus_frames_in += 1
    membership.heard(node, peer)
    return True
