"""Figures of a node for Prometheus, and whether it is well: GET /metrics, /healthz, /readyz on a port of its own.

The loop that serves clients never waits for a scrape. Every few seconds, if somebody has asked lately, it copies its
counters into a snapshot, which is a list of numbers; a thread makes text of the latest and sends it. The first scrape
after a long time waits for the loop's next copy, which is a second away. What a scrape costs clients is the copy alone:
some microseconds per queue, of at most so many queues.

    healthz   200 while the loop turns                     503 if it has not for some seconds
    readyz    200 when commands are run                    503 while the journal is read, or cannot be written
"""
from __future__ import annotations

import contextlib
import hmac
import logging
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast import form
from holdfast.core import absence, census, peers, standstill, states, views
from holdfast.core.commands.cluster import members
from holdfast.core.config import Config
from holdfast.core.node import Node
from holdfast.core.peers import ME
from holdfast.core.queue import PAUSE_IN, PAUSE_OUT
from holdfast.core.version import VERSION
from holdfast.shell.exposition import Snapshot, text_of
from holdfast.shell.listening import is_loopback
from holdfast.shell.settings import SettingsError

if TYPE_CHECKING:
    from holdfast.shell.server import Server

log = logging.getLogger("holdfast")

TIMED_MAX: Final = 100
"""Queues with histograms of their own, those that have handed out most: each is some fifty series."""
QUEUES_MAX: Final = 1000
"""Queues with figures of their own, those with most jobs; a series per queue is what Prometheus bears worst."""
TAKE_EVERY_S: Final = 5
"""How old a figure may be: less than the usual time between scrapes."""
WANTED_S: Final = 300
"""Who has not asked for so long has to wait a moment for the first answer."""
FRESH_S: Final = 3.0
"""So long it waits at most; then the loop is stuck, and old figures are better than none."""
STUCK_S: Final = 15.0
"""A loop that has not turned for so long is stuck: far longer than any command takes."""
REQUEST_S: Final = 10.0
CONNECTIONS_MAX: Final = 32
"""At one time: each has a thread for REQUEST_S at most."""
TOKEN_BYTES_MIN: Final = 16

# Of views.FIELDS: what is a state, and what a counter.
STATES: Final = {word.decode(): figure for word, figure in states.COUNTED.items()}
RARE: Final = frozenset(["moving", "accepting", "asking", "put-off", "in-doubt"])
"""Of a queue these have a series while there are such jobs; most never have any."""
COUNTED: Final = {
    "holdfast_jobs_added_total": b"added", "holdfast_jobs_redelivered_total": b"redelivered",
    "holdfast_jobs_queued_total": b"jobs-in", "holdfast_jobs_delivered_total": b"handed-out",
    "holdfast_jobs_acked_total": b"acked", "holdfast_jobs_nacked_total": b"nacked",
    "holdfast_jobs_dead_total": b"dead", "holdfast_jobs_expired_total": b"expired",
    "holdfast_leases_lost_total": b"lease-lost",
}
PAUSES: Final = {"in": PAUSE_IN, "out": PAUSE_OUT}
"""Which way a queue may be paused: `in` for producers, `out` for workers."""
OTHERS: Final = "(others)"
"""In place of a queue: all that have no figures of their own."""


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
    add_histograms(server, found)
    for code, refusals in node.refusals.items():
        add("holdfast_refused_total", refusals, code=code)
    add("holdfast_throttled_total", node.domains.no_token, limit="rate")
    add("holdfast_throttled_total", node.domains.no_place, limit="concurrency")
    add_domains(server, found)
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
    add_nodes(server, found)
    add("holdfast_bus_messages_total", node.bus_frames_out, direction="out")
    add("holdfast_bus_messages_total", node.bus_frames_in, direction="in")
    add("holdfast_bus_bytes_total", node.bus_bytes_out, direction="out")
    add("holdfast_bus_refused_total", number("bus_frames_refused", 0.0), what="frame")
    add("holdfast_bus_refused_total", number("bus_handshakes_refused", 0.0), what="handshake")
    add("holdfast_credentials_reload_failed", number("credentials_reload_failed", 0.0))
    add_standstill(node, found)
    add("holdfast_adds_with_fewer_copies_total", node.counters.get("added-with-fewer-copies", 0))
    add("holdfast_jobs_short_of_copies", node.census.short + len(node.filling))
    add("holdfast_workers", len(node.workers))
    add("holdfast_dead_jobs", len(node.dead))
    journal = server.keeping.journal
    if journal is not None:
        writer = journal.writer
        add("holdfast_journal_up", 0.0 if writer.trouble else 1.0)
        add("holdfast_journal_bytes", journal.size())
        add("holdfast_journal_damages_total", node.counters.get("journal-damaged", 0))
        add("holdfast_journal_scrubbed_bytes_total", number("aof_scrubbed_bytes", 0.0))
        add("holdfast_jobs_doubtful", node.salvage.count())
        add("holdfast_journal_unsynced_bytes", max(0, writer.position - writer.synced))
        add("holdfast_journal_written_bytes_total", writer.written)
        add("holdfast_journal_syncs_total", writer.syncs)
        found.add_times("holdfast_journal_sync_seconds", 1e-6, [writer.sync_times])
    return found


def add_queues(server: Server, found: Snapshot) -> None:
    node = server.node
    queues = list(node.queues.values())
    others, redelivered = [0] * len(views.FIELDS), 0
    everywhere = [0] * len(views.FIELDS)
    if len(queues) > QUEUES_MAX:
        queues.sort(key=lambda queue: queue.held, reverse=True)
    for place, queue in enumerate(queues):
        values = views.figures(node, queue)
        views.combine(everywhere, values)
        if place < QUEUES_MAX:
            add_queue(found, queue.name.decode("utf-8", "backslashreplace"), values, int(queue.redelivered))
        else:
            views.combine(others, values)
            redelivered += int(queue.redelivered)
    if len(queues) > QUEUES_MAX:
        add_queue(found, OTHERS, others, redelivered)
    for state, field in STATES.items():
        found.add("holdfast_jobs_counted", everywhere[views.FIELDS.index(field)], state=state)
    found.add("holdfast_jobs_counted_age_seconds", float(census.age_ms(node)) / 1000)


def add_nodes(server: Server, found: Snapshot) -> None:
    """The other members: who is heard, who is away and since when, and what waits for them."""
    node = server.node
    waiting = absence.by_peer(node)
    for peer in node.peers:
        jobs = waiting.get(int(peer.index), 0)
        if peer.index == ME or not (peer.is_member or jobs):
            continue
        name = peer.node_id().decode()
        if peer.is_member:
            found.add("holdfast_link_up", float(peer.is_linked), peer=name)
        away_ms = 0 if peer.is_linked else int(absence.away_ms(node, peer))
        found.add("holdfast_node_away_seconds", away_ms / 1000, peer=name)
        found.add("holdfast_jobs_waiting_for_node", jobs, peer=name)


def add_queue(found: Snapshot, queue: str, values: list[int], redelivered: int) -> None:
    row = dict(zip(views.FIELDS, values, strict=True))
    row[b"redelivered"] = redelivered
    for state, name in STATES.items():
        if row[name] or state not in RARE:
            found.add("holdfast_queue_jobs", row[name], queue=queue, state=state)
    found.add("holdfast_queue_oldest_age_seconds", row[b"oldest-age"], queue=queue)
    found.add("holdfast_queue_workers_waiting", row[b"blocked"], queue=queue)
    for way, bit in PAUSES.items():
        found.add("holdfast_queue_paused", 1 if row[b"pause"] & bit else 0, queue=queue, way=way)
    for metric, name in COUNTED.items():
        found.add(metric, row[name], queue=queue)


def add_standstill(node: Node, found: Snapshot) -> None:
    """What stands still although it should not: 0 in calm times."""
    stands, cron = node.standstill, node.standstill.cron(node)
    found.add("holdfast_unserved_seconds", float(stands.unserved_ms(node)) / 1000)
    found.add("holdfast_slots_undecided", len(stands.slots))
    found.add("holdfast_slots_undecided_seconds", float(stands.slots_ms(node)) / 1000)
    found.add("holdfast_cron_without_owner", len(cron))
    found.add("holdfast_cron_without_owner_seconds", float(standstill.longest(node, cron)) / 1000)
    found.add("holdfast_keyed_calls_waiting", len(node.forwards.adds) + len(node.forwards.runs))
    found.add("holdfast_keyed_calls_waiting_seconds", float(standstill.keyed_ms(node)) / 1000)


def add_domains(server: Server, found: Snapshot) -> None:
    """Of those that held up most. There are no others: holdfast_throttled_total counts for all."""
    domains = server.node.domains
    found.add("holdfast_domains", len(domains.table))
    for each in domains.told.values():
        name = each.name.decode("utf-8", "backslashreplace")
        found.add("holdfast_domain_throttled_total", each.no_token, domain=name, limit="rate")
        found.add("holdfast_domain_throttled_total", each.no_place, domain=name, limit="concurrency")
        found.add("holdfast_domain_jobs_waiting", each.waiting, domain=name)


def add_histograms(server: Server, found: Snapshot) -> None:
    node = server.node
    promised = node.promised
    found.add_times("holdfast_replication_seconds", 1e-3, [promised.adds_default], copies="default")
    found.add_times("holdfast_replication_seconds", 1e-3, [promised.adds_asked], copies="asked")
    found.add_times("holdfast_move_seconds", 1e-3, [promised.moves])
    found.add_times("holdfast_rescue_seconds", 1e-3, [promised.rescues])
    found.add_times("holdfast_keyed_add_seconds", 1e-3, [promised.keyed])
    found.add_times("holdfast_link_down_seconds", 1e-3, [promised.links])
    found.add_times("holdfast_cron_late_seconds", 1e-3, [promised.cron])
    used = sorted((queue for queue in node.queues.values() if queue.jobs_out), key=lambda queue: -queue.jobs_out)
    named = {each.name.decode("utf-8", "backslashreplace"): [each] for each in used[:TIMED_MAX]}
    if len(used) > TIMED_MAX:
        named[OTHERS] = used[TIMED_MAX:]
    for name, queues in named.items():
        found.add_times("holdfast_job_wait_seconds", 1e-3, [each.waits for each in queues], queue=name)
        found.add_times("holdfast_job_run_seconds", 1e-3, [each.runs for each in queues], queue=name)


class Metrics:
    """The port. `tick` is the loop's part, once a second; all else happens in threads."""

    def __init__(self, server: Server, host: str, port: int, token: bytes = b"") -> None:
        self.server = server
        self.token = token
        self.is_here = is_loopback(host)
        self.snapshot = take(server)
        self.turned = time.monotonic()
        self.asked = 0.0
        self.taken = threading.Condition()
        """The loop has copied its figures."""
        self.not_ready = "starting"
        try:
            self.http = Port((host.strip("[]"), port), handler(self))
        except OSError as error:
            raise SettingsError(f"cannot listen on the metrics-port {host}:{port}: {error.strerror}") from None
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
            with self.taken:
                self.taken.notify_all()
            self.server.note_wake(self.server.sockets.turn())  # asked for figures, it counts (core/census.py)

    def refusal(self, path: str, authorization: str, host: str) -> tuple[int, str] | None:
        """Whether whoever asks may not see this. Its page may have a name that leads to this machine for a moment."""
        if path != "/metrics":
            return None
        if self.token:
            said = authorization.partition(" ")[2].strip().encode("utf-8", "surrogateescape")
            return None if hmac.compare_digest(said, self.token) else (401, "say Authorization: Bearer token\n")
        name = host.rpartition(":")[0] or host
        if self.is_here and "." in name and not is_loopback(name):
            return 403, "this port is not known by that name\n"
        return None

    def answer(self, path: str) -> tuple[int, str]:
        """In a thread."""
        now = time.monotonic()
        is_stuck = now - self.turned > STUCK_S
        stuck = f"the node has done nothing for {now - self.turned:.0f} s\n"
        if path == "/metrics":
            self.asked = now
            with self.taken:
                self.taken.wait_for(lambda: now - self.snapshot.taken <= TAKE_EVERY_S, FRESH_S)
            return 200, text_of(self.snapshot, time.monotonic())
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


def read_token(config: Config) -> bytes:
    """What metrics-token-file says; empty: nobody is asked for one. Raises SettingsError."""
    path = config.text("metrics-token-file")
    if not path:
        return b""
    try:
        token = Path(path).read_bytes().strip()
    except OSError as error:
        raise SettingsError(f"cannot read the metrics-token-file {path}: {error.strerror}") from None
    if len(token) < TOKEN_BYTES_MIN:
        raise SettingsError(f"the metrics-token-file {path} has a token of less than {TOKEN_BYTES_MIN} characters")
    return token


class Port(ThreadingHTTPServer):
    """A few connections at a time, each in a thread; the oldest makes room for the next, so that whoever looks after
    the node gets through. One that breaks off is no fault of ours."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], made: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.open: dict[Any, None] = {}
        self.changing = threading.Lock()
        super().__init__(address, made)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self.changing:
            if len(self.open) >= CONNECTIONS_MAX:
                oldest = next(iter(self.open))
                del self.open[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
            self.open[request] = None
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self.changing:
                self.open.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a scrape from %s broke off", client_address[0], exc_info=True)


def handler(metrics: Metrics) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_S  # a client that says nothing holds a thread no longer than this

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            said = self.headers.get("Authorization", ""), self.headers.get("Host", "")
            status, text = metrics.refusal(path, *said) or metrics.answer(path)
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Not a line per scrape."""

    return Handler
