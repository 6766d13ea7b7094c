"""A worker as a process of its own, a node for it, and what its tasks noted."""
from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from tests.proc.harness import PATIENCE_S, until

import holdfast

ROOT = Path(__file__).resolve().parents[2]


class Shop:
    """A url, a place for notes, and workers that are stopped when it ends."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.log = folder / "notes"
        self.log.touch()
        self.queue = holdfast.open(url)
        self.workers: list[RealWorker] = []

    def __enter__(self) -> Shop:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers:
            worker.kill()
        self.queue.close()
        if kind is not None:
            print("\n".join(worker.output() for worker in self.workers))

    def worker(self, *flags: str, url: str = "", app: str = "worker.shop:app") -> RealWorker:
        made = RealWorker(self, app, flags, url or self.url, self.folder / f"worker-{len(self.workers)}")
        self.workers.append(made)
        return made

    def notes(self) -> list[str]:
        return self.log.read_text().splitlines()

    def count(self) -> Counter[str]:
        return Counter(self.notes())

    def noted(self, *lines: str) -> None:
        """Wait until all of these are there."""
        until(lambda: set(lines) <= set(self.notes()))

    def settled(self, *queues: str) -> None:
        """Wait until no job of these queues is left, neither waiting nor in somebody's hands."""
        until(lambda: all(self.pending(each) == 0 for each in queues))

    def pending(self, queue: str) -> int:
        return sum(1 for _ in self.queue.browse(queue, states=("queued", "active")))


class RealWorker:
    """`holdfast worker worker.shop:app …`"""

    def __init__(self, shop: Shop, app: str, flags: tuple[str, ...], url: str, path: Path) -> None:
        self._path = path
        environment = {
            **os.environ, "SHOP_URL": url, "SHOP_LOG": str(shop.log),
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}:{ROOT}",
        }
        with path.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "holdfast", "worker", app, *flags],
                env=environment, cwd=ROOT, stdout=file, stderr=file, stdin=subprocess.DEVNULL,
            )
        self.until(lambda: "ready" in self.output())

    def output(self) -> str:
        return self._path.read_text()

    def until(self, ask: Callable[[], object]) -> None:
        def alive() -> object:
            assert self.process.poll() is None, self.output()
            return ask()

        until(alive)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def stop(self) -> int:
        """SIGTERM, and its exit code."""
        self.signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S + 30)

    def children(self) -> list[int]:
        """The processes that it has started and that run."""
        pid = self.process.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
