"""Servers for the comparison, one at a time, each with its usual way to keep jobs: fsync about every second.

    with running("redis", folder) as port: ...

A server is a child process, ended by its own handle. A program that is not installed raises `Missing`, and its rows
are left out, with a line that says so.
"""
from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

START_S = 40.0
STOP_S = 20.0


class Missing(Exception):
    """A program is not installed here."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port: int = unused.getsockname()[1]
        return port


def redis(port: int, folder: Path) -> list[str]:
    return ["redis-server", "--port", str(port), "--dir", str(folder), "--save", "", "--appendonly", "yes",
            "--appendfsync", "everysec"]


def beanstalkd(port: int, folder: Path) -> list[str]:
    return ["beanstalkd", "-l", "127.0.0.1", "-p", str(port), "-b", str(folder), "-f", "1000"]


def nats(port: int, folder: Path) -> list[str]:
    return ["nats-server", "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder)]


def rabbitmq(port: int, folder: Path) -> list[str]:
    return ["/usr/lib/rabbitmq/bin/rabbitmq-server"]


def holdfast(port: int, folder: Path) -> list[str]:
    bus = free_port()
    return [sys.executable, "-m", "holdfast", "node", "--port", str(port), "--dir", str(folder),
            "--set", "appendfsync=everysec", "--set", f"cluster-bus-port={bus}"]


COMMANDS = {"redis": redis, "beanstalkd": beanstalkd, "nats": nats, "rabbitmq": rabbitmq, "holdfast": holdfast}


def rabbit_environment(port: int, folder: Path) -> dict[str, str]:
    (folder / "plugins").write_text("[].\n")
    return {
        "HOME": str(folder), "RABBITMQ_NODENAME": "bench@localhost", "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port), "RABBITMQ_DIST_PORT": str(free_port()), "ERL_EPMD_PORT": str(free_port()),
        "ERL_EPMD_ADDRESS": "127.0.0.1", "RABBITMQ_MNESIA_BASE": f"{folder}/mnesia",
        "RABBITMQ_LOG_BASE": f"{folder}/log",
        "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/plugins", "RABBITMQ_PID_FILE": f"{folder}/pid", "LC_ALL": "C.UTF-8",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }


@contextlib.contextmanager
def running(name: str, folder: Path) -> Iterator[int]:
    """The port of a server that answers."""
    port = free_port()
    command = COMMANDS[name](port, folder)
    if shutil.which(command[0]) is None:
        raise Missing(f"{command[0]} is not installed")
    environment = {**os.environ, **(rabbit_environment(port, folder) if name == "rabbitmq" else {})}
    with (folder / "server.log").open("wb") as log, contextlib.ExitStack() as stack:
        if name == "rabbitmq":
            epmd = subprocess.Popen(["epmd"], env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
            stack.callback(end, epmd)
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        stack.callback(end, process)
        wait_for(port, process, folder / "server.log")
        yield port


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_S
    while True:
        with socket.socket() as probe:
            probe.settimeout(0.5)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"{process.args!r} does not answer: {log.read_text('utf-8', 'replace')[-500:]}")
        time.sleep(0.05)


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
