"""Is this worker doing its job? For those who restart workers: Kubernetes, systemd, a person.

A worker is healthy if it consumes: it has heard from a node lately, or is full of jobs that run; its event loop turns;
its threads have not all got stuck. "The process is there" is not enough: the worst worker is the one that is alive and
fetches nothing.

Told in two ways: GET /healthz on a port of its own, 200 or 503 with a sentence; and a file whose time is refreshed
every second while all is well and which is deleted when it is not.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

from holdfast.client.errors import BadRequest

FILE_S: Final = 1.0

log = logging.getLogger("holdfast.worker")


class HealthFile:
    """Refreshes a file while all is well."""

    def __init__(self, path: Path, ask: Callable[[], str]) -> None:
        """`BadRequest` if there can be no such file."""
        if path.is_dir() or not path.parent.is_dir():
            raise BadRequest(f"the health file {path} cannot be made: it is a folder, or its folder is not there")
        self._is_failing = False
        self._path = path
        self._ask = ask
        self._written = 0.0

    def tick(self, now: float) -> None:
        """Called often; acts once a second."""
        if now - self._written < FILE_S:
            return
        self._written = now
        try:
            if self._ask():
                self._path.unlink(missing_ok=True)
            else:
                self._path.write_text("ok\n")
        except OSError as error:  # A full disk must not cost leases: the file grows old, and whoever looks at it acts.
            if not self._is_failing:
                log.error("cannot refresh the health file %s: %s", self._path, error.strerror)
            self._is_failing = True
        else:
            self._is_failing = False

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)


class HealthPort:
    """Answers GET /healthz, from a thread of its own."""

    def __init__(self, host: str, port: int, ask: Callable[[], str]) -> None:
        """`BadRequest` if it cannot listen there."""

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

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or "not a port"
            raise BadRequest(f"cannot answer for health on {host} port {port}: {why}") from None
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="holdfast-health", daemon=True)
        self._thread.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown()
            self._server.server_close()
