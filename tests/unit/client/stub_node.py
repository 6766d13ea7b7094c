"""A stub node on a real socket: it records the commands it gets and answers as the test tells it.

The answer to a command is bytes to send, SILENCE to send nothing, or HANG_UP to close the connection. Tests
wait for what the stub saw by condition (`wait_for`), never by sleeping.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

from holdfast.client import errors
from holdfast.client.plain import NOT_READY, PlainReader

SILENCE = b""
HANG_UP = None
Command = list[bytes]
PATIENCE_S = 10


class Stub:
    """Listens; `answer` decides; `seen` remembers."""

    def __init__(self, listener: socket.socket) -> None:
        self.seen: list[Command] = []
        self.connections = 0
        self.at_end = b""
        """What to send when a client closes its sending half."""
        self.answer: Callable[[Command], bytes | None] = lambda argv: b"+OK\r\n"
        self._changed = threading.Condition()
        self._listener = listener
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def names(self) -> list[bytes]:
        return [argv[0] for argv in self.seen]

    def wait_for(self, condition: Callable[[Stub], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self), PATIENCE_S), f"saw only {self.seen}"

    def say(self, data: bytes) -> None:
        """Send something to every client that is still there, asked or not."""
        for client in self._open:
            with contextlib.suppress(OSError):
                client.sendall(data)

    def hang_up(self) -> None:
        """Close every connection."""
        for client in self._open:
            client.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for client in self._open:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._changed:
                self.connections += 1
                self._changed.notify_all()
            self._open.append(client)
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        reader = PlainReader(errors.from_reply)
        try:
            while data := client.recv(65536):
                reader.feed(data)
                while (argv := reader.gets()) is not NOT_READY:
                    assert isinstance(argv, list)
                    reply = self._handle([word for word in argv if isinstance(word, bytes)])
                    if reply is HANG_UP:
                        client.shutdown(socket.SHUT_RDWR)
                        return
                    client.sendall(reply)
            client.sendall(self.at_end)
        except OSError:
            pass
        finally:
            client.close()

    def _handle(self, argv: Command) -> bytes | None:
        reply = self.answer(argv)
        with self._changed:
            self.seen.append(argv)
            self._changed.notify_all()
        return reply


def job_reply(job_id: str, queue: str = "q", body: str = "body") -> bytes:
    """One job as GETJOB … WITHCOUNTERS answers it."""
    job = b"".join(_bulk(word) for word in (queue, job_id, body))
    return b"*1\r\n*7\r\n" + job + _bulk("nacks") + b":0\r\n" + _bulk("additional-deliveries") + b":0\r\n"


def _bulk(text: str) -> bytes:
    data = text.encode()
    return b"$%d\r\n%b\r\n" % (len(data), data)
