"""Is this worker doing its job? For those who restart workers: Kubernetes, systemd, a person.

A worker is healthy if it consumes: it has heard from a node lately, or is full of jobs that run; its event loop turns;
its threads have not all got stuck. "The process is there" is not enough: the worst worker is the one that is alive and
fetches nothing.

Told in two ways: GET /healthz on a port of its own, 200 or 503 with a sentence; and a file whose time is refreshed
every second while all is well and which is deleted when it is not.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

FILE_S: Final = 1.0


class HealthFile:
    """Refreshes a file while all is well."""

    def __init__(self, path: Path, ask: Callable[[], str]) -> None:
        self._path = path
        self._ask = ask
        self._written = 0.0

    def tick(self, now: float) -> None:
        """Called often; acts once a second."""
        if now - self._written < FILE_S:
            return
        self._written = now
        if self._ask():
            self._path.unlink(missing_ok=True)
        else:
            self._path.write_text("ok\n")

    def close(self) -> None:
        self._path.unlink(missing_ok=True)


class HealthPort:
    """Answers GET /healthz, from a thread of its own."""

    def __init__(self, host: str, port: int, ask: Callable[[], str]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                fault = ask() if self.path == "/healthz" else ""
                status = 404 if self.path != "/healthz" else 503 if fault else 200
                body = (fault or ("ok" if status == 200 else "try /healthz")).encode() + b"\n"
                self.send_response(status)
                self.send_header("Content-Type", "text/plain; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass  # A line every few seconds for ever helps nobody.

        self._server = ThreadingHTTPServer((host, port), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="holdfast-health", daemon=True)
        self._thread.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown()
            self._server.server_close()
