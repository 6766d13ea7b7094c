"""`docker compose up`, as far as our file goes: `python -m tests.deploy.compose IMAGE FOLDER`.

Each service is a container (images.py) in a network namespace of its own, with the address of its name in /etc/hosts;
what connects them is the lab of the node's network tests (tests/proc/netns). Secrets are mounted as Compose mounts
files, with the owner and mode that they have, and a new volume is what the image has at its place. They come from the
commands at the top of the compose file, run as somebody reads them there.

It waits until every service is healthy by its own check, uses the cluster through the ports that are published, stops
all as Compose does, and ends with 0 if nothing was amiss.
"""
from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from netns.lab import CLIENTS, INSIDE, Room, Wire, environment, furnish, open_tun
from tests.deploy.images import Image, boxed, overlay

import holdfast

FILE = Path(__file__).resolve().parents[2] / "deploy" / "docker" / "compose.yaml"
PLAN: dict[str, Any] = yaml.safe_load(FILE.read_text())
COMMAND = re.compile(r"^#   (.+)$", re.MULTILINE)
HEALTHY_S = 90.0
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Amiss(Exception):
    """Something is not as the file says."""


def wait_for(what: str, seconds: float, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise Amiss(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.2)


def prepared(folder: Path) -> str:
    """Run what the file says comes first, where the file expects what it makes; the secret that was shown."""
    *before, last = [line.partition("  #")[0].strip() for line in COMMAND.findall(FILE.read_text())]
    if not last.endswith("docker compose -f deploy/docker/compose.yaml up"):
        raise Amiss(f"the last command is another: {last}")
    shown = ""
    for line in before:
        words = ["bash", "-euc", line.replace("sudo ", "")]
        env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        shown += subprocess.run(words, cwd=folder, check=True, stdout=subprocess.PIPE, text=True, env=env).stdout
    return shown.strip()


class Service:
    def __init__(self, name: str, image: Image, folder: Path, room: Room, secret: str) -> None:
        self.name = name
        self.image = image
        self.room = room
        self.about: dict[str, Any] = PLAN["services"][name]
        self.folder = folder / name
        if not self.about["read_only"]:
            raise Amiss(f"{name} can be written to")
        told = self.about.get("environment", {})
        self.env = {key: re.sub(r"\$\{HOLDFAST_SECRET:.*\}", secret, value) for key, value in told.items()}
        self.mounts = {"/etc/hosts": folder / "hosts"}
        for each in self.about.get("secrets", []):
            # Names in the file count from where it is, two folders below the top.
            self.mounts[f"/run/secrets/{each}"] = folder / PLAN["secrets"][each]["file"].removeprefix("../../")
        for each in self.about.get("volumes", []):
            volume, path = each.split(":")
            if volume not in PLAN["volumes"] or path not in image.volumes:
                raise Amiss(f"{name}: there is no volume {each}")
            self.mounts[path] = folder / f"volume-{volume}"
            shutil.copytree(image.at(path), self.mounts[path])
            owner = image.at(path).stat()
            os.chown(self.mounts[path], owner.st_uid, owner.st_gid)
        self.folder.mkdir()
        self.starts = 0

    def up(self) -> None:
        self.process = self.start([*self.image.entrypoint, *(self.about.get("command") or self.image.command)])

    def start(self, words: list[str]) -> subprocess.Popen[bytes]:
        """A process in the container: the service itself, or a check of its health."""
        self.starts += 1
        box = boxed(self.image, words, self.env, self.mounts, is_read_only=True)
        self.log = self.folder / f"log-{self.starts}"
        with self.log.open("wb") as log:
            return subprocess.Popen([*self.room.enter, *box], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def is_healthy(self) -> bool:
        if self.process.poll() is not None:
            raise Amiss(f"{self.name} ended with {self.process.returncode}")
        test = self.about.get("healthcheck", {}).get("test", ["CMD", *self.image.health])
        return self.start(test[1:]).wait(30) == 0

    def published(self) -> list[int]:
        """Ports of the container that the host has."""
        return [int(each.rpartition(":")[2]) for each in self.about.get("ports", [])]

    def stop(self) -> None:
        grace = float(self.about.get("stop_grace_period", "10s").removesuffix("s"))
        self.process.send_signal(signal.SIGTERM)
        if (code := self.process.wait(grace)) != 0:
            raise Amiss(f"{self.name} ended with {code} when it was stopped")


def used(at: dict[str, str], secret: str) -> None:
    """A job added at one node, taken at another; the console, and a login to it by HTTP."""
    with holdfast.open(f"holdfast://admin:{secret}@{at['node-1']}:7711") as one:
        wait_for("three nodes", 30, lambda: b"cluster_reachable_nodes:2\r" in bytes(one.call("CLUSTER", "INFO")))  # type: ignore[arg-type]
        one.add("mail", "hello", replicate=3)
    with holdfast.open(f"holdfast://admin:{secret}@{at['node-3']}:7711") as three:
        three.next("mail", timeout=20).done()
    with OPENER.open(f"http://{at['gateway']}:7780/console/login", timeout=20) as page:
        if b"Holdfast" not in page.read():
            raise Amiss("the console shows something else")
    with holdfast.open(f"http://admin:{secret}@{at['gateway']}:7780") as door:
        door.add("mail", "by HTTP")
    with holdfast.open(f"grpc://admin:{secret}@{at['gateway']}:7790") as door:
        door.next("mail", timeout=20).done()


def mount(image: Image, services: list[Service]) -> None:
    """The image, with places for what is mounted in its containers: an engine makes them."""
    for target, source in [pair for each in services for pair in each.mounts.items()]:
        place = image.at(target)
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            place.mkdir(exist_ok=True)
        elif not place.exists():
            place.touch()
    subprocess.run(["bash", "-c", overlay(image)], check=True)


def run(image: Image, folder: Path) -> None:
    secret = prepared(folder)
    names = list(PLAN["services"])
    at = {name: f"10.77.0.{number}" for number, name in enumerate(names, 1)}
    (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"{at[name]} {name}\n" for name in names))
    rooms = {name: Room(f"room{number}", at[name]) for number, name in enumerate(names)}
    ports = {at[name]: room.tun for name, room in rooms.items()} | {CLIENTS: open_tun("clients")}
    furnish("clients", CLIENTS)
    wire = Wire(1, ports)
    services = [Service(name, image, folder, rooms[name], secret) for name in names]
    mount(image, services)
    try:
        for each in services:
            each.up()
        for each in services:
            wait_for(f"{each.name} healthy", HEALTHY_S, each.is_healthy)
        used(at, secret)
        if {each.name: each.published() for each in services} != {
            "node-1": [7711], "node-2": [7711], "node-3": [7711], "gateway": [7780, 7790]
        }:
            raise Amiss("other ports are published than those that were used")
        for each in reversed(services):
            each.stop()
    except BaseException:
        for each in services:
            for log in sorted(each.folder.glob("log-*"))[:2]:
                print(f"-- {each.name}, {log.name}:\n{log.read_text(errors='replace')[-1500:]}", file=sys.stderr)
        raise
    finally:
        wire.process.kill()


def main() -> None:
    saved, folder, *inside = sys.argv[1:]
    if not inside:
        words = [sys.executable, "-m", "tests.deploy.compose", saved, folder, "inside"]
        os.execvpe(INSIDE[0], [*INSIDE, *words], environment())
    run(Image(**json.loads(Path(saved).read_text())), Path(folder))


if __name__ == "__main__":
    main()
