"""Figures of a node for Prometheus, and whether it is well: GET /metrics, /healthz, /readyz on a port of its own.

The loop that serves clients never waits for a scrape. Every few seconds, if somebody has asked lately, it copies its
counters into a snapshot, which is a list of numbers; a thread makes text of the latest and sends it. What a scrape
costs clients is the copy alone: some microseconds per queue, of at most so many queues.

    healthz   200 while the loop turns                     503 if it has not for some seconds
    readyz    200 when commands are run                    503 while the journal is read, or cannot be written
"""
from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast import form
from holdfast.core import peers, views
from holdfast.core.commands.cluster import members
from holdfast.core.peers import ME
from holdfast.core.version import VERSION
from holdfast.shell.settings import SettingsError

if TYPE_CHECKING:
    from holdfast.shell.server import Server

QUEUES_MAX: Final = 1000
"""Queues with figures of their own, those with most jobs; a series per queue is what Prometheus bears worst."""
TAKE_EVERY_S: Final = 5
"""How old a figure may be: less than the usual time between scrapes."""
WANTED_S: Final = 300
"""Who has not asked for so long gets a first answer that is older."""
STUCK_S: Final = 15.0
"""A loop that has not turned for so long is stuck: far longer than any command takes."""
REQUEST_S: Final = 10.0

# Name, kind, what it is. Names end as Prometheus wants them: _total counters, units in full.
ABOUT: Final = {
    "holdfast_info": ("gauge", "Always 1; who this is, by its labels"),
    "holdfast_uptime_seconds": ("gauge", "Since the node started"),
    "holdfast_jobs": ("gauge", "Jobs known to this node, copies for others among them"),
    "holdfast_queues": ("gauge", "Queues of this node"),
    "holdfast_queue_jobs": ("gauge", "Jobs of a queue by state: queued, leased, delayed, dead"),
    "holdfast_queue_oldest_age_seconds": ("gauge", "How long the oldest queued job waits"),
    "holdfast_queue_workers_waiting": ("gauge", "Workers that wait for a job of this queue"),
    "holdfast_jobs_queued_total": ("counter", "Jobs put into the queue, each time one is"),
    "holdfast_jobs_delivered_total": ("counter", "Jobs handed out"),
    "holdfast_jobs_acked_total": ("counter", "Jobs acknowledged"),
    "holdfast_jobs_nacked_total": ("counter", "Jobs given back as failed"),
    "holdfast_jobs_dead_total": ("counter", "Jobs given up"),
    "holdfast_jobs_expired_total": ("counter", "Jobs whose time to live was over"),
    "holdfast_leases_lost_total": ("counter", "Leases that ended without an answer"),
    "holdfast_events_total": ("counter", "What else happened, by event"),
    "holdfast_commands_total": ("counter", "Commands run"),
    "holdfast_command_seconds_total": ("counter", "Time spent in them"),
    "holdfast_clients": ("gauge", "Connections of clients"),
    "holdfast_clients_blocked": ("gauge", "Clients that wait for a job"),
    "holdfast_connections_rejected_total": ("counter", "Connections refused because there were too many"),
    "holdfast_network_bytes_total": ("counter", "Bytes from and to clients"),
    "holdfast_memory_used_bytes": ("gauge", "Memory that jobs, queues and clients take"),
    "holdfast_memory_max_bytes": ("gauge", "What they may take"),
    "holdfast_memory_level": ("gauge", "0: enough; 1: above 75 %; 2: above 95 %"),
    "holdfast_resident_memory_bytes": ("gauge", "Memory of the process"),
    "holdfast_cpu_seconds_total": ("counter", "Processor time of the process"),
    "holdfast_pause_longest_seconds": ("gauge", "The longest that something kept all clients waiting, by cause"),
    "holdfast_faults_total": ("counter", "Faults in the machine; please report them"),
    "holdfast_nodes_known": ("gauge", "Nodes of the cluster, this one among them"),
    "holdfast_nodes_reachable": ("gauge", "Other nodes that can be given copies"),
    "holdfast_link_up": ("gauge", "1 if there is a link to that node"),
    "holdfast_bus_messages_total": ("counter", "Messages between nodes"),
    "holdfast_bus_bytes_total": ("counter", "Bytes sent to other nodes"),
    "holdfast_jobs_short_of_copies": ("gauge", "Jobs that have fewer copies than they should"),
    "holdfast_workers": ("gauge", "Workers that said they are there"),
    "holdfast_dead_jobs": ("gauge", "Dead jobs that are kept"),
    "holdfast_journal_up": ("gauge", "1 while the journal can be written"),
    "holdfast_journal_bytes": ("gauge", "Size of the journal"),
    "holdfast_journal_unsynced_bytes": ("gauge", "Written and not on the disk yet"),
    "holdfast_journal_written_bytes_total": ("counter", "Bytes written to the journal"),
    "holdfast_journal_syncs_total": ("counter", "Times the journal was synced"),
    "holdfast_metrics_age_seconds": ("gauge", "How old these figures are"),
}
# Of views.FIELDS: what is a state, and what a counter.
STATES: Final = {"queued": b"len", "leased": b"out", "delayed": b"delayed", "dead": b"dead-kept"}
COUNTED: Final = {
    "holdfast_jobs_queued_total": b"jobs-in", "holdfast_jobs_delivered_total": b"jobs-out",
    "holdfast_jobs_acked_total": b"acked", "holdfast_jobs_nacked_total": b"nacked",
    "holdfast_jobs_dead_total": b"dead", "holdfast_jobs_expired_total": b"expired",
    "holdfast_leases_lost_total": b"lease-lost",
}
OTHERS: Final = "(others)"
"""In place of a queue: all that have no figures of their own."""

Labels = tuple[tuple[str, str], ...]


@dataclass
class Snapshot:
    taken: float = 0.0
    rows: list[tuple[str, Labels, float]] = field(default_factory=list)

    def add(self, name: str, value: float | i64, **labels: str) -> None:
        self.rows.append((name, tuple(labels.items()), float(value)))


def take(server: Server) -> Snapshot:
    """Copy the figures; in the loop, so it only copies."""
    node = server.node
    found = Snapshot(time.monotonic())
    add = found.add
    process = server.process()
    number = {name: float(value) for name, value in process.items() if value.replace(".", "", 1).isdigit()}.get
    add("holdfast_info", 1, version=VERSION, form=form.name(), node=node.node_id.decode())
    add("holdfast_uptime_seconds", float(node.now - node.start) / 1000)
    add("holdfast_jobs", node.jobs)
    add("holdfast_queues", len(node.queues))
    add_queues(server, found)
    for event, count in node.counters.items():
        add("holdfast_events_total", count, event=event)
    commands: dict[bytes, list[int]] = {}
    listed = [(name, entry.calls, entry.usec) for name, entry in node.entries.items() if entry.calls]
    for name, calls, usec in [*listed, *server.direct()]:
        both = commands.setdefault(name, [0, 0])
        both[0] += int(calls)
        both[1] += int(usec)
    for name, (runs, micros) in commands.items():
        add("holdfast_commands_total", runs, command=name.decode().lower())
        add("holdfast_command_seconds_total", micros / 1e6, command=name.decode().lower())
    add("holdfast_clients", len(node.sessions))
    add("holdfast_clients_blocked", node.blocked)
    add("holdfast_connections_rejected_total", number("rejected_connections", 0.0))
    add("holdfast_network_bytes_total", number("total_net_input_bytes", 0.0), direction="in")
    add("holdfast_network_bytes_total", number("total_net_output_bytes", 0.0), direction="out")
    add("holdfast_memory_used_bytes", node.used)
    add("holdfast_memory_max_bytes", node.full)
    add("holdfast_memory_level", node.level)
    add("holdfast_resident_memory_bytes", number("used_memory_rss", 0.0))
    add("holdfast_cpu_seconds_total", number("used_cpu_user", 0.0), mode="user")
    add("holdfast_cpu_seconds_total", number("used_cpu_sys", 0.0), mode="system")
    add("holdfast_pause_longest_seconds", number("gc_longest_pause_usec", 0.0) / 1e6, cause="collector")
    add("holdfast_pause_longest_seconds", number("step_longest_usec", 0.0) / 1e6, cause="step")
    add("holdfast_faults_total", server.fault_count)
    add("holdfast_nodes_known", len(members(node)))
    add("holdfast_nodes_reachable", peers.reachable(node))
    for peer in members(node):
        if peer.index != ME:
            add("holdfast_link_up", float(peer.is_linked), peer=peer.node_id().decode())
    add("holdfast_bus_messages_total", node.bus_frames_out, direction="out")
    add("holdfast_bus_messages_total", node.bus_frames_in, direction="in")
    add("holdfast_bus_bytes_total", node.bus_bytes_out, direction="out")
    add("holdfast_jobs_short_of_copies", node.short_of_copies + len(node.filling))
    add("holdfast_workers", len(node.workers))
    add("holdfast_dead_jobs", len(node.dead))
    journal = server.keeping.journal
    if journal is not None:
        writer = journal.writer
        add("holdfast_journal_up", 0.0 if writer.trouble else 1.0)
        add("holdfast_journal_bytes", journal.size())
        add("holdfast_journal_unsynced_bytes", max(0, writer.position - writer.synced))
        add("holdfast_journal_written_bytes_total", writer.written)
        add("holdfast_journal_syncs_total", writer.syncs)
    return found


def add_queues(server: Server, found: Snapshot) -> None:
    node = server.node
    queues = list(node.queues.values())
    others = dict.fromkeys(views.FIELDS, 0)
    if len(queues) > QUEUES_MAX:
        queues.sort(key=lambda queue: queue.held, reverse=True)
    for place, queue in enumerate(queues):
        row = dict(zip(views.FIELDS, views.figures(node, queue), strict=True))
        if place < QUEUES_MAX:
            add_queue(found, queue.name.decode("utf-8", "backslashreplace"), row)
        else:
            for name, value in row.items():
                others[name] = max(others[name], value) if name == b"oldest-age" else others[name] + value
    if len(queues) > QUEUES_MAX:
        add_queue(found, OTHERS, others)


def add_queue(found: Snapshot, queue: str, row: dict[bytes, int]) -> None:
    for state, name in STATES.items():
        found.add("holdfast_queue_jobs", row[name], queue=queue, state=state)
    found.add("holdfast_queue_oldest_age_seconds", row[b"oldest-age"], queue=queue)
    found.add("holdfast_queue_workers_waiting", row[b"blocked"], queue=queue)
    for metric, name in COUNTED.items():
        found.add(metric, row[name], queue=queue)


def text_of(snapshot: Snapshot, now: float) -> str:
    """As Prometheus reads it, the rows of one name together."""
    by_name: dict[str, list[tuple[Labels, float]]] = {}
    age: tuple[str, Labels, float] = ("holdfast_metrics_age_seconds", (), now - snapshot.taken)
    for name, labels, value in [*snapshot.rows, age]:
        by_name.setdefault(name, []).append((labels, value))
    lines = []
    for name, rows in by_name.items():
        kind, about = ABOUT[name]
        lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
        lines += [f"{name}{shown(labels)} {value:.10g}" for labels, value in rows]
    return "\n".join(lines) + "\n"


def shown(labels: Iterable[tuple[str, str]]) -> str:
    pairs = [f'{name}="{escaped(value)}"' for name, value in labels]
    return "{" + ",".join(pairs) + "}" if pairs else ""


def escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class Metrics:
    """The port. `tick` is the loop's part, once a second; all else happens in threads."""

    def __init__(self, server: Server, host: str, port: int) -> None:
        self.server = server
        self.snapshot = take(server)
        self.turned = time.monotonic()
        self.asked = 0.0
        self.not_ready = "starting"
        try:
            self.http = ThreadingHTTPServer((host, port), handler(self))
        except OSError as error:
            raise SettingsError(f"cannot listen on the metrics-port {host}:{port}: {error.strerror}") from None
        self.http.daemon_threads = True
        self.port = int(self.http.server_address[1])
        self.thread = threading.Thread(target=self.http.serve_forever, name="metrics", daemon=True)
        self.thread.start()

    def tick(self) -> None:
        self.turned = now = time.monotonic()
        node = self.server.node
        if node.is_loading:
            self.not_ready = "the journal is being read"
        else:
            self.not_ready = node.refusal.decode("utf-8", "replace")
        every = TAKE_EVERY_S if now - self.asked < WANTED_S else WANTED_S
        if now - self.snapshot.taken >= every:
            self.snapshot = take(self.server)

    def answer(self, path: str) -> tuple[int, str]:
        """In a thread."""
        now = time.monotonic()
        is_stuck = now - self.turned > STUCK_S
        stuck = f"the node has done nothing for {now - self.turned:.0f} s\n"
        if path == "/metrics":
            self.asked = now
            return 200, text_of(self.snapshot, now)
        if path == "/healthz":
            return (503, stuck) if is_stuck else (200, "ok\n")
        if path == "/readyz":
            if is_stuck:
                return 503, stuck
            return (503, f"{self.not_ready}\n") if self.not_ready else (200, "ready\n")
        return 404, "try /metrics, /healthz or /readyz\n"

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()


def handler(metrics: Metrics) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_S  # a client that says nothing holds a thread no longer than this

        def do_GET(self) -> None:
            status, text = metrics.answer(self.path.partition("?")[0])
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Not a line per scrape."""

    return Handler
