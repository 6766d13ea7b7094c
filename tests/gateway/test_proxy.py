"""Behind a real nginx that spreads requests over three gateways before three nodes, one of which dies.

No request belongs to a gateway: what one was told the others know. While a gateway is killed, every push that was
answered 201 is got exactly by those who ask, and nothing else is.
"""
from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.gateway.running import Gateway
from tests.proc.cluster_harness import Cluster, free_ports

CONFIG = """
daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; client_max_body_size 64m;
  upstream gateways {{ {servers} keepalive 16; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://gateways; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_read_timeout 330s;
      proxy_connect_timeout 2s; proxy_next_upstream error timeout;
    }}
    location = /v1/events {{ proxy_pass http://gateways; proxy_buffering off; proxy_http_version 1.1; }}
  }}
}}
"""
JOBS = 300


@pytest.fixture
def nginx() -> str:
    found = shutil.which("nginx") or ("/usr/sbin/nginx" if Path("/usr/sbin/nginx").exists() else None)
    if found is None:
        pytest.skip("nginx is not installed (Debian: nginx-light)")
    return found


@contextlib.contextmanager
def proxy(program: str, folder: Path, ports: list[int]) -> Iterator[int]:
    port = free_ports(1)[0]
    servers = " ".join(f"server 127.0.0.1:{each} max_fails=1 fail_timeout=1s;" for each in ports)
    path = folder / "nginx.conf"
    path.write_text(CONFIG.format(folder=folder, servers=servers, port=port))
    process = subprocess.Popen([program, "-c", str(path), "-p", str(folder)], stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 15
        while True:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False).status_code == 200:
                    break
            assert process.poll() is None and time.monotonic() < end, (folder / "error.log").read_text()
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait(15)


def test_one_of_three_gateways_dies_and_nothing_is_lost(nginx: str, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        (tmp_path / "nodes").mkdir()
        cluster = Cluster(tmp_path / "nodes", 3)
        stack.callback(cluster.stop)
        urls = [f"holdfast://127.0.0.1:{cluster[i].port}" for i in range(3)]
        gateways = [stack.enter_context(Gateway(url, "--grpc", "-1")) for url in urls]
        port = stack.enter_context(proxy(nginx, tmp_path, [gateway.port for gateway in gateways]))
        base = f"http://127.0.0.1:{port}"
        accepted: set[str] = set()
        unsure: set[str] = set()
        got: list[str] = []
        is_over = threading.Event()

        def produce() -> None:
            with httpx.Client(base_url=base, timeout=30, trust_env=False) as http:
                for i in range(JOBS):
                    try:
                        answer = http.post("/push", content=f"{i}")
                        (accepted if answer.status_code == 201 else unsure).add(f"{i}")
                    except httpx.HTTPError:
                        unsure.add(f"{i}")
            is_over.set()

        def consume() -> None:
            with httpx.Client(base_url=base, timeout=30, trust_env=False) as http:
                empty = 0
                while empty < 3:
                    try:
                        answer = http.get("/get", params={"timeout": 1})
                    except httpx.HTTPError:
                        continue
                    if answer.status_code == 200:
                        got.append(answer.text)
                    empty = empty + 1 if answer.status_code == 204 and is_over.is_set() else 0

        threads = [threading.Thread(target=produce), threading.Thread(target=consume)]
        for thread in threads:
            thread.start()
        while len(accepted) < JOBS // 3:
            time.sleep(0.01)
        gateways[1].kill()
        for thread in threads:
            thread.join(120)
            assert not thread.is_alive()
        assert len(accepted) > JOBS * 0.9
        # What /get took when its gateway died was never answered, and comes back after its retry time: it is not lost.
        with httpx.Client(base_url=base, timeout=30, trust_env=False) as http:
            held = http.get("/stats").json()
        assert len(accepted - set(got)) <= held["queueSize"] + held["leased"]
        assert len(set(got)) == len(got), "nothing was got twice in calm times"
        assert set(got) <= accepted | unsure
