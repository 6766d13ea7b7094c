"""Is this worker doing its job? For those who restart workers: Kubernetes, systemd, a person.

A worker is healthy if it consumes: it has heard from a node lately, or is full of jobs that run; its event loop turns;
its threads have not all got stuck. "The process is there" is not enough: the worst worker is the one that is alive and
fetches nothing.

Told in two ways: GET /healthz on a port of its own, 200 or 503 with a sentence; and a file whose time is refreshed
every second while all is well and which is deleted when it is not. GET /metrics on that port has what it did, by task.
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

from .figures import Figures

FILE_S: Final = 1.0
OK: Final = b"ok\n"

log = logging.getLogger("holdfast.worker")


class HealthFile:
    """Refreshes a file while all is well."""

    def __init__(self, path: Path, ask: Callable[[], str], figures: Callable[[], Figures] | None = None) -> None:
        """`BadRequest` if there can be no such file. Under its first line, ok, are the figures for who adds them up."""
        if path.is_dir() or not path.parent.is_dir():
            raise BadRequest(f"the health file {path} cannot be made: it is a folder, or its folder is not there")
        self._is_failing = False
        self._path = path
        self._ask = ask
        self._figures = figures
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
                figures = b"" if self._figures is None else self._figures().to_json() + b"\n"
                self._path.write_bytes(OK + figures)
        except OSError as error:  # A full disk must not cost leases: the file grows old, and whoever looks at it acts.
            if not self._is_failing:
                log.error("cannot refresh the health file %s: %s", self._path, error.strerror)
            self._is_failing = True
        else:
            self._is_failing = False

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)


TEXT: Final = "text/plain; charset=utf-8"
METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"


def page(path: str, ask: Callable[[], str], measure: Callable[[], bytes]) -> tuple[int, str, bytes]:
    """Status, type and body of what is there."""
    if path == "/healthz":
        fault = ask()
        return (503 if fault else 200), TEXT, (fault or "ok").encode() + b"\n"
    if path == "/metrics":
        return 200, METRICS, measure()
    return 404, TEXT, b"try /healthz or /metrics\n"


class HealthPort:
    """Answers GET /healthz and GET /metrics, from a thread of its own."""

    def __init__(self, host: str, port: int, ask: Callable[[], str], measure: Callable[[], bytes]) -> None:
        """`BadRequest` if it cannot listen there."""

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, kind, body = page(self.path.partition("?")[0], ask, measure)
                self.send_response(status)
                self.send_header("Content-Type", kind)
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
