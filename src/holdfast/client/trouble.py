"""What is wrong with a cluster now, each with its cause and with what helps. One list of rules for all who tell of it:
the console, `/v1/problems`, `holdfast doctor`, `holdfast up` and `holdfast top`.

A rule looks at a `Sight` and yields problems. It asks nothing itself, so each can be tried with figures made by hand
(tests/unit/client/test_trouble.py, one row for each kind).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .figures import QueueFigures
from .sight import RECENT_MINUTES, NodeSight, Sight

BAD, REMARK = "bad", "remark"
NOBODY_S: Final = 30
"""Jobs that have waited for so long, without a worker that asks for them, wait for nobody: a worker that is restarted
takes less."""
LATE_S: Final = 900
"""As the alert HoldfastQueueWaits."""
MEMORY_BAD, MEMORY_REMARK = 0.95, 0.75
DISK_ROOM: Final = 1 << 30
"""Free bytes on the disk of a journal: it is rewritten beside itself."""
CLOCK_S: Final = 5.0
"""Clocks of two nodes that differ by more are wrong; less may be the network on a bad day."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong."""

    kind: str
    """A word for programs: node-away, queue-paused, …"""
    level: str
    """bad: somebody should do something now; remark: somebody should know."""
    what: str
    cause: str
    do: str
    command: str = ""
    """What to type, where one command helps."""
    queue: str | None = None
    node: str | None = None
    """The id of a node."""
    since: int | None = None
    """Unix seconds."""


def what_is_wrong(sight: Sight) -> list[Problem]:
    """The worst first."""
    found = [*of_members(sight), *of_away(sight), *of_queues(sight), *of_clocks(sight)]
    for node in sight.nodes.values():
        found += [*of_disk(node), *of_memory(node), *of_copies(node), *of_links(node), *of_faults(node)]
    return sorted(once(found), key=lambda each: each.level != BAD)


def once(found: list[Problem]) -> Iterator[Problem]:
    """What several nodes say of the cluster is one problem."""
    seen = set()
    for each in found:
        if (each.kind, each.queue, each.node) not in seen:
            seen.add((each.kind, each.queue, each.node))
            yield each


def some(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def name_of(queue: str) -> str:
    return queue or "(empty)"


# -- nodes ---------------------------------------------------------------------------------------------------


def of_members(sight: Sight) -> Iterator[Problem]:
    known = [each for each in sight.members if each.state != "meeting"]
    for each in sight.members:
        if each.state == "meeting":
            yield Problem(
                "node-not-met", REMARK, f"nobody of the cluster answers at {each.where}",
                "no node runs there, or the network to it is cut",
                "start a node there, or take it back", f"holdfast cluster forget {each.where}", node=each.id)
        elif each.state == "down":
            yield Problem(
                "node-away", BAD, f"1 of {some(len(known), 'node')} is away: {each.near} at {each.where}",
                "its process ended, its machine is down, or the network to it is cut",
                "start it again with the same folder (--dir). Only when that folder is lost for good: "
                f"`holdfast cluster forget {each.near}`", node=each.id, since=each.heard_ms // 1000 or None)
        elif each.id in sight.silent:
            yield Problem(
                "node-silent", BAD, f"node {each.near} at {each.where} does not answer",
                "it is stopped, overloaded, or its disk hangs", "look at its process and its log", node=each.id)


def of_away(sight: Sight) -> Iterator[Problem]:
    for each in sight.away:
        if each.jobs:
            yield Problem(
                "jobs-wait-for-node", BAD,
                f"{some(each.jobs, 'job')} {'waits' if each.jobs == 1 else 'wait'} for {each.words}",
                "that node has them in its queues, or knows which workers have them",
                f"start it again with the same folder, and they go on there. {each.next}", node=each.id,
                since=int(sight.now - each.away_s))


def of_copies(node: NodeSight) -> Iterator[Problem]:
    short = int(node.cluster.get("cluster_jobs_short_of_copies", 0))
    if short:
        yield Problem("short-of-copies", BAD, f"{some(short, 'job')} with fewer copies than there should be",
                      f"nodes are away, or full; as node {node.id[:8]} counts them", "bring back a node, or add one")
    if int(node.cluster.get("cluster_other_node_timeouts", 0)):
        yield Problem("other-timeouts", BAD, "nodes have different cluster-node-timeout",
                      "the setting was changed at some nodes only", "set it to the same at all nodes")


def of_clocks(sight: Sight) -> Iterator[Problem]:
    """Against the clock in the middle; of two, nobody knows which is wrong."""
    clocks = sorted(each.ahead for each in sight.nodes.values())
    if not clocks or clocks[-1] - clocks[0] <= CLOCK_S:
        return
    middle = clocks[len(clocks) // 2]
    for node in sight.nodes.values():
        off = node.ahead - middle
        if abs(off) > CLOCK_S:
            others = "that of the others" if len(clocks) > 2 else "the other"
            yield Problem(
                "clock", BAD,
                f"the clock of node {node.id[:8]} is {abs(off):,.0f} s {'ahead of' if off > 0 else 'behind'} {others}",
                "nothing keeps its clock right (NTP), or somebody set it", "set the clock right: timedatectl, chronyc",
                node=node.id)


# -- queues --------------------------------------------------------------------------------------------------


def of_queues(sight: Sight) -> Iterator[Problem]:
    sums = sight.sums()
    for each in sight.figures.queues:
        name, shell = name_of(each.name), shlex.quote(each.name)
        if each.paused != "none":
            yield Problem(
                "queue-paused", REMARK, f"the queue {name} is paused ({each.paused}){held_back(each)}",
                "somebody has paused it", "resume it, if that is not meant", f"holdfast resume {shell}",
                queue=each.name)
        elif has_nobody(each):
            yield Problem(
                "nobody-works", BAD, f"nobody works the queue {name}: {some(each.queued, 'job')} wait, the oldest for "
                f"{span(each.longest_wait)}",
                "no worker asks for its jobs: none runs, or none for this queue",
                "start a worker for this queue: `holdfast worker module:app`", queue=each.name,
                since=int(sight.now) - each.longest_wait)
        elif each.queued and each.longest_wait > LATE_S:
            yield Problem(
                "jobs-wait", REMARK, f"a job of the queue {name} waits for {span(each.longest_wait)}, "
                f"{each.queued:,} in all", "its workers are too few or too slow, or a limit holds it back",
                "add workers, or ask why the oldest waits", f"holdfast peek {shell}", queue=each.name)
        counts = sums[each.name].counts if each.name in sums else {}
        if counts.get("dead", 0):
            yield Problem(
                "jobs-die", BAD, f"{some(counts['dead'], 'job')} of the queue {name} failed for good in the last "
                f"{RECENT_MINUTES} minutes", f"its tasks raise errors; {each.dead:,} dead are kept",
                "read the errors, repair, then retry them", f"holdfast dead list --queue {shell}", queue=each.name)
        if counts.get("expired", 0):
            yield Problem(
                "jobs-expire", BAD, f"{some(counts['expired'], 'job')} of the queue {name} expired in the last "
                f"{RECENT_MINUTES} minutes", "their time to live was over before a worker had done them",
                "add workers, or give jobs more time (ttl)", f"holdfast queues {shell}", queue=each.name)


def has_nobody(each: QueueFigures) -> bool:
    """Jobs wait, no worker waits for one or has one, and that for a while."""
    return bool(each.queued and each.longest_wait >= NOBODY_S
                and not each.idle_workers and not each.leased and not each.out_per_second)


def held_back(each: QueueFigures) -> str:
    """What a pause keeps from workers."""
    return f": {some(each.queued, 'job')} wait" if each.queued and each.paused in ("out", "all") else ""


def span(seconds: int) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


# -- what each node says of itself ----------------------------------------------------------------------------


def of_memory(node: NodeSight) -> Iterator[Problem]:
    used, most = int(node.info.get("used_memory", 0)), max(1, int(node.info.get("maxmemory", 1)))
    if used <= MEMORY_REMARK * most or "maxmemory" not in node.info:
        return
    yield Problem(
        "memory", BAD if used > MEMORY_BAD * most else REMARK,
        f"memory of node {node.id[:8]}: {used / most:.0%} of {most / 2**20:,.0f} MiB",
        "jobs come faster than they are done; a node that is full refuses jobs", "add workers or nodes, or raise "
        "maxmemory", "holdfast queues", node=node.id)


def of_disk(node: NodeSight) -> Iterator[Problem]:
    info, near = node.info, node.id[:8]
    if info.get("aof_last_sync_status", "ok") != "ok":
        yield Problem(
            "sync-failed", BAD, f"the disk of the node {near} has failed: it refuses jobs, and has left its cluster",
            "the disk did not confirm what was written", "look at the disk (dmesg, smartctl). If it is well, start the "
            "node again with the same folder; if not, with an empty folder on another disk", node=node.id)
    elif info.get("aof_last_write_status", "ok") != "ok":
        yield Problem(
            "journal-fails", BAD, f"the journal of node {near} cannot be written: the node refuses jobs",
            "its disk is full, or read-only", "make room on its disk; see its log", node=node.id)
    elif "aof_disk_free" in info and int(info["aof_disk_free"]) < DISK_ROOM:
        yield Problem(
            "disk-full", BAD, f"{int(info['aof_disk_free']) / 2**20:,.0f} MiB free on the disk of node {near}",
            "the journal, the history or something else has filled it",
            "make room: a journal is rewritten beside itself", node=node.id)
    if info.get("overflow_status", "ok") != "ok":
        yield Problem(
            "overflow-fails", BAD, f"node {near} cannot keep jobs on its disk that are too many for its memory",
            "its disk is full or fails", "make room on its disk; see its log", node=node.id)
    yield from of_damage(node)


def of_damage(node: NodeSight) -> Iterator[Problem]:
    """What the node has found wrong with its journal, and sees to by itself."""
    doubtful, bad, aside = (int(node.info.get(name, 0)) for name in (
        "aof_jobs_doubtful", "aof_damaged_files", "aof_set_aside_files"))
    cause = "a disk has changed what was written to it"
    if doubtful:
        yield Problem(
            "jobs-doubtful", REMARK, f"{some(doubtful, 'job')} of a damaged journal: the other nodes are asked about "
            "them", cause, "bring back nodes that are away; after 90 s it goes on without them", node=node.id)
    if bad:
        yield Problem("journal-damaged", REMARK, f"{some(bad, 'file')} of the journal changed on the disk: it is "
                      "written anew", cause, "look at the disk (dmesg, smartctl)", node=node.id)
    if aside:
        yield Problem(
            "files-set-aside", REMARK,
            f"{some(aside, 'damaged file')} of the journal {'is' if aside == 1 else 'are'} set aside", cause,
            "nothing needs them. Look at the disk (dmesg, smartctl), then remove what ends in .damaged", node=node.id)


def of_links(node: NodeSight) -> Iterator[Problem]:
    """The links to the other nodes: sealed, under keys of a secret that can be read again."""
    info, near = node.info, node.id[:8]
    if info.get("credentials_reload_failed", "0") == "1":
        yield Problem(
            "credentials-unread", BAD,
            f"node {near} could not read its secret or certificate again, and makes no new links",
            "the file is missing, unreadable or not what it should be",
            "see its log; check the file, then send the node SIGHUP", "holdfast secret check FILE", node=node.id)
    frames = int(info.get("bus_frames_refused", 0))
    if frames:
        yield Problem(
            "frames-changed", BAD, f"{some(frames, 'frame')} of other nodes changed on the way to node {near}",
            "something between the nodes changes or repeats what they send", "look at what is between the nodes; the "
            "log of the node names the one at the other end", node=node.id)


def of_faults(node: NodeSight) -> Iterator[Problem]:
    count = int(node.info.get("faults", 0))
    if count:
        yield Problem(
            "faults", BAD, f"the node {node.id[:8]} met {some(count, 'fault')}", "an error in Holdfast itself",
            "its log has a traceback for each: report them", node=node.id)

