"""The `jobs` source: a stream that takes jobs, and acknowledges them when Spark has committed the batch they were in.

The nodes have the protocol (CLAIM, core/claims.py): each holds a batch of its own jobs for the stream's group, under a
number, until it is committed or its lease is over. What Spark promises decides when that is said:

    initialOffset   a fresh group, {"group", "seq": 0}; the group's name lives in the checkpoint from then on
    latestOffset    is only asked for a start that is in Spark's commit log: so what ended there is committed at the
                    nodes first, then the next number is taken at each. Asked twice (a crash in between) it is the same
    partitions      ranges of the claims that the offset names, by node
    read            reads them; again, for a retry or a second action, gives the same rows
    commit          comes late, or never where no more data comes: it is the same as above, and harmless twice

    offset          {"group": …, "seq": 7, "claims": {node: "claim:count"}}

A second stream on a copy of the checkpoint opens the group anew, and the first is fenced: it fails and commits nothing.
A heartbeat renews the leases. If the driver dies for longer than a lease, the jobs come back in a later batch, under
another number: at least once, and exactly once where the sink is keyed by the job's id.
"""
from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from holdfast.client.errors import Error, Refused, Unknown
from holdfast.client.target import Target
from holdfast.client.values import items, text, whole
from holdfast.pipeline.nodes import Nodes

from .options import BadOption, Options

if TYPE_CHECKING:
    import pyarrow as pa

KNOWN: Final = (
    "subscribe", "subscribePattern", "maxJobsPerTrigger", "maxOffsetsPerTrigger", "leaseSeconds", "failOnDataLoss",
    "numPartitions", "minPartitions", "fetchSize", "groupIdPrefix", "includeHeaders",
)
SCHEMA: Final = (
    "id string, queue string, body binary, enqueued_at timestamp, attempt int, priority int, "
    "headers map<string, string>, tenant string, domain string, parent string, node string, claim_seq long"
)
LEASE_S: Final = 600.0
"""Longer than a driver takes to come back: a batch whose lease is over cannot be replayed as it was."""
PER_TRIGGER: Final = 100_000
"""A trigger costs some hundred milliseconds whatever is in it."""
FETCH: Final = 5_000
CLAIM_MAX: Final = 100_000
"""What a node gives at once."""


class ClaimGone(RuntimeError):
    """A batch cannot be read again as it was."""


class Fenced(RuntimeError):
    """Another stream has taken over this one's group."""


@dataclass
class Slice(InputPartition):
    """A range of one claim, at one node."""

    node: str
    target: Target
    group: str
    claim: str
    seq: int
    begin: int
    end: int


class JobsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, given: Mapping[str, str]) -> None:
        self.options = Options(given, KNOWN)
        self.nodes = Nodes(self.options.url())
        self.queues = self.options.names("subscribe")
        self.pattern = self.options.text("subscribePattern")
        if not self.queues and not self.pattern:
            raise BadOption("say which queues: .option('subscribe', 'a,b') or .option('subscribePattern', 'mail*')")
        self.lease_ms = int(self.options.seconds("leaseSeconds", LEASE_S) * 1000)
        if self.lease_ms < 3000:
            raise BadOption("leaseSeconds must be at least 3: a batch takes longer than that to be planned")
        self.fails_on_loss = self.options.flag("failOnDataLoss", True)
        self.parts = self.options.number("numPartitions", 0) or self.options.number("minPartitions", 4)
        self.fetch = self.options.number("fetchSize", FETCH)
        self.first: dict[str, Any] | None = None
        self.left: int | None = None  # with AvailableNow: how many jobs may still be taken
        self.group = ""
        self.epochs: dict[str, int] = {}  # by node: what CLAIM OPEN gave us
        self.heart: threading.Event | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "heart": None, "epochs": {}}  # at the executors it only reads

    # -- what Spark asks the driver ------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        if self.first is None:
            prefix = self.options.text("groupIdPrefix", "spark")
            self.first = {"group": f"{prefix}-{uuid.uuid4().hex}", "seq": 0, "claims": {}}
        return dict(self.first)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.options.number("maxJobsPerTrigger", 0)
                           or self.options.number("maxOffsetsPerTrigger", PER_TRIGGER))

    def prepareForTriggerAvailableNow(self) -> None:
        self.left = sum(self.waiting(target) for target in self.nodes.members().values())

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Shown with the stream's progress: how many jobs wait at each node."""
        backlog: dict[str, Any] = {}
        for node, target in self.nodes.members().items():
            with contextlib.suppress(Refused, Unknown):
                backlog[node[:8]] = self.waiting(target)
        return backlog

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        members = self.open(str(start["group"]))
        self.end_claims(start, members)
        seq = int(start["seq"]) + 1
        most = PER_TRIGGER if isinstance(limit, ReadAllAvailable) else getattr(limit, "max_rows", PER_TRIGGER)
        if self.left is not None:
            most = min(most, self.left)
        claims: dict[str, str] = {}
        got = 0
        for node, target in turned(list(members.items()), seq):
            # A claim that is there already under this number is part of the batch however many it has.
            count = max(0, min(most - got, CLAIM_MAX))
            found = self.take(node, target, seq, count)
            if found is not None:
                claims[node] = f"{found[0]}:{found[1]}"
                got += found[1]
        if not claims:
            return start
        if self.left is not None:
            self.left = max(0, self.left - got)
        return {"group": self.group, "seq": seq, "claims": claims}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start.get("group") == end["group"] and start["seq"] == end["seq"]:
            return []
        members = self.open(str(end["group"]))
        total = sum(int(words.rpartition(":")[2]) for words in end["claims"].values())
        step = max(1, -(-total // self.parts))
        slices: list[InputPartition] = []
        for node, words in end["claims"].items():
            claim, _, count = words.rpartition(":")
            if not self.is_there(node, members, claim):
                continue
            slices += [
                Slice(node, members[node], self.group, claim, int(end["seq"]), begin, min(begin + step, int(count)))
                for begin in range(0, int(count), step)
            ]
        return slices

    def commit(self, end: dict[str, Any]) -> None:
        self.end_claims(end, self.open(str(end["group"])))

    def stop(self) -> None:
        if self.heart is not None:
            self.heart.set()
        self.nodes.close()

    # -- at the executors ------------------------------------------------------------------------------------

    def read(self, part: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(part, Slice)
        at = part.begin
        while at < part.end:
            most = min(part.end, at + self.fetch)
            try:
                rows = items(self.nodes.ask(part.target, "CLAIM", "READ", part.group, part.claim, at, most))
            except Error as error:
                if error.code != "CLAIMGONE":
                    raise
                if not self.fails_on_loss:
                    return
                raise gone(part.node, error) from error
            if not rows:
                raise gone(part.node, Refused("it has fewer jobs than it had"))
            yield batch(rows, part)
            at += len(rows)

    # -- what the nodes are asked ------------------------------------------------------------------------------

    def open(self, group: str) -> dict[str, Target]:
        """Be the one who speaks for the group, at every node that can be reached; those nodes.

        What an earlier driver has claimed is ours from now on, with all the time of a lease: a batch that is replayed
        may take as long as any, and the heart does not beat before a third of a lease has passed.
        """
        if self.group != group:
            self.group, self.epochs = group, {}
        members = self.nodes.members()
        for node, target in members.items():
            if node not in self.epochs:
                with contextlib.suppress(Refused, Unknown):
                    epoch = whole(self.nodes.ask(target, "CLAIM", "OPEN", group))
                    self.nodes.ask(target, "CLAIM", "RENEW", group, epoch, self.lease_ms)
                    self.epochs[node] = epoch
        if not self.epochs:
            raise BadOption("no node of the cluster can be reached")
        if self.heart is None:
            self.heart = threading.Event()
            threading.Thread(target=self.beat, args=(self.heart,), daemon=True).start()
        return {node: target for node, target in members.items() if node in self.epochs}

    def take(self, node: str, target: Target, seq: int, count: int) -> tuple[str, int] | None:
        """The claim of this number at a node; None if there is nothing, or the node is away."""
        queues = self.names_at(target)
        if not queues:
            return None
        try:
            # With nothing more to take a count of one would take it: ask only whether there is a claim already.
            if count == 0:
                known = items(self.nodes.ask(target, "CLAIM", "INFO", self.group))
                found = [items(each) for each in known if whole(items(each)[0]) == seq]
                return (text(found[0][1]), whole(found[0][2])) if found else None
            reply = self.nodes.ask(target, "CLAIM", "TAKE", self.group, self.epochs[node], seq, "COUNT", count,
                                   "LEASEMS", self.lease_ms, "FROM", *queues)
        except (Refused, Unknown):
            return None
        except Error as error:
            raise self.judged(error) from error
        if reply is None:
            return None
        claim, jobs = items(reply)
        return text(claim), whole(jobs)

    def end_claims(self, offset: dict[str, Any], members: dict[str, Target]) -> None:
        """Everything the offset names is in Spark's commit log: acknowledge it. Nodes that are away are asked again
        when they are back, or their jobs come again."""
        for node, words in offset.get("claims", {}).items():
            if node not in members:
                continue
            claim = words.rpartition(":")[0]
            try:
                self.nodes.ask(members[node], "CLAIM", "COMMIT", self.group, self.epochs[node], claim)
            except (Refused, Unknown):
                continue
            except Error as error:
                raise self.judged(error) from error

    def is_there(self, node: str, members: dict[str, Target], claim: str) -> bool:
        """Whether a claim can be read; if not that is an error, or its jobs come in a later batch."""
        error: Error = Refused("the node cannot be reached")
        if node in members:
            try:
                self.nodes.ask(members[node], "CLAIM", "READ", self.group, claim, 0, 0)
                return True
            except Error as refused:
                if not isinstance(refused, Refused | Unknown) and refused.code != "CLAIMGONE":
                    raise
                error = refused
        if self.fails_on_loss:
            raise gone(node, error)
        return False

    def waiting(self, target: Target) -> int:
        return sum(whole(self.nodes.ask(target, "QLEN", name)) for name in self.names_at(target))

    def names_at(self, target: Target) -> list[str]:
        """The queues that are subscribed to; with a pattern those that a node has."""
        if not self.pattern:
            return self.queues
        from fnmatch import fnmatchcase

        names: list[str] = []
        cursor = "0"
        with contextlib.suppress(Refused, Unknown):
            while True:
                following, found = items(self.nodes.ask(target, "QSCAN", cursor, "COUNT", 1000))
                names += [text(each) for each in items(found)]
                cursor = text(following)
                if cursor == "0":
                    break
        return [name for name in names if fnmatchcase(name, self.pattern)]

    def judged(self, error: Error) -> Exception:
        if error.code == "FENCED" or error.code == "NOGROUP":
            return Fenced(
                f"another stream has taken over the group {self.group} of this checkpoint ({error.text}). "
                "Two queries must not share a checkpoint"
            )
        return error

    def beat(self, heart: threading.Event) -> None:
        """Renew all claims of the group, in a thread, over connections of its own."""
        nodes = Nodes(self.nodes.url)
        while not heart.wait(self.lease_ms / 3000):
            with contextlib.suppress(Error):
                members = nodes.members()
                for node, epoch in list(self.epochs.items()):
                    if node in members:
                        with contextlib.suppress(Error):
                            nodes.ask(members[node], "CLAIM", "RENEW", self.group, epoch, self.lease_ms)
        nodes.close()


def turned(nodes: list[tuple[str, Target]], seq: int) -> list[tuple[str, Target]]:
    """Each batch begins at another node: one that has more than a batch takes does not keep the others waiting."""
    first = seq % max(1, len(nodes))
    return nodes[first:] + nodes[:first]


def gone(node: str, error: Error) -> ClaimGone:
    return ClaimGone(
        f"a batch that has to be read again is gone at node {node[:8]} ({error.text}): its jobs were queued again, or "
        "will be, and come in a later batch. To go on set failOnDataLoss=false; use a longer leaseSeconds to avoid this"
    )


def batch(rows: list[Any], part: Slice) -> pa.RecordBatch:
    """What CLAIM READ gave, by columns. Most jobs have no headers and no keys, and their queue is one of few."""
    import pyarrow as pa
    import pyarrow.compute as pc

    count = len(rows)
    queues, ids, bodies, times, attempts, priorities, flat_headers, flat_keys = zip(*rows, strict=True)
    keys = [dict(zip(flat[::2], flat[1::2], strict=True)) for flat in flat_keys] if any(flat_keys) else []
    made = {
        "id": pa.array(ids, pa.binary()).cast(pa.string()),
        "queue": pa.array([words(name) for name in queues], pa.string()),
        "body": pa.array(bodies, pa.binary()),
        "enqueued_at": pc.multiply(pa.array(times, pa.int64()), 1000).cast(pa.timestamp("us", tz="UTC")),
        "attempt": pa.array(attempts, pa.int32()),
        "priority": pa.array(priorities, pa.int32()),
        "headers": maps(flat_headers),
        **{name: pa.array([text_or_none(each.get(name.encode())) for each in keys], pa.string())
           if keys else pa.nulls(count, pa.string()) for name in ("tenant", "domain", "parent")},
        "node": pa.repeat(part.node, count),
        "claim_seq": pa.repeat(pa.scalar(part.seq, pa.int64()), count),
    }
    return pa.RecordBatch.from_arrays(list(made.values()), names=list(made))


@lru_cache(maxsize=10_000)
def words(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def text_or_none(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode("utf-8", "backslashreplace")


def maps(flat: Sequence[list[bytes]]) -> pa.Array:
    """Headers as maps; a name or value after the other in each row."""
    import pyarrow as pa

    offsets = [0]
    for each in flat:
        offsets.append(offsets[-1] + len(each) // 2)
    said = [raw.decode("utf-8", "backslashreplace") for each in flat for raw in each]
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(said[::2], pa.string()),
                                   pa.array(said[1::2], pa.string()))
