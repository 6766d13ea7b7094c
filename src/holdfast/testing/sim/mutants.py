"""The holes we must be able to find: each is a switch in the core that takes one rule away.

A checker that finds nothing is broken until shown otherwise. So every hole of the published protocol (H1-H10,
H12-H14) and every rule of CLUSTER.md (sections 0-3 and 5) has a name here; a node that is given the name
(`node.set_mutants`) behaves as if the rule had never been written. `python -m holdfast.testing.sim mutants`
demands that each is caught within a number of seeds, or by the directed scenarios that name it.
"""
from __future__ import annotations

from typing import Final

ALONG: Final[dict[str, tuple[str, ...]]] = {
    "h1-sizes-not-sets": ("h1-taker-not-recorded",),
    "h4-no-tombstone-for-unknown": ("h12-no-gotack-barrier", "h6-no-tombstone-at-collection"),
    "h5-abort-erases-ack": ("h4-no-tombstone-for-unknown", "forgetful-holder-believed"),
    "h6-no-tombstone-at-collection": ("h12-no-gotack-barrier",),
    "h9-deaf-while-acked": ("late-holders-untold", "unsure-sets-trusted"),
    "late-holders-untold": ("unsure-sets-trusted",),
    "had-not-wanted": ("no-healing",),
    "old-life-counts": ("unknown-holder-believed",),
    "unknown-holder-believed": ("old-life-counts",),
    "heal-sends-first": ("late-holders-untold", "unsure-sets-trusted"),
    "queued-answer-unheard": ("refusal-queues",),
    "takeover-grabs": ("home-by-sight",),
    "home-by-sight": ("takeover-grabs",),
    "h12-no-gotack-barrier": ("h6-no-tombstone-at-collection",),
    "h12-unknown-counts-for-good": ("h4-no-tombstone-for-unknown",),
}
"""Belt and braces: rules that cover for each other are taken away together."""


def switches(name: str) -> frozenset[str]:
    """What to switch for this mutant."""
    return frozenset([name, *ALONG.get(name, ())])


MUTANTS: Final[dict[str, str]] = {
    # -- holes in the published protocol --------------------------------------------------------------------
    "h1-sizes-not-sets": "an ack is collected when as many nodes confirmed it as may hold a copy, whichever they are",
    "h1-taker-not-recorded": "a give does not make the taker a holder, nor the giver one at the taker",
    "h2-give-unacks": "a job given to a node that holds its ack is queued there all the same",
    "h3-acks-not-durable": "ACKJOB and SETACK leave no record: a restart brings the job back",
    "h4-no-tombstone-for-unknown": "SETACK for an unknown job is answered `unknown` and leaves no trace",
    "h5-abort-erases-ack": "DELJOB of a timed-out ADDJOB also deletes a copy that was acked meanwhile",
    "h6-no-tombstone-at-collection": "DELJOB gc leaves no tombstone, at the holders or the collector",
    "h7-gives-repeated": "un-confirmed gives are sent again at link-up, those of at-most-once jobs too",
    "h8-gotack-without-set": "GOTACK does not carry the holders the answering node knows",
    "h9-deaf-while-acked": "a node that holds the ack does not note an unlisted holder that speaks of the job",
    "h10-import-not-logged": "a job taken by federation is not recorded by the taker",
    "h12-no-gotack-barrier": "GOTACK `holder` although a frame of ours that carries a copy is not confirmed yet",
    "h12-unknown-counts-for-good": "an `unknown` still counts after a later GOTACK named that node as holder",
    "h13-ack-only-vouches": "an ack-only node answers as if it were a holder",
    "h14-abort-forgets-holders": "the tombstone of an aborted ADDJOB does not keep the holder set",
    # -- 0, ground rules ------------------------------------------------------------------------------------
    "incarnation-ignored": "a node that comes back with an empty disk still counts as holder and as confirmed",
    "old-life-counts": "sets of peers that have not met a node's new life put it back among the holders",
    "resend-after-reconnect": "frames of an old epoch are sent again in the new one, whoever is there now",
    "life-on-the-wall": "lives, leases and tombstones run on the wall clock",
    "life-longer-by-hop": "a receiver takes the full TTL anew, or the longer of two lives",
    "flight-not-counted": "the time a copy was on its way is not taken from its life",
    "expire-by-bad-clock": "a start whose wall clock is off its peers' expires jobs at once",
    "sleeper-hands-out": "a node that slept hands out queued jobs with other holders without asking first",
    "had-not-wanted": "background replication is given up: copies stay at what was had at the reply",
    # -- 1, acks and tombstones -----------------------------------------------------------------------------
    "tombstone-not-journaled": "tombstones are gone after a restart",
    "tombstone-too-short": "a tombstone with an unconfirmed holder lives as briefly as any other",
    "missed-acks-not-read": "a node that returns queues its jobs before it has heard which were acked meanwhile",
    "unsure-sets-trusted": "who held a job is believed to be known although a holder lost what it knew",
    "lost-tail-trusted": "a start from a disk that may lack the last second believes to know all holders",
    "forgetful-holder-believed": "a holder that knows nothing of the job is taken for one that never knew anything",
    "late-holders-untold": "who was asked for a copy first does not hear of those who were asked later",
    "own-number-not-believed": "an ack for a job of ours is dropped if our clock was set back since we made it",
    "gotack-not-kept": "GOTACK leaves before the ending it confirms is on disk",
    "abort-not-collected": "the abort of an ADDJOB is sent once to whoever is reachable, and forgotten",
    # -- 2, leases and requeueing ---------------------------------------------------------------------------
    "silence-is-permission": "a copy is queued when its own timer says so, whatever its silent holder may have leased",
    "willqueue-unanswered": "WILLQUEUE is answered for queued and acked jobs only, not for leased ones",
    "no-holder-order": "holders whose timers end together requeue together: no i x 500 ms",
    "taker-unannounced": "a taker does not tell the other holders that the job is with it now",
    "no-reannounce": "nothing is said at link-up about what was queued while the peer was away",
    "restart-forgets-leases": "hand-outs are not recorded: a restart queues what is with a consumer",
    "once-not-synced": "the hand-out of an at-most-once job is not synced before the reply leaves",
    "once-copied": "at-most-once jobs are replicated or healed like others",
    "once-requeued-at-start": "an at-most-once job found after an unclean stop is queued, not dead `in doubt`",
    "refusal-queues": "a copy that is refused by the node last responsible is queued without asking other holders",
    "queued-answer-unheard": "who has queued a job does not heed the answer that it is queued elsewhere",
    "late-enqueue-obeyed": "a job is queued for the first time although somebody else has it by now",
    "queued-lost": "that a job is queued here is not said again when the link breaks before it was heard",
    # -- 2, tokens and what becomes of jobs -----------------------------------------------------------------
    "stale-token-accepted": "a token counts although its lease has ended and another has the job",
    "token-not-asked": "a node without the lease takes the word under a token without asking the node in it",
    "nack-by-stranger": "a node without the lease takes a NACK although the node in the token cannot be asked",
    "long-lease-untold": "that a lease is longer than the retry time is not told to the other holders",
    "lease-token-forgotten": "a restart forgets the tokens of leases, though hand-outs are in the journal",
    "dead-not-spread": "the death of a job is not told to the other holders",
    "death-told-once": "it is told to those who can be heard, and to nobody who comes back later",
    "death-not-kept": "it leaves no record: a restart revives the job",
    "retry-without-round": "a job sent back from the dead has no higher round: an old word of its death counts",
    "tries-stay": "a holder that queues a job for another does not know how often it failed there",
    "no-claim": "a holder that did not have the job out may count its failure in place of the one that did",
    "result-stays-behind": "the result of an ack does not travel with it",
    "result-not-kept": "results are gone after a restart",
    "result-ends-with-job": "a result is forgotten when the ack is collected",
    "cancel-forgotten": "a job that was called off while out is queued again when it comes back",
    "release-counts": "giving a job back without blame uses up an attempt",
    # -- 3, federation --------------------------------------------------------------------------------------
    "move-not-recorded": "the giver's GAVE is not on disk before the frame leaves",
    "old-moves-open": "an at-most-once job that comes back is still taken for one that is on its way elsewhere",
    "took-not-recorded": "the taker queues before its TOOK is on disk, or forgets that it took",
    "taken-not-synced": "a giver lets the taker forget the move before its own knowledge of it is on disk",
    "give-back-on-silence": "a giver that hears nothing queues the job again without a recorded refusal",
    "doubt-not-recorded": "a giver that restarts asks the new life of the taker what only the old one knew",
    "in-doubt-requeued": "an at-most-once move to a node that lost its disk is queued again, not dead `in doubt`",
    "interest-outlives-link": "interest and credits stay when the link goes down",
    "credits-add-up": "credits are increments, not absolute: crossing grants and gives add up wrongly",
    "hops-unbounded": "a job may be moved on and on",
    # -- history ----------------------------------------------------------------------------------------------
    "hand-out-untold": "a job that goes to a consumer is not in the history of the node",
    "ack-untold": "nor one that is acknowledged",
    # -- 4, homes -------------------------------------------------------------------------------------------
    "home-by-sight": "a node takes over what belongs to one that it does not see, whatever others see",
    "takeover-grabs": "those who see the old home let another take over",
    "takeover-asks-nobody": "a new home opens with what it happens to hold",
    "stale-copy-believed": "a home believes that a job lives because somebody who was away has a copy",
    "lower-epoch-goes-on": "a home that is told of a higher epoch goes on",
    "handover-forgets": "a home that hands over sends nothing of what it knows",
    "group-released-on-nack": "a job that is given back lets the next of its group go",
    "group-by-creation": "the order in a group is that of the ids, by the clocks of the producers' nodes",
    "head-not-out": "a new home queues the head of a group at once: no consumer can have it",
    "unique-lost-on-restart": "which keys are taken is not worked out again after a restart",
    "unique-unaccepted-answered": "the id of a job that still waits for its copies is answered for its key",
    "window-ends-with-job": "a key is free when its job is done, whatever its window",
    "replaced-lives-on": "a job whose place was taken is handed out all the same",
    "never-merged": "the same job, added on two sides of a cut, stays two",
    "batch-counts-twice": "an end of a member that is told twice counts twice",
    "batch-bit-not-awaited": "an ended member is forgotten before those who count have confirmed",
    # -- 5, healing, leaving, returning ---------------------------------------------------------------------
    "heal-sends-first": "the healer sends the copy before it has recorded the new holder",
    "unknown-holder-believed": "a node that says it knows nothing of a job still counts as holding a copy",
    "default-is-fixed": "how many copies a job gets by default is decided when it is added, whatever comes after",
    "copies-in-doubt-dropped": "a copy that was on its way when a link ended counts as arrived",
    "everybody-heals": "every holder heals, not the first reachable one",
    "heal-at-once": "healing does not wait for heal-after",
    "forgotten-joins-at-once": "a forgotten node that returns queues before it has read its missed acks",
    "no-healing": "copies are never brought back to `replicate`",
    "safe-too-soon": "a leaving node says it is safe to stop while it holds the only copy of something",
    # -- 6, claims ------------------------------------------------------------------------------------------
    "claim-taken-anew": "a batch that is asked for again under its number is made of other jobs",
    "claim-unfenced": "a reader that was replaced may still renew and commit",
    "claim-outlives-lease": "a claim whose lease is over, and whose jobs were queued again, can still be committed",
    "claims-forgotten": "a restarted node does not know its claims any more",
    "claim-expires": "a job's life may end while it is part of a claim",
}
