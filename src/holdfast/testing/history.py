"""A history: what clients asked and were told, and what was done to the cluster meanwhile.

An operation is written when it is invoked and again when its end is known, with the same number:

    invoke    a client sent it
    ok        it was answered; `value` has the answer
    fail      it was refused: nothing happened, and nothing will
    info      nobody can know: no answer came. Also every mark below, which is no operation at all

Values are plain JSON, so a history of real processes (JSONL, one line per entry) and a simulated one are the
same thing to a checker. What the operations carry:

    f        invoke                                                     ok
    add      queue body replicate retry ttl delay async timeout         id, dup: what became of its unique key
             attempts backoff; group skips; unique until window ondup; batch index;
             final_of count, for a BATCH CLOSE
    get      queues lease                                               jobs: [{id queue body nacks deliveries
                                                                               token attempt}]
    ack      ids token result                                           count
    nack release reject keepalive   ids token ms                        count, or words
    fastack enqueue dequeue working deljob retry bury call-off   ids    count, or reply
    wait     about                                                      ends: [[id, word, result]]
    dead                                                                rows: [[id, queue, cause, failures]]
    pause    queue words                                                state
    qflush   queue                                                      count

Marks, by the process `nemesis` or `watch`:

    settings   settle_ms skew_ms rate_ppm flight_ms ...    what the run's tolerances come from
    calm       on: bool       everything is up and connected from here on, or is not any more
    fault      number kind who phase: begin | end          something was done to the cluster
    loss       wiped records                               `node` lost what its disk held, or the end of it
    restart    node came back
    restored   since: what was accepted before that time has all its copies again, what was acknowledged
               before it is collected: losses up to here are made good
    hears      who lag: `node` hears these, and a message takes up to so many ms; `-`: it is down
    heal       faults are over: liveness may be demanded from here on
    seen       class job text                              a white-box checker saw a promise broken
    told       event job                                   a record of `node`'s own history
    merged     id into                                     two unique jobs, added on two sides of a cut, became one
    end
"""
from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeAlias

Value: TypeAlias = dict[str, Any]
"""JSON: str, int, bool, None, lists and dicts of them."""

INVOKE: Final = "invoke"
OK: Final = "ok"
FAIL: Final = "fail"
INFO: Final = "info"

NEMESIS: Final = "nemesis"
WATCH: Final = "watch"


class Op(NamedTuple):
    t: int  # milliseconds since the run began
    number: int  # joins an invocation and its end; 0 for marks
    process: str
    node: str
    type: str
    f: str
    value: Value


class History:
    """Append-only. `sha256` is the run's fingerprint: the same seed and the same code give the same one."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.invoked = 0

    def invoke(self, t: int, process: str, node: str, f: str, value: Value) -> int:
        self.invoked += 1
        self.ops.append(Op(t, self.invoked, process, node, INVOKE, f, value))
        return self.invoked

    def complete(self, t: int, number: int, process: str, node: str, type: str, f: str, value: Value) -> None:
        self.ops.append(Op(t, number, process, node, type, f, value))

    def mark(self, t: int, process: str, node: str, f: str, **value: Any) -> None:
        self.ops.append(Op(t, 0, process, node, INFO, f, value))

    def deliveries(self, job: str) -> int:
        """How often a client was handed the job with that id."""
        return sum(
            1 for op in self.ops if op.type == OK and op.f == "get" for each in op.value["jobs"] if each["id"] == job
        )

    def sha256(self) -> str:
        digest = sha256()
        for op in self.ops:
            digest.update(repr(op).encode())
        return digest.hexdigest()

    def to_jsonl(self) -> str:
        return "".join(json.dumps(op) + "\n" for op in self.ops)

    @classmethod
    def from_jsonl(cls, lines: Iterable[str]) -> History:
        history = cls()
        history.ops = [Op(*json.loads(line)) for line in lines if line.strip()]
        history.invoked = max((op.number for op in history.ops), default=0)
        return history
