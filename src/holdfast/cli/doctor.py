"""holdfast doctor: looks at an installation and at a running cluster, and says what is wrong and what to do about it.

Each finding is good, a remark, or bad; only something bad makes the exit code 1. What cannot be looked at (no node
there) is a finding, too.
"""
from __future__ import annotations

import importlib.util
import json
import platform
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast import doors, form
from holdfast.cli.common import json_option, plain, some
from holdfast.cli.where import connect_option
from holdfast.client.errors import Error, NotAllowed
from holdfast.client.queue import Queue
from holdfast.client.text import visible
from holdfast.core.version import VERSION
from holdfast.journal import inspect
from holdfast.journal.folder import NAME, JournalError
from holdfast.journal.identity import NODE_ID
from holdfast.journal.lock import InUse, lock, unlock

GOOD, REMARK, BAD = "good", "remark", "bad"
FILES_WANTED = 10_032
"""The default of maxclients, and what a node needs for itself."""
ROOM_WANTED = 1 << 30
"""Free bytes on the disk of a journal: it is rewritten beside itself."""
MARKS = {GOOD: "[green]✓[/green]", REMARK: "[yellow]![/yellow]", BAD: "[red]✗[/red]"}
EXTRAS = (("fastapi", "server", "the gateway and the console"), ("textual", "server", "holdfast top"),
          ("pyspark", "pipeline", "the data pipeline"))


@dataclass
class Finding:
    kind: str
    what: str
    do: str = ""


@click.command(epilog="""\b
Examples:
  holdfast doctor                                  this installation, and the node at 127.0.0.1:7711
  holdfast doctor --dir /var/lib/holdfast          and a node's folder
  holdfast doctor --connect holdfast://10.0.0.1 --json
""")
@connect_option()
@click.option("--dir", "folder", type=click.Path(path_type=Path), help="The folder of a node on this machine.")
@json_option
def doctor(connect: str, folder: Path | None, as_json: bool) -> None:
    """Check an installation and say what to do. Exit code 1 if something is wrong."""
    found = [*of_installation(), *of_cluster(connect), *(of_folder(folder) if folder is not None else ())]
    if as_json:
        click.echo(json.dumps([asdict(each) for each in found], indent=2))
    else:
        table = Table("", "", box=None, show_header=False, pad_edge=False)
        for each in found:
            table.add_row(MARKS[each.kind], Text(visible(each.what)))
            if each.do:
                table.add_row("", Text(f"→ {visible(each.do)}", style="dim"))
        Console(highlight=False).print(table)
    sys.exit(1 if any(each.kind == BAD for each in found) else 0)


def of_installation() -> Iterator[Finding]:
    words = f"holdfast {VERSION}, {form.name()}, Python {platform.python_version()}"
    if form.is_compiled():
        yield Finding(GOOD, words)
    else:
        do = "unset HOLDFAST_PURE" if form.PURE else "install a C compiler and Holdfast again: pip install -v holdfast"
        yield Finding(REMARK, f"{words}: complete, but several times slower", do)
    for module, extra, what in EXTRAS:
        if importlib.util.find_spec(module) is None:
            yield Finding(REMARK, f"{what} cannot be used here", f"pip install 'holdfast[{extra}]'")
    vendor = Path(__file__).resolve().parents[1] / "console" / "static" / "vendor" / "htmx.min.js"
    if importlib.util.find_spec("fastapi") is not None and not vendor.exists():
        yield Finding(REMARK, "the console has no live figures and no charts: its JavaScript was not there when it was "
                      "installed", "install npm, then tools/assets.sh in the source, and install again")
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if soft != resource.RLIM_INFINITY and soft < FILES_WANTED:
        yield Finding(REMARK, f"a process may open {soft} files: a node here takes fewer clients than its maxclients",
                      f"ulimit -n {FILES_WANTED}, or LimitNOFILE of the unit")
    else:
        yield Finding(GOOD, "enough open files are allowed")


def of_cluster(url: str) -> Iterator[Finding]:
    try:
        with doors.open(url, connect_timeout=3) as queue:
            yield from of_nodes(queue)
    except NotAllowed as error:
        yield Finding(BAD, f"the node does not let us look: {error}",
                      "say who asks: --connect holdfast://user@host, with the secret in HOLDFAST_SECRET; without user@ "
                      "where the node has just a password")
    except Error as error:
        yield Finding(BAD, f"no node answers: {error}",
                      "start one (holdfast node, or holdfast up), or say where it is with --connect")


def of_links(queue: Queue) -> Iterator[Finding]:
    stats = facts_of(queue.call("INFO", "stats"))
    if stats.get("credentials_reload_failed") == "1":
        yield Finding(BAD, "the node could not read its secret or certificate again, and makes no new links",
                      "see its log; `holdfast secret check FILE`, then SIGHUP")
    frames = int(stats.get("bus_frames_refused", 0))
    if frames:
        yield Finding(BAD, f"{some(frames, 'frame')} of other nodes changed on the way",
                      "look at what is between the nodes; its log names the one at the other end")


def facts_of(text: Any) -> dict[str, str]:
    return dict(line.split(":", 1) for line in plain(text).splitlines() if ":" in line)


def of_nodes(queue: Queue) -> Iterator[Finding]:
    members = queue.nodes()
    met = [each.where for each in members if each.state == "meeting"]
    if met:
        yield Finding(REMARK, f"nobody of the cluster answers at {', '.join(met)}",
                      "start a node there, or take it back: `holdfast cluster forget HOST:PORT`")
    lines = [each for each in members if each.state != "meeting"]
    away = [f"{each.near} at {each.where}" for each in lines if each.state == "down"]
    if away:
        yield Finding(BAD, f"away, of {some(len(lines), 'node')}: {', '.join(away)}",
                      "start again with the same folder; `holdfast cluster forget ID` what is gone for good")
    else:
        yield Finding(GOOD, f"{len(lines)} {'node answers' if len(lines) == 1 else 'nodes are linked'}")
    yield from of_away(queue)
    if len(lines) < 3:
        yield Finding(REMARK, "fewer than three nodes: a job has fewer than three copies",
                      "see docs/how-to/run-a-cluster.md")
    yield from of_queues(queue)
    cluster = facts_of(queue.call("CLUSTER", "INFO"))
    short = int(cluster.get("cluster_jobs_short_of_copies", 0))
    if short:
        words = f"{some(short, 'job')} with fewer copies than there should be"
        yield Finding(BAD, words, "bring back a node, or add one")
    yield from of_links(queue)
    if int(cluster.get("cluster_other_node_timeouts", 0)):
        yield Finding(BAD, "nodes have different cluster-node-timeout", "set it to the same at all nodes")
    info = facts_of(queue.call("INFO", "all"))
    if info.get("holdfast_version") != VERSION:
        words = f"the node runs {info.get('holdfast_version')}, this is {VERSION}"
        yield Finding(REMARK, words, "upgrade the older one")
    used, full = int(info.get("used_memory", 0)), max(1, int(info.get("maxmemory", 1)))
    kind = BAD if used > 0.95 * full else REMARK if used > 0.75 * full else GOOD
    yield Finding(kind, f"memory: {used / full:.0%} of {full / 2**20:,.0f} MiB",
                  "" if kind == GOOD else "add workers or nodes, or raise maxmemory")
    if info.get("aof_enabled") != "1":
        yield Finding(REMARK, "the node keeps no journal: what no other node holds is gone when it stops",
                      "start it with --dir")
    elif info.get("aof_last_sync_status", "ok") != "ok":
        yield Finding(BAD, "the disk of the node has failed: it refuses jobs, and has left its cluster",
                      "look at the disk (dmesg, smartctl). If it is well, start the node again with the same folder; "
                      "if not, with an empty folder on another disk")
    elif info.get("aof_last_write_status") != "ok":
        yield Finding(BAD, "the journal cannot be written: the node refuses jobs", "make room on its disk; see its log")
    else:
        yield Finding(GOOD, "the journal is written")
    yield from of_damage(info)
    if int(info.get("faults", 0)):
        words = f"the node met {some(int(info['faults']), 'fault')}"
        yield Finding(BAD, words, "its log has a traceback for each: report them")


def of_away(queue: Queue) -> Iterator[Finding]:
    """Jobs that no worker can get for now, since the node that has them is away."""
    for each in queue.away():
        if each.jobs:
            words = f"{some(each.jobs, 'job')} {'waits' if each.jobs == 1 else 'wait'} for {each.words}"
            yield Finding(BAD, words, f"start it again with the same folder, and they go on there. {each.next}"
                          f". If it is gone for good: `holdfast cluster forget {each.near}`")


def of_queues(queue: Queue) -> Iterator[Finding]:
    for each in queue.figures().queues:
        if each.paused != "none":
            words = f"the queue {each.name} is paused ({each.paused})"
            yield Finding(REMARK, words, f"`holdfast resume {each.name}`, if that is not meant")


def of_damage(info: dict[str, str]) -> Iterator[Finding]:
    """What the node has found wrong with its journal, and sees to by itself."""
    doubtful, bad, aside = (int(info.get(name, 0)) for name in (
        "aof_jobs_doubtful", "aof_damaged_files", "aof_set_aside_files"))
    if doubtful:
        yield Finding(REMARK, f"{some(doubtful, 'job')} of a damaged journal: the other nodes are asked about them",
                      "bring back nodes that are away; after 90 s it goes on without them")
    if bad:
        yield Finding(REMARK, f"{some(bad, 'file')} of the journal changed on the disk: it is written anew",
                      "look at the disk (dmesg, smartctl)")
    if aside:
        yield Finding(REMARK, f"{some(aside, 'damaged file')} of the journal {'is' if aside == 1 else 'are'} set aside",
                      "nothing needs them. Look at the disk (dmesg, smartctl), then remove what ends in .damaged")


def of_folder(folder: Path) -> Iterator[Finding]:
    if not folder.is_dir():
        yield Finding(BAD, f"{folder} is no folder", "create it for the user that runs the node")
        return
    of_many = sorted(each.parent for each in folder.glob(f"[1-9]*/{NODE_ID}"))
    if not of_many and not (folder / NODE_ID).exists() and any(folder.iterdir()):
        yield Finding(BAD, f"{folder} is no folder of a node", "name the one that the node was given by --dir")
        return
    for each in of_many or [folder]:
        yield from of_journal(each)
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
        yield Finding(GOOD, f"{folder} can be written")
    except OSError as error:
        words = f"{folder} cannot be written: {error.strerror}"
        yield Finding(BAD, words, "it must belong to the user that runs the node")
    free = shutil.disk_usage(folder).free
    if free < ROOM_WANTED:
        words = f"{free / 2**20:,.0f} MiB free in {folder}"
        yield Finding(BAD, words, "make room: a journal is rewritten beside itself")
    if folder.stat().st_mode & 0o077:
        yield Finding(REMARK, f"others can look into {folder}", f"chmod 700 {folder}")


def of_journal(folder: Path) -> Iterator[Finding]:
    """What a start would find; a node that runs sees to its journal itself."""
    path = folder / NAME
    if not path.is_dir():
        return
    try:
        held = lock(folder, to_read=True)
    except InUse:
        return
    except JournalError as error:
        yield Finding(BAD, str(error), "it must belong to the user that runs the node")
        return
    try:
        found = [inspect.check(each) for each in (path, *inspect.own_folders(path))]
    finally:
        unlock(held)
    wrong = [each.error for each in found if each.error]
    for words in wrong:
        yield Finding(BAD, words, f"restore it, or go on without what is damaged: holdfast journal repair {folder}")
    if not wrong:
        yield Finding(GOOD, f"the journal in {folder} can be read")
