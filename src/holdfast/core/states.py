"""What a job can be doing, in plain words: one table for SHOW, JSCAN, EXPLAIN, every list for people and the reference.

Disque's `state` says `active` of each job that is neither queued nor over, whether a worker has it, its delay runs, it
failed and waits, or another node has it. Clients of Disque rely on that word, so it stays; `status` beside it is one of
these. status.py finds the word for a job. A new one is a line here and a branch there: filters, lists and the reference
follow. Nothing is imported, so that a command line need not load the machine to know the words.
"""
from __future__ import annotations

from typing import Final

ACCEPTING: Final = b"accepting"
QUEUED: Final = b"queued"
IN_LINE: Final = b"in-line"
DELAYED: Final = b"delayed"
RETRYING: Final = b"retrying"
LEASED: Final = b"leased"
MOVING: Final = b"moving"
ASKING: Final = b"asking"
PUT_OFF: Final = b"put-off"
IN_DOUBT: Final = b"in-doubt"
DEAD: Final = b"dead"
NODE_AWAY: Final = b"node-away"
COPY: Final = b"copy"
ENDED: Final = b"ended"

ABOUT: Final = {
    QUEUED: "waits in its queue for a worker",
    IN_LINE: "waits for the jobs of its group that come before it; counted as queued",
    LEASED: "a worker has it",
    DELAYED: "its delay has not ended",
    RETRYING: "it failed, and waits before it is tried again",
    DEAD: "it failed for good, and is kept until somebody retries or deletes it",
    NODE_AWAY: "the node that has it is away: it waits for that node, or for another that has a copy to queue it",
    ACCEPTING: "not accepted yet: too few nodes hold a copy",
    MOVING: "on its way to another node",
    ASKING: "the other holders are asked whether a worker has it",
    PUT_OFF: "kept out of its queue for a while, such as by DEQUEUE or a pause; comes back by itself",
    IN_DOUBT: "at most once, and nobody can say whether a worker had it; ENQUEUE queues it",
    COPY: "this node only keeps a copy; another says more, which has the job, or counts it while its node is away",
    ENDED: "over: acknowledged, expired or deleted",
}
"""In the order in which people read them."""

COUNTED: Final = {
    QUEUED: b"len", LEASED: b"out", DELAYED: b"delayed", RETRYING: b"retrying", DEAD: b"dead-kept",
    NODE_AWAY: b"node-away", ACCEPTING: b"accepting", MOVING: b"moving", ASKING: b"asking", PUT_OFF: b"put-off",
    IN_DOUBT: b"in-doubt",
}
"""The figure of a queue that says how many of its jobs are in a state; those in line are queued. Every job is in one of
them, and in one only."""

LISTED: Final = [each for each in ABOUT if each != COPY and each != ENDED]
"""Of a list of all jobs, so that each job is in it once: as the node has it that hands it out."""
