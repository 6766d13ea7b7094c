"""What nodes say to each other: frames of messages, little-endian, no padding.

    frame     seq u64 · ack u64 · time i64 · message*   (the shell seals it and puts a u32 length before it)
    message   type u8 · fields as below

`seq` counts the frames of one link epoch from 1; `ack` says up to which frame of the other side we have done
everything it asked for; `time` is the sender's clock, in ms, when the frame was made. Job ids are their 48
characters. A set of nodes is a bit mask in the sender's own numbering; a NODE message says which life of which node a
bit stands for before the first mask that uses it, anew in each epoch and for each life. Times in messages are
milliseconds that remain, stamped when the frame is made.

This file only reads and writes; what the messages mean is in core/, in the file named after each group.
"""
from __future__ import annotations

from typing import Final

from librt.strings import (
    BytesWriter,
    read_i16_le,
    read_i32_le,
    read_i64_le,
    write_i16_le,
    write_i32_le,
    write_i64_le,
)
from mypy_extensions import i16, i32, i64

VERSION: Final = 7
"""Said in the handshake; nodes of another version are turned away with words."""

FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
"""A frame longer than this is no frame: more than the longest body there can be (limits.BODY_BYTES_MAX) and a
full frame before it."""

FRAME_BYTES_FULL: Final = 4 * 1024 * 1024
"""A sender begins a new frame when one has grown to this, so that no single body waits behind too many."""

ID: Final = 48
NODE_ID: Final = 40
HEADER: Final = 24

# Membership (core/membership.py).
NODE: Final = 1  # index u8, node id 40, incarnation i64
PING: Final = 2  # flags u8, wall clock i64, node-timeout u32, count u8, gossip entries
FAIL: Final = 3  # node id 40
# Replication (core/replicate.py).
REPL: Final = 10  # version u8, job
GOTJOB: Final = 11  # id, version u8
REFUSED: Final = 12  # id
ENQUEUE: Final = 13  # id
HOLDERS: Final = 14  # id, version u8, holders mask
# Requeue (core/requeue.py).
WILLQUEUE: Final = 20  # id, holders mask, claims u8, number i64
STATE: Final = 21  # id, state u8, ms i64, holders mask, number i64 of the WILLQUEUE or 0
QUEUED: Final = 22  # id, nacks u32, deliveries u32
WORKING: Final = 23  # id, ms i64
# Where jobs are (core/whereabouts.py). Each begins with count u32; a job is named by creator u32, number i64.
OUT: Final = 24  # per job: ms i64, nacks u32
WITHYOU: Final = 25
NOTHERE: Final = 26
# Acks (core/acks.py).
SETACK: Final = 30  # id, why u8, is-ack-only u8, holders mask
GOTACK: Final = 31  # id, kind u8, holders mask
DELJOB: Final = 32  # id, why u8, holders mask
# Federation (core/federate.py).
NEED: Final = 40  # queue, credit u32
YOURJOB: Final = 41  # move i64, job
TAKEN: Final = 42  # move i64, id
NOTTAKEN: Final = 43  # move i64, id
MOVED: Final = 44  # move i64, id: "did you take it?"
# Questions on behalf of a client (core/inquire.py).
ASK: Final = 50  # number i64, what u8, question
TELL: Final = 51  # number i64, answer
# Failed, dead, revived and changed jobs (core/fate.py).
FATE: Final = 60  # id, kind u8, ms i64, nacks u32, deliveries u32, priority u8, holders mask, queue, fate (more.py)
GOTFATE: Final = 61  # id, kind u8, round u32, changed i64, holders mask
# Results and who waits for them (core/results.py).
RESULT: Final = 62  # id, ms i64, result
WATCH: Final = 63  # id: tell us when it ends
ENDED: Final = 64  # id, word u8, has-result u8, result
# Settings of the whole cluster (core/registers.py).
REGISTER: Final = 70  # kind, name, field, is-set u8, value, stamp i64, writer 40
DIGEST: Final = 71  # digest i64, wants-all u8
# Rates of the whole cluster (core/grants.py). Each begins with: of-queue u8, name, count u32.
WANT: Final = 73
GRANT: Final = 74  # ms u32
SPENT: Final = 75
UNSPENT: Final = 76
LEVEL: Final = 77  # ns i64 until the bucket is full
SLOW: Final = 78
REFUND: Final = 82
# Bounds of the whole cluster (core/quota.py). Each begins with: kind u8, name.
QUOTA: Final = 79  # level i64, number i64, need i64
LEVELS: Final = 80  # level i64, number i64, is-all u8
RECALL: Final = 81
# Jobs on a schedule (core/cron.py).
CRONRAN: Final = 72  # name, version i64, instant i64

# Homes (core/takeover.py).
SLOTS: Final = 100  # count u16, then per slot: slot u16, epoch u32, owner's index u8
SLOTASK: Final = 101  # number i64, count u16, then per slot: slot u16, epoch u32
SLOTGAVE: Final = 102  # number i64, count u16, slots that are not given u16 each
HANDOVER: Final = 103  # count u16, then per slot: slot u16, epoch u32
HOMED: Final = 104  # state u8, ms i64, job
KEYTAKEN: Final = 105  # id, ms i64, key (core/unique.py)
MERGED: Final = 106  # id, id
# Commands passed on to a home (core/forward.py).
ADD: Final = 110  # number i64, hops u8, what was asked for
ADDED: Final = 111  # number i64, reply
NOTHOME: Final = 112  # number i64
RUN: Final = 113  # number i64, count u16, words
RAN: Final = 114  # number i64, reply
# Hand-outs at another node (core/remote.py).
LEND: Final = 120  # number i64, token, job
BORROWED: Final = 121  # number i64, lease ms i64, worker, address
RETURNED: Final = 122  # number i64

# Batches (core/batches.py).
BATCHBIT: Final = 130  # id, index u32, cause u8, name
BATCHGOT: Final = 131  # id
BATCHSTATE: Final = 132  # everything known of a batch

SALVAGED: Final = 140  # number i64, count u16, ids (core/salvage.py)
SEEN: Final = 141  # number i64, count u16, ids of those that are at most once and here


class BadFrame(Exception):
    """Bytes that are no frame. The link is closed; nothing of the frame counts."""


def write_i8(out: BytesWriter, v: i64) -> None:
    out.append(int(v & 255))


def write_u16(out: BytesWriter, v: i64) -> None:
    v = v & 0xFFFF
    write_i16_le(out, i16(v - 0x10000 if v >= 0x8000 else v))


def write_u32(out: BytesWriter, v: i64) -> None:
    v = v & 0xFFFFFFFF
    write_i32_le(out, i32(v - 0x100000000 if v >= 0x80000000 else v))


def write_name(out: BytesWriter, name: bytes) -> None:
    """A text of up to four gibibytes with its length before it."""
    write_u32(out, len(name))
    out.write(name)


def write_i64(out: BytesWriter, v: i64) -> None:
    write_i64_le(out, v)


def is_hex(text: bytes, first: i64, end: i64) -> bool:
    """Whether text[first:end], at least eight characters, is lower-case hex digits."""
    i = first
    while i < end - 8:
        if not is_hex8(read_i64_le(text, i)):
            return False
        i += 8
    return is_hex8(read_i64_le(text, end - 8))  # some of these perhaps for the second time


def is_hex8(word: i64) -> bool:
    """Eight characters at once. Added to an ASCII character, 0x80 - c sets its highest bit if it is c or above."""
    if word & -0x7F7F7F7F7F7F7F80 != 0:
        return False  # not even ASCII, and the sums below would carry into their neighbours
    digits: i64 = (word + 0x5050505050505050) & ~(word + 0x4646464646464646)
    letters: i64 = (word + 0x1F1F1F1F1F1F1F1F) & ~(word + 0x1919191919191919)
    return ((digits | letters) >> 7) & 0x0101010101010101 == 0x0101010101010101


class Reader:
    """Reads fields off the front of a frame; running out of bytes is a BadFrame, never an IndexError."""

    def __init__(self, data: bytes) -> None:
        self.data: bytes = data
        self.pos: i64 = 0
        self.end: i64 = len(data)

    def more(self) -> bool:
        return self.pos < self.end

    def skip(self, n: i64) -> i64:
        """Where the next n bytes begin."""
        at = self.pos
        if n < 0 or at + n > self.end:
            raise BadFrame("a field goes beyond the end of the frame")
        self.pos = at + n
        return at

    def u8(self) -> i64:
        return i64(self.data[self.skip(1)])

    def u16(self) -> i64:
        return i64(read_i16_le(self.data, self.skip(2))) & 0xFFFF

    def u32(self) -> i64:
        return i64(read_i32_le(self.data, self.skip(4))) & 0xFFFFFFFF

    def long(self) -> i64:
        return read_i64_le(self.data, self.skip(8))

    def text(self, n: i64) -> bytes:
        at = self.skip(n)
        return self.data[at:at + n]

    def job_id(self) -> bytes:
        """48 characters that have the form of a job id."""
        jid = self.text(ID)
        if not jid.startswith(b"DI") or not jid.endswith(b"SQ") or not is_hex(jid, 2, ID - 2):
            raise BadFrame("not a job id")
        return jid

    def node_id(self) -> bytes:
        node_id = self.text(NODE_ID)
        if not is_hex(node_id, 0, NODE_ID):
            raise BadFrame("not a node id")
        return node_id

    def name(self) -> bytes:
        return self.text(self.u32())
