"""holdfasts:// urls, against a real node with a certificate."""
from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.proc.harness import Node

import holdfast
from holdfast.client import errors


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    """A node that talks TLS, and the folder with its certificate."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", folder / "key.pem", "-out", folder / "cert.pem"],
        check=True, capture_output=True,
    )
    import socket

    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with Node(
        "--set", f"tls-port={port}", "--set", f"tls-cert-file={folder / 'cert.pem'}",
        "--set", f"tls-key-file={folder / 'key.pem'}",
    ):
        yield port, folder


def test_threads_and_tasks_over_tls(secure: tuple[int, Path]) -> None:
    port, folder = secure
    url = f"holdfasts://127.0.0.1:{port}?ca={folder / 'cert.pem'}"
    with holdfast.open(url) as q:
        ids = q.add_many("q", [b"x" * 1000] * 50)
        jobs = q.take("q", count=50, timeout=5)
        assert [job.id for job in jobs] == ids and q.done(*jobs) == 50

    async def main() -> None:
        async with await holdfast.aopen(url) as q:
            await asyncio.gather(*(q.add("q", str(n)) for n in range(50)))
            assert len(await q.take("q", count=100)) == 50

    asyncio.run(main())


def test_a_certificate_nobody_vouches_for_is_refused(secure: tuple[int, Path]) -> None:
    port, folder = secure
    with pytest.raises(errors.Unreachable, match="certificate"):
        holdfast.open(f"holdfasts://127.0.0.1:{port}")
    with pytest.raises(errors.Unreachable):
        holdfast.open(f"holdfasts://127.0.0.2:{port}?ca={folder / 'cert.pem'}")


def test_wrong_files_and_words_are_named(secure: tuple[int, Path]) -> None:
    with pytest.raises(holdfast.BadRequest, match="TLS files"):
        holdfast.open("holdfasts://127.0.0.1?ca=nowhere.pem")
    with pytest.raises(holdfast.BadRequest, match="not 'insecure'"):
        holdfast.open("holdfasts://127.0.0.1?insecure=1")
