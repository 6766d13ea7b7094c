"""What a node tells Prometheus: the names there are, a snapshot of figures, and the text that is made of one.

A snapshot is taken in the loop that serves clients, so it is a list of numbers and no more; text, and what a histogram
adds up to, is worked out by the thread that was asked (metrics.py).
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from mypy_extensions import i64

from holdfast.core.times import BOUNDS, Times

# Name, kind, what it is. Names end as Prometheus wants them: _total counters, units in full.
ABOUT: Final = {
    "holdfast_info": ("gauge", "Always 1; who this is, by its labels"),
    "holdfast_uptime_seconds": ("gauge", "Since the node started"),
    "holdfast_jobs": ("gauge", "Jobs known to this node, copies for others among them"),
    "holdfast_queues": ("gauge", "Queues of this node"),
    "holdfast_queue_jobs": ("gauge", "Jobs of a queue by state, each in one; the rarer while there are any"),
    "holdfast_jobs_counted": ("gauge", "Jobs of all queues by state, each counted by one node and in one state"),
    "holdfast_jobs_counted_age_seconds": ("gauge", "How old counts of what is not queued may be"),
    "holdfast_queue_oldest_age_seconds": ("gauge", "How long the oldest queued job waits"),
    "holdfast_queue_workers_waiting": ("gauge", "Workers that wait for a job of this queue"),
    "holdfast_queue_paused": ("gauge", "1 if the queue is paused at this node: in for producers, out for workers"),
    "holdfast_jobs_added_total": ("counter", "Jobs that clients added and that were accepted"),
    "holdfast_jobs_queued_total": ("counter", "Jobs put into the queue, each time one is"),
    "holdfast_jobs_delivered_total": ("counter", "Jobs handed out to workers, each time one is"),
    "holdfast_jobs_redelivered_total": ("counter", "Jobs handed out, and not for the first time"),
    "holdfast_jobs_acked_total": ("counter", "Jobs acknowledged"),
    "holdfast_jobs_nacked_total": ("counter", "Jobs given back as failed"),
    "holdfast_jobs_dead_total": ("counter", "Jobs given up"),
    "holdfast_jobs_expired_total": ("counter", "Jobs whose time to live was over"),
    "holdfast_leases_lost_total": ("counter", "Leases that ended without an answer"),
    "holdfast_job_wait_seconds": ("histogram", "From when a job could first be handed out to its first hand-out"),
    "holdfast_job_run_seconds": ("histogram", "From a hand-out to the ack of it, where both were here"),
    "holdfast_replication_seconds": (
        "histogram", "From the adding of a job to enough copies of it, whether their number was asked for or not"
    ),
    "holdfast_adds_with_fewer_copies_total": ("counter", "Jobs accepted before they had as many copies as are usual"),
    "holdfast_move_seconds": (
        "histogram", "From giving a job to a node where a worker waits to the word that it is there"
    ),
    "holdfast_rescue_seconds": (
        "histogram", "From when a node counted as failed to the queueing here of a job that it had, leased ones later"
    ),
    "holdfast_keyed_add_seconds": (
        "histogram", "From an add with a key to its answer, where another node decides about the key or none does yet"
    ),
    "holdfast_link_down_seconds": ("histogram", "How long there was no link with a node, of those that came back"),
    "holdfast_cron_late_seconds": ("histogram", "From the instant of a schedule to its job"),
    "holdfast_unserved_seconds": ("gauge", "Since when a queue has had jobs and waiting workers that do not meet"),
    "holdfast_slots_undecided": ("gauge", "Of the 1024 slots of keys those without a home, as this node sees it"),
    "holdfast_slots_undecided_seconds": ("gauge", "Since when, of the longest"),
    "holdfast_cron_without_owner": ("gauge", "Schedules in these slots: nobody makes their jobs"),
    "holdfast_cron_without_owner_seconds": ("gauge", "Since when, of the longest"),
    "holdfast_keyed_calls_waiting": ("gauge", "Adds and commands of clients here that wait for the home of a key"),
    "holdfast_keyed_calls_waiting_seconds": ("gauge", "Since when, of the longest add"),
    "holdfast_refused_total": ("counter", "Commands refused, by the code of the error, such as MAXLEN, OOM, MISCONF"),
    "holdfast_throttled_total": ("counter", "Times that a rate or a concurrency let nothing pass, by limit"),
    "holdfast_domains": ("gauge", "Domains of jobs that this node knows"),
    "holdfast_domain_throttled_total": ("counter", "Times that a domain let nothing pass; the hundred that did most"),
    "holdfast_domain_jobs_waiting": ("gauge", "Queued jobs of these domains, at this node"),
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
    "holdfast_node_away_seconds": ("gauge", "Since when there is none; 0 while there is one"),
    "holdfast_jobs_waiting_for_node": ("gauge", "Jobs that wait for that node, of those that this one counts"),
    "holdfast_bus_messages_total": ("counter", "Messages between nodes"),
    "holdfast_bus_bytes_total": ("counter", "Bytes sent to other nodes"),
    "holdfast_bus_refused_total": ("counter", "Handshakes of strangers, and frames that were changed on their way"),
    "holdfast_credentials_reload_failed": ("gauge", "1 if secrets and certificates could not be read again on SIGHUP"),
    "holdfast_jobs_short_of_copies": ("gauge", "Jobs that have fewer copies than they should"),
    "holdfast_workers": ("gauge", "Workers that said they are there"),
    "holdfast_dead_jobs": ("gauge", "Dead jobs that are kept"),
    "holdfast_journal_up": ("gauge", "1 while the journal can be written"),
    "holdfast_journal_damages_total": ("counter", "Places in files of the journal that were not as they were written"),
    "holdfast_journal_scrubbed_bytes_total": ("counter", "Bytes of the journal that were read again to see that"),
    "holdfast_jobs_doubtful": ("gauge", "Jobs read from a damaged journal, about which other nodes are still asked"),
    "holdfast_journal_bytes": ("gauge", "Size of the journal"),
    "holdfast_journal_unsynced_bytes": ("gauge", "Written and not on the disk yet"),
    "holdfast_journal_written_bytes_total": ("counter", "Bytes written to the journal"),
    "holdfast_journal_sync_seconds": ("histogram", "How long a sync of the journal took"),
    "holdfast_journal_syncs_total": ("counter", "Times the journal was synced"),
    "holdfast_metrics_age_seconds": ("gauge", "How old these figures are"),
}

Labels = tuple[tuple[str, str], ...]
Row = tuple[str, Labels, float]


@dataclass(frozen=True, slots=True)
class Noted:
    """A histogram, of one or of several together, as it was counted: each time in one place only."""

    name: str
    labels: Labels
    unit_s: float
    counts: list[list[int]]
    sums: list[int]

    def rows(self) -> Iterator[Row]:
        """As Prometheus wants it: in each bucket also what is in those before."""
        below = 0
        for place, column in enumerate(zip(*self.counts, strict=True)):
            below += sum(column)
            bound = f"{2 ** place * self.unit_s:.10g}" if place < BOUNDS else "+Inf"
            yield f"{self.name}_bucket", (*self.labels, ("le", bound)), float(below)
        yield f"{self.name}_sum", self.labels, sum(self.sums) * self.unit_s
        yield f"{self.name}_count", self.labels, float(below)


@dataclass
class Snapshot:
    taken: float = 0.0
    rows: list[Row] = field(default_factory=list)
    noted: list[Noted] = field(default_factory=list)

    def add(self, name: str, value: float | i64, **labels: str) -> None:
        self.rows.append((name, tuple(labels.items()), float(value)))

    def add_times(self, name: str, unit_s: float, times: list[Times], **labels: str) -> None:
        counts = [[int(count) for count in each.counts] for each in times]
        self.noted.append(Noted(name, tuple(labels.items()), unit_s, counts, [int(each.sum) for each in times]))


def text_of(snapshot: Snapshot, now: float) -> str:
    """As Prometheus reads it, the rows of one name together."""
    by_name: dict[str, list[Row]] = {}
    age: Row = ("holdfast_metrics_age_seconds", (), now - snapshot.taken)
    for row in [*snapshot.rows, age]:
        by_name.setdefault(row[0], []).append(row)
    for noted in snapshot.noted:
        by_name.setdefault(noted.name, []).extend(noted.rows())
    lines = []
    for family, rows in by_name.items():
        kind, about = ABOUT[family]
        lines += [f"# HELP {family} {about}", f"# TYPE {family} {kind}"]
        lines += [f"{name}{shown(labels)} {value:.10g}" for name, labels, value in rows]
    return "\n".join(lines) + "\n"


def shown(labels: Iterable[tuple[str, str]]) -> str:
    pairs = [f'{name}="{escaped(value)}"' for name, value in labels]
    return "{" + ",".join(pairs) + "}" if pairs else ""


def escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
