"""What the scheduler keeps on three real nodes: rates of many domains, and a bound with many producers.

Hand-outs are judged by the histories of the nodes, which say for each when it was: what a consumer's own clock says is
late by as long as it had to wait for a core.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import cluster, common
from bench.common import Server, Void

NODES = 3
CONSUMERS = 10  # at each node
PRODUCERS = 50
BURST = 3
HANDED_OUT = 3
RATE_LEAST = 1200  # per hour, of the slowest domain; each other one has some more
RATE_STEP = 6
BATCH = 500


@contextlib.contextmanager
def nodes_with_histories(folder: Path) -> Iterator[list[Server]]:
    with contextlib.ExitStack() as stack:
        nodes: list[Server] = []
        place = ""
        for number in range(NODES):
            bus_port = common.free_port()
            command = [*common.NODE_COMMAND, "--set", f"cluster-bus-port={bus_port}"]
            command += ["--dir", str(folder / str(number)), "--set", "history=yes"]
            command += ["--join", place] if place else []
            nodes.append(stack.enter_context(common.running(f"node{number}", command, cluster.NODE_CORES)))
            place = place or f"{common.HOST}:{nodes[0].port}@{bus_port}"
        cluster.wait_for("the nodes to meet", lambda: all(
            cluster.fact(node, "cluster_reachable_nodes") == NODES - 1 for node in nodes))
        yield nodes


def encoded(*words: str) -> bytes:
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word.encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


def rate_of(number: int) -> int:
    """Per hour."""
    return RATE_LEAST + RATE_STEP * number


def name_of(number: int) -> str:
    return f"d{number}.example"


# ---------------------------------------------------------------- rates


def measure_rates(domains: int, seconds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="bench-") as name, nodes_with_histories(Path(name)) as nodes:
        with common.Talk(nodes[0].port) as talk:
            for number in range(domains):
                talk.ask("DOMAIN", "SET", name_of(number), "RATE", f"{rate_of(number)}/h", "BURST", str(BURST))
        domain_of = add_jobs(nodes, domains, seconds)
        begin = time.time()
        consume(nodes, seconds)
        end = begin + seconds
        times = handed_out(Path(name), domain_of, end)
    return judge_rates(times, domains, begin, end)


def add_jobs(nodes: list[Server], domains: int, seconds: int) -> dict[tuple[int, int], int]:
    """More jobs of each domain than can go out, at all nodes alike; by id, of which domain."""
    found: dict[tuple[int, int], int] = {}
    for position, node in enumerate(nodes):
        wanted = [
            number for number in range(domains)
            for each in range(int(rate_of(number) / 3600 * seconds * 1.1) + 2 * BURST + NODES)
            if each % NODES == position
        ]
        with common.Talk(node.port) as talk:
            for first in range(0, len(wanted), BATCH):
                batch = wanted[first:first + BATCH]
                talk.socket.sendall(b"".join(
                    encoded("ADDJOB", common.QUEUE, str(number), "0", "REPLICATE", "1", "RETRY", "600", "DOMAIN",
                            name_of(number)) for number in batch))
                for number in batch:
                    reply = talk.read()
                    if not reply.startswith("DI"):
                        raise Void(f"ADDJOB was answered with {reply}")
                    found[int(reply[2:10], 16), int(reply[10:26], 16)] = number
    return found


def consume(nodes: list[Server], seconds: int) -> None:
    """Consumers at every node that wait for a job, and ack it together with asking for the next."""
    get = encoded("GETJOB", "TIMEOUT", "1000", "FROM", common.QUEUE)
    selector = selectors.DefaultSelector()
    for node in nodes:
        for _ in range(CONSUMERS):
            connection = socket.create_connection((common.HOST, node.port))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(get)
            selector.register(connection, selectors.EVENT_READ)
    end = time.time() + seconds
    while time.time() < end:
        for key, _ in selector.select(0.05):
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            data = connection.recv(65536)
            at = data.find(b"$48\r\nDI")
            if at >= 0:
                connection.sendall(b"*2\r\n$6\r\nACKJOB\r\n" + data[at:at + 55] + get)
            elif data.startswith(b"*-1") or data.endswith(b"*-1\r\n"):
                connection.sendall(get)
            elif not data:
                raise Void("a node hung up")
    for key in list(selector.get_map().values()):
        assert isinstance(key.fileobj, socket.socket)
        key.fileobj.close()


def handed_out(folder: Path, domain_of: dict[tuple[int, int], int], end: float) -> dict[int, list[float]]:
    """By domain, when its jobs were handed out: from what the nodes have written down."""
    found: dict[int, list[float]] = defaultdict(list)
    time.sleep(2)  # what is written at most every second is written
    for path in folder.glob("*/history/*.log"):
        data = path.read_bytes()
        at = 64
        while at + 24 <= len(data):
            length = struct.unpack_from("<I", data, at + 4)[0]
            record, last = at + 24, at + 24 + length
            while record < last:
                size, event = struct.unpack_from("<IB", data, record)
                if event == HANDED_OUT:
                    ms, creator, seq = struct.unpack_from("<qIq", data, record + 8)
                    if ms / 1000 <= end:
                        found[domain_of[creator, seq]].append(ms / 1000)
                record += size
            at = last
    return found


def judge_rates(times: dict[int, list[float]], domains: int, begin: float, end: float) -> dict[str, Any]:
    above, shares = 0, []
    for number in range(domains):
        rate = rate_of(number) / 3600
        ordered = sorted(times.get(number, []))
        first = 0
        for last, when in enumerate(ordered):
            while when - ordered[first] > 1.0:
                first += 1
            above = max(above, last - first + 1 - int(rate + BURST))
        shares.append(len(ordered) / (rate * (end - begin) - 1))
    total = sum(map(len, times.values()))
    return {"rates-above": above, "rates-used": min(shares), "handed_out": total,
            "per_second": round(total / (end - begin)), "median_share": round(sorted(shares)[domains // 2], 3)}


# ---------------------------------------------------------------- a bound


def measure_bound(most: int) -> dict[str, Any]:
    with cluster.cluster_of(NODES) as nodes:
        common.ask(nodes[0].port, "QUEUE", "SET", common.QUEUE, "totalmaxlen", str(most))
        time.sleep(0.5)
        said: Counter[str] = Counter()
        lock = threading.Lock()

        def produce(number: int) -> None:
            mine: Counter[str] = Counter()
            with common.Talk(nodes[number % NODES].port) as talk:
                for each in range(4 * most // PRODUCERS):
                    reply = talk.ask("ADDJOB", common.QUEUE, f"{number}-{each}", "5000")
                    mine[reply.split()[0] if reply.startswith("-") else "accepted"] += 1
            with lock:
                said.update(mine)

        threads = [threading.Thread(target=produce, args=[number]) for number in range(PRODUCERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        odd = {word: count for word, count in said.items() if word not in ("accepted", "-MAXLEN")}
        if odd:
            raise Void(f"ADDJOB was answered with {odd}")
    return {"bound": said["accepted"] / most, "bound-above": max(0, said["accepted"] - most), "answers": dict(said)}
