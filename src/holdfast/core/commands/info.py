"""INFO: everything the node knows of itself, in Disque's sections and under Disque's names."""
from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from holdfast.core.errors import BadRequest
from holdfast.core.reply import write_bulk
from holdfast.core.session import Session
from holdfast.core.version import VERSION

if TYPE_CHECKING:
    from holdfast.core.node import Node

Fields = list[tuple[str, object]]


def info(node: Node, session: Session, argv: list[bytes]) -> None:
    """Facts about the node as `name:value` lines in sections; one section if it is named, `all` for each."""
    if len(argv) > 2:
        raise BadRequest(b"ERR syntax error")
    wanted = argv[1].decode("ascii", "replace").lower() if len(argv) == 2 else "default"
    process = node.meter.process()
    sections: list[tuple[str, Fields]] = [
        ("Server", server(node, process)),
        ("Clients", clients(node, process)),
        ("Memory", memory(node, process)),
        ("Jobs", [("registered_jobs", node.jobs), ("expired_jobs", node.expired)]),
        ("Queues", [("registered_queues", len(node.queues))]),
        ("Scheduler", scheduler(node)),
        ("Persistence", persistence(process)),
        ("Stats", stats(node, process)),
        ("CPU", pick(process, "used_cpu_sys", "used_cpu_user", "used_cpu_sys_children", "used_cpu_user_children")),
    ]
    if node.overflow.is_on:
        sections.append(("Overflow", node.overflow.facts()))
    cores: Fields = [(name, value) for name, value in process.items() if name.startswith("cores")]
    if cores:
        sections.append(("Cores", cores))
    if wanted in ("all", "everything", "commandstats"):
        sections.append(("Commandstats", commandstats(node)))
    texts = []
    for title, fields in sections:
        if wanted in ("default", "all", "everything", title.lower()):
            lines = [f"# {title}"] + [f"{name}:{value}" for name, value in fields]
            texts.append("\r\n".join(lines) + "\r\n")
    write_bulk(node.out, "\r\n".join(texts).encode())


def pick(process: dict[str, str], *names: str) -> Fields:
    return [(name, process.get(name, "0")) for name in names]


def human(count: int) -> str:
    value = float(count)
    for unit in ("B", "K", "M", "G"):
        if value < 1024 or unit == "G":
            break
        value /= 1024
    return f"{value:.2f}{unit}"


def server(node: Node, process: dict[str, str]) -> Fields:
    up = (node.now - node.start) // 1000
    fields: Fields = [
        ("disque_version", VERSION),
        ("disque_git_sha1", "00000000"),
        ("disque_git_dirty", 0),
        ("disque_build_id", process.get("build", "embedded")),
        ("holdfast_version", VERSION),
        ("holdfast_form", process.get("form", "")),
        ("os", process.get("os", sys.platform)),
        ("arch_bits", 64 if sys.maxsize > 2**32 else 32),
        ("multiplexing_api", process.get("multiplexing_api", "none")),
        ("gcc_version", process.get("gcc_version", "0.0.0")),
        ("python_version", process.get("python_version", "")),
        ("process_id", process.get("process_id", "0")),
        ("run_id", node.node_id.decode()),
        ("tcp_port", node.config.text("port")),
        ("uptime_in_seconds", up),
        ("uptime_in_days", up // 86400),
        ("hz", 10),
        ("executable", process.get("executable", "")),
        ("config_file", process.get("config_file", "")),
    ]
    return fields


def clients(node: Node, process: dict[str, str]) -> Fields:
    return [
        ("connected_clients", len(node.sessions)),
        ("client_longest_output_list", process.get("client_longest_output_list", "0")),
        ("client_biggest_input_buf", process.get("client_biggest_input_buf", "0")),
        ("blocked_clients", node.blocked),
    ]


def memory(node: Node, process: dict[str, str]) -> Fields:
    node.peak = max(node.peak, node.used)
    rss = int(process.get("used_memory_rss", "0"))
    return [
        ("used_memory", node.used),
        ("used_memory_human", human(node.used)),
        ("used_memory_rss", rss),
        ("used_memory_peak", node.peak),
        ("used_memory_peak_human", human(node.peak)),
        ("mem_fragmentation_ratio", f"{rss / max(1, node.used):.2f}"),
        ("mem_allocator", "pymalloc"),
        ("maxmemory", node.full),
        ("memory_level", node.level),
    ]


def scheduler(node: Node) -> Fields:
    return [
        ("dead_jobs", len(node.dead)),
        ("lease_lost", node.counters.get("lease-lost", 0)),
        ("results_kept", len(node.results.kept)),
        ("results_given_up", node.counters.get("results-given-up", 0)),
        ("workers", len(node.workers)),
    ]


def persistence(process: dict[str, str]) -> Fields:
    fields: dict[str, str] = {
        "loading": "0",
        "aof_enabled": "0",
        "aof_state": "off",
        "aof_rewrite_in_progress": "0",
        "aof_rewrite_scheduled": "0",
        "aof_last_rewrite_time_sec": "-1",
        "aof_current_rewrite_time_sec": "-1",
        "aof_last_bgrewrite_status": "ok",
        "aof_last_write_status": "ok",
    }
    for name, value in process.items():
        if name.startswith(("aof_", "loading")):
            fields[name] = value
    return list(fields.items())


def stats(node: Node, process: dict[str, str]) -> Fields:
    calls = sum([entry.calls for entry in node.entries.values()]) + sum([row[1] for row in node.meter.direct()])
    fields: Fields = [
        ("total_connections_received", node.session_count),
        ("total_commands_processed", calls),
    ]
    return fields + pick(
        process, "instantaneous_ops_per_sec", "total_net_input_bytes", "total_net_output_bytes",
        "instantaneous_input_kbps", "instantaneous_output_kbps", "rejected_connections", "latest_fork_usec",
        "gc_longest_pause_usec", "step_longest_usec", "faults",
        "bus_frames_refused", "bus_handshakes_refused", "credentials_reload_failed",
    )


def commandstats(node: Node) -> Fields:
    calls: dict[bytes, int] = {}
    usec: dict[bytes, int] = {}
    rows = [(name, entry.calls, entry.usec) for name, entry in node.entries.items()]
    for name, more_calls, more_usec in [*rows, *node.meter.direct()]:
        calls[name] = calls.get(name, 0) + more_calls
        usec[name] = usec.get(name, 0) + more_usec
    return [
        (
            f"cmdstat_{name.decode().lower()}",
            f"calls={calls[name]},usec={usec[name]},usec_per_call={usec[name] / calls[name]:.2f}",
        )
        for name in sorted(calls)
        if calls[name] > 0
    ]
