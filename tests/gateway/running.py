"""A real node and a real gateway before it, in processes of their own."""
from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx
from tests.proc.harness import Node, until

READY = re.compile(r"ready on (https?)://\S*:(\d+), (?:gRPC on (\d+)|no gRPC)")


class Gateway:
    """A gateway process; `url` is where it is."""

    def __init__(
        self, connect: str, *flags: str, http: int = 0, env: dict[str, str] | None = None, wait: bool = True,
        files: int = 0,
    ) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="holdfast-test-")
        self.log_path = Path(self.folder.name) / "log"
        words = [sys.executable, "-m", "holdfast", "gateway", "--connect", connect, "--http", str(http), *flags]
        if "--grpc" not in flags:
            words += ["--grpc", "0"]
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **(env or {})},
                preexec_fn=(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))) if files else None,
            )
        self.scheme, self.port, self.grpc_port = "http", 0, 0
        if wait:
            try:
                self.wait_until_ready()
            except BaseException:
                self.stop()
                raise

    def wait_until_ready(self) -> None:
        def is_ready() -> re.Match[str] | None:
            assert self.process.poll() is None, f"the gateway did not start:\n{self.log()}"
            return READY.search(self.log())

        found = until(is_ready, 40)
        self.scheme, self.port, self.grpc_port = found[1], int(found[2]), int(found[3] or -1)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=30, trust_env=False, **options)

    def log(self) -> str:
        return self.log_path.read_text("utf-8", "replace")

    def __enter__(self) -> Gateway:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        try:
            code = self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"the gateway did not stop:\n{self.log()}") from None
        return code


def address(node: Node) -> str:
    return f"holdfast://127.0.0.1:{node.port}"
