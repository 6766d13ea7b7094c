"""`make run`: one node in the foreground, a few words on the screen, one job to see it work, then figures.

The node is `holdfast node`, a process of its own; this one only talks to it, as any client would. Ctrl-C
reaches both, and whoever of the two ends first takes the other along. The exit code is the node's.
"""
from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

import holdfast

HOST = "127.0.0.1"
PORT = 7711
FOLDER = "./data"
START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 10.0
FIGURES_SECONDS = 5.0
SAMPLE_QUEUE = "hello"

WORDS = """
  A node of Holdfast is running at {host}:{port}. It keeps its jobs, its id and saved
  settings in {folder}. Ctrl-C stops it.

  Try, in another terminal:

    {prompt:<38}  a prompt; `help` lists the commands
    {redis:<38}  any Redis client will do
    {python} -c 'import holdfast; q = holdfast.open("holdfast://{host}:{port}"); print(q.add("emails", "hi"))'

  Read on: docs/tutorial/first-queue.md. Below, a line of figures whenever they have changed.
"""


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def folder_for(port: int) -> str:
    """A folder is one node's: a second one, on a port of its own, gets another."""
    return FOLDER if port == PORT else f"{FOLDER}-{port}"


def choose_port() -> int:
    if is_free(PORT):
        return PORT
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = int(probe.getsockname()[1])
    print(f"Port {PORT} is taken, so this node uses port {port}.", flush=True)
    return port


def start(port: int) -> subprocess.Popen[bytes]:
    words = ["node", "--dir", folder_for(port), "--bind", HOST, "--port", str(port)]
    return subprocess.Popen([sys.executable, "-m", "holdfast", *words])


def connect(port: int, node: subprocess.Popen[bytes]) -> holdfast.Queue:
    """The queue behind the node, once that is up. Raises Unreachable if it never is."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            return holdfast.open(f"holdfast://{HOST}:{port}")
        except holdfast.Refused:
            if node.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def show_a_job(queue: holdfast.Queue) -> None:
    job_id = queue.add(SAMPLE_QUEUE, "the first job")
    print(f"  Added      a job to the queue {SAMPLE_QUEUE}: {job_id}")
    with queue.next(SAMPLE_QUEUE, timeout=5) as job:
        print(f"  Fetched    {job.text!r}")
    print("  Done       and acknowledged, so it does not come back\n", flush=True)


def figures(queue: holdfast.Queue) -> str:
    page = bytes(queue.call("INFO")).decode()  # type: ignore[arg-type]
    facts = dict(line.split(":", 1) for line in page.splitlines() if ":" in line)
    return (
        f"jobs {facts['registered_jobs']}   queues {facts['registered_queues']}   "
        f"other clients {int(facts['connected_clients']) - 1}   commands/s {facts['instantaneous_ops_per_sec']}   "
        f"memory {facts['used_memory_human']}"
    )


def watch(queue: holdfast.Queue, node: subprocess.Popen[bytes]) -> None:
    """A line every few seconds, as long as there is something new to say."""
    shown = ""
    while node.poll() is None:
        line = figures(queue)
        if line != shown:
            print(f"  {time.strftime('%H:%M:%S')}  {line}", flush=True)
            shown = line
        with contextlib.suppress(subprocess.TimeoutExpired):
            node.wait(FIGURES_SECONDS)


def talk(port: int, node: subprocess.Popen[bytes]) -> None:
    with connect(port, node) as queue:
        programs = Path(sys.executable).parent
        with contextlib.suppress(ValueError):
            programs = programs.relative_to(Path.cwd())
        prompt = f"{programs}/holdfast cli" + ("" if port == PORT else f" -p {port}")
        print(
            WORDS.format(
                host=HOST, port=port, folder=folder_for(port), prompt=prompt, redis=f"redis-cli -p {port}",
                python=programs / "python",
            ),
            flush=True,
        )
        show_a_job(queue)
        watch(queue, node)


def stop(node: subprocess.Popen[bytes], is_told: bool) -> int:
    """Wait for the node, which Ctrl-C has reached as well; insist if it does not end."""
    if node.poll() is None and not is_told:
        node.terminate()
    try:
        return node.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        node.kill()
        return node.wait()


class Ended(Exception):
    """SIGTERM, which has reached us and not the node."""


def end(_signal: int, _frame: FrameType | None) -> None:
    raise Ended


def main() -> int:
    signal.signal(signal.SIGTERM, end)
    port = choose_port()
    node = start(port)
    is_told = False
    try:
        talk(port, node)
    except Ended:
        pass
    except KeyboardInterrupt:
        is_told = True
    except holdfast.Error as error:
        # It was stopped while we talked to it; or it never came up, and has said why itself.
        if node.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                node.wait(1)
        if node.poll() is None:
            print(f"The node does not answer: {error}", file=sys.stderr)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        code = stop(node, is_told)
    return code


if __name__ == "__main__":
    sys.exit(main())
