"""Servers as processes, and what can be read from outside of them.

    Tools      loadgen, compiled when its source is newer; redis-server, installed on CI when it is missing
    Server     one process on a free port and its own core: ask it, read its CPU time and memory, stop it
    drive()    one run of loadgen against a server; a run with a miss or an error is Void, not a number
    Probe      a thread that PINGs every millisecond, to see the longest silence
    machine()  facts about this machine that say nothing about whose it is

The server gets the first core we may use, loadgen the second; this process and its probe stay off the
server's core as well. With a single core all share it, and only the CPU figures mean anything.

Processes are ended by the handle we got when starting them, never by name. Every server is a context
manager, and SIGTERM becomes an exception, so an interrupted run leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "bench"
LOADGEN_SOURCE = ROOT / "bench" / "loadgen.c"

HOST = "127.0.0.1"
QUEUE = "q"
# With the bus port, 10,000 above, below the ports the kernel hands out to clients (from 32,768), so that nobody takes
# ours between the test and the use.
PORTS = range(12_000, 22_000)
NEIGHBOURS = 3  # nodes that share a port have one each, right above it
BUS_PORT_OFFSET = 10_000
PORT_TRIES_MAX = 100
START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 10.0
ASK_SECONDS_MAX = 10.0
DRIVE_SECONDS_MAX = 600.0
LOG_TAIL_BYTES = 2_000
PROBE_PAUSE_SECONDS = 0.001

EXIT_PASS = 0
EXIT_FALLS_SHORT = 1
EXIT_VOID = 2
EXIT_SKIPPED = 3

# {port} is filled in when the node starts. Memory only: no --dir.
NODE_COMMAND = (sys.executable, "-m", "holdfast", "node", "--port", "{port}", "--bind", HOST)


class Void(Exception):
    """A run that cannot be trusted: a miss, an error, a stall, or a server that died."""


class Missing(Exception):
    """A program we need is not here and we may not install it."""


def end_on_sigterm() -> None:
    """SIGTERM unwinds the stack like Ctrl-C does, so that the servers we started are stopped."""

    def leave(_signal: int, _frame: object) -> NoReturn:
        sys.exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, leave)


# ---------------------------------------------------------------- cores


ALLOWED_CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE = {ALLOWED_CORES[0]}
LOAD_CORE = {ALLOWED_CORES[1 % len(ALLOWED_CORES)]}


def leave_the_server_alone() -> None:
    """This process, and the threads it will start, off the server's core."""
    os.sched_setaffinity(0, set(ALLOWED_CORES) - SERVER_CORE or SERVER_CORE)


@contextlib.contextmanager
def born_on(core: set[int]) -> Iterator[None]:
    """A process started inside inherits this core, and so do all its threads."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, core)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


# ---------------------------------------------------------------- tools


def find_redis_server() -> str:
    found = shutil.which("redis-server")
    may_install = os.environ.get("CI") and os.geteuid() == 0 and shutil.which("apt-get")
    if found is None and may_install:
        subprocess.run(["apt-get", "update", "-q"], check=True, stdout=sys.stderr)
        subprocess.run(["apt-get", "install", "-q", "-y", "redis-server"], check=True, stdout=sys.stderr)
        found = shutil.which("redis-server")
    if found is None:
        raise Missing("redis-server is not installed, and it is what we compare with (Debian: redis-server)")
    return found


def build_loadgen() -> Path:
    """The load generator, compiled if its source changed. The new file is renamed over the old one, so two
    benches starting together do not run half a program."""
    program = BUILD / "loadgen"
    if program.exists() and program.stat().st_mtime >= LOADGEN_SOURCE.stat().st_mtime:
        return program
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise Missing("no C compiler (cc) to build the load generator with")
    BUILD.mkdir(parents=True, exist_ok=True)
    fresh = BUILD / f"loadgen.{os.getpid()}"
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler, *flags, "-o", str(fresh), str(LOADGEN_SOURCE)], check=True)
    fresh.replace(program)
    return program


# ---------------------------------------------------------------- a conversation of a few words


class Talk:
    """A connection for a few simple questions: replies of one line, or one bulk string."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((HOST, port), timeout=ASK_SECONDS_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def ask(self, *words: str) -> str:
        """The reply as text; an error reply keeps its leading minus sign."""
        self.send(*words)
        return self.read()

    def send(self, *words: str) -> None:
        encoded = [word.encode() for word in words]
        parts = [b"*%d\r\n" % len(encoded)]
        parts += [b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded]
        self.socket.sendall(b"".join(parts))

    def read(self) -> str:
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("connection closed")
        kind, text = line[:1], line[1:-2].decode(errors="replace")
        if kind == b"$":
            length = int(text)
            return self.file.read(length + 2)[:-2].decode(errors="replace") if length >= 0 else ""
        return f"-{text}" if kind == b"-" else text

    def read_words(self) -> list[str]:
        """The first array in an array, such as the one job GETJOB answers with."""
        return [self.read() for _ in range(int(self.read()))] if self.read() == "1" else []

    def close(self) -> None:
        self.file.close()
        self.socket.close()

    def __enter__(self) -> Talk:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def ask(port: int, *words: str) -> str:
    with Talk(port) as talk:
        return talk.ask(*words)


# ---------------------------------------------------------------- servers


@dataclass(frozen=True, slots=True)
class CpuTime:
    """Seconds a process ran, and seconds it was ready to run while somebody else had its core."""

    ran: float
    waited: float


def free_port() -> int:
    """A port that is free, and with it those that a node takes besides."""
    for _ in range(PORT_TRIES_MAX):
        port = random.choice(PORTS)
        if all(is_free(first + more) for first in (port, port + BUS_PORT_OFFSET) for more in range(NEIGHBOURS)):
            return port
    raise Missing(f"no free port in {PORTS}")


def is_free(port: int) -> bool:
    try:
        with socket.socket() as probe:
            probe.bind((HOST, port))
    except OSError:
        return False
    return True


def descendants(pid: int) -> list[int]:
    """Children, their children and so on; the oldest first."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (thread / "children").read_text().split()):
                found += [child, *descendants(child)]
    return found


class Server:
    """A server process of ours, from start to stop; with the processes it starts itself."""

    def __init__(self, name: str, command: Sequence[str], folder: Path, cores: set[int] = SERVER_CORE) -> None:
        self.name = name
        self.port = free_port()
        self.log = folder / f"{name}.log"
        words = [word.replace("{port}", str(self.port)) for word in command]
        environment = dict(os.environ)
        paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        with born_on(cores), self.log.open("wb") as log:
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=environment,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_until_ready(self) -> None:
        """Ready means: it answers PING."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                code = self.process.returncode
                raise Void(f"{self.name} ended with code {code} at start:\n{self.log_tail()}")
            with contextlib.suppress(OSError):
                if ask(self.port, "PING") == "PONG":
                    return
            time.sleep(0.02)
        raise Void(f"{self.name} did not answer PING within {START_SECONDS_MAX:.0f} s:\n{self.log_tail()}")

    def log_tail(self) -> str:
        return self.log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip()

    def info(self) -> dict[str, str]:
        """INFO as a dictionary; empty if the server does not know the command."""
        lines = (line.partition(":") for line in ask(self.port, "INFO").splitlines())
        return {key: value.strip() for key, colon, value in lines if colon and not key.startswith(("#", "-"))}

    def info_number(self, key: str) -> int | None:
        value = self.info().get(key)
        return int(float(value)) if value is not None else None

    def cpu_time(self) -> CpuTime:
        """Summed over all threads and children: a server that moves work elsewhere has not saved it."""
        ran = waited = 0
        for pid in (self.pid, *descendants(self.pid)):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(OSError):  # the thread may have ended meanwhile
                    fields = (thread / "schedstat").read_text().split()
                    ran += int(fields[0])
                    waited += int(fields[1])
        return CpuTime(ran / 1e9, waited / 1e9)

    def move_to(self, cores: set[int]) -> None:
        for pid in (self.pid, *descendants(self.pid)):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(int(thread.name), cores)

    def rss_bytes(self) -> int:
        resident_pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return resident_pages * os.sysconf("SC_PAGE_SIZE")

    def compiled_modules(self) -> int:
        """How many of Holdfast's own modules this process runs as machine code."""
        own = re.compile(r"/holdfast/(?:\w+/)*\w+\.[\w.-]*so$")
        lines = Path(f"/proc/{self.pid}/maps").read_text().splitlines()
        return len({line.split()[-1] for line in lines if own.search(line)})

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@contextlib.contextmanager
def running(name: str, command: Sequence[str], cores: set[int] = SERVER_CORE) -> Iterator[Server]:
    """A server that answers, in a folder of its own; stopped and cleared away at the end."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        server = Server(name, command, Path(folder), cores)
        try:
            server.wait_until_ready()
            yield server
        finally:
            server.stop()


def redis_command() -> list[str]:
    """redis-server as it comes, without persistence: our node writes nothing to disk here either."""
    return [find_redis_server(), "--port", "{port}", "--bind", HOST, "--save", "", "--appendonly", "no"]


# ---------------------------------------------------------------- load


@dataclass(frozen=True, slots=True)
class Load:
    """One run of the load generator that went well."""

    ops: int
    seconds: float
    rate: float
    cpu_us_per_op: float
    server_wait_seconds: float
    latency_us: dict[str, int]


def drive(
    server: Server,
    mode: str,
    *,
    requests: int,
    pipeline: int,
    connections: int = 50,
    body_bytes: int = 64,
    ids: Path | None = None,
    once: bool = False,
    more: Sequence[str] = (),
    cores: set[int] = LOAD_CORE,
) -> Load:
    """Put load on a server. Raises Void unless every single reply was the right one."""
    command = [str(build_loadgen()), "--mode", mode, "--host", HOST, "--port", str(server.port)]
    command += ["--requests", str(requests), "--pipeline", str(pipeline), "--connections", str(connections)]
    command += ["--body-bytes", str(body_bytes), "--queue", QUEUE, "--server-pid", str(server.pid)]
    command += ["--ids", str(ids)] if ids is not None else []
    command += ["--once"] if once else []
    what = f"{server.name} {mode} at pipeline {pipeline}"
    try:
        with born_on(cores):
            done = subprocess.run(
                [*command, *more], capture_output=True, text=True, timeout=DRIVE_SECONDS_MAX
            )
    except subprocess.TimeoutExpired as error:
        raise Void(f"{what}: not finished after {DRIVE_SECONDS_MAX:.0f} s") from error
    if not done.stdout:
        raise Void(f"{what}: {done.stderr.strip()}")
    return read_load(what, json.loads(done.stdout))


def read_load(what: str, result: dict[str, Any]) -> Load:
    troubles = []
    if result["stopped"]:
        troubles.append(str(result["stopped"]))
    if result["errors"]:
        troubles.append(f"{result['errors']:,} errors, the first: {result['first_error']}")
    if result["misses"]:
        troubles.append(f"{result['misses']:,} misses of {result['ops']:,}")
    if troubles:
        raise Void(f"{what}: {'; '.join(troubles)}")
    return Load(
        ops=result["ops"],
        seconds=result["seconds"],
        rate=result["rate"],
        cpu_us_per_op=result["server_cpu_us"] / result["ops"],
        server_wait_seconds=result["server_wait_us"] / 1e6,
        latency_us=result["batch_latency_us"],
    )


class Probe:
    """PINGs every millisecond while something else goes on, and keeps how long the answers took.

    A silence seen here may be the server's, but on a busy machine it is often the scheduler's: it informs, it
    does not judge.
    """

    def __init__(self, server: Server) -> None:
        self.talk = Talk(server.port)
        self.seconds: list[float] = []
        self.failure: Exception | None = None
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.ping_on, name="probe", daemon=True)

    def ping_on(self) -> None:
        try:
            while not self.stopping.wait(PROBE_PAUSE_SECONDS):
                asked = time.perf_counter()
                self.talk.ask("PING")
                self.seconds.append(time.perf_counter() - asked)
        except (OSError, ValueError) as error:
            self.failure = error

    def __enter__(self) -> Probe:
        self.thread.start()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self.stopping.set()
        self.thread.join(ASK_SECONDS_MAX)
        self.talk.close()
        if self.failure is not None and error is None:
            raise Void(f"the probe lost its connection: {self.failure}")

    def longest_ms(self) -> float:
        return max(self.seconds, default=0.0) * 1e3


# ---------------------------------------------------------------- facts about the machine


def version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def machine() -> dict[str, Any]:
    """What a reader needs to place the numbers. No names, dates or paths: results are published."""
    return {
        "cpu": cpu_model(),
        "cores": len(ALLOWED_CORES),
        "kernel": platform.release().partition("-")[0],
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "versions": {name: version_of(name) for name in ("holdfast", "mypy", "cython", "uvloop", "hiredis")},
    }
