"""Builds an image and runs containers as Docker would, as far as ours go: there is no engine to be had from PyPI.

A base image is this machine: each stage is an overlay on its root, so that what a RUN does is done for real, as root,
and stays in a folder of the stage. Images of Python have theirs in /usr/local: ours is mounted there. What this cannot
show is that a base image has all that this machine has. An instruction nobody here knows is an error.

A container sees that, read-only, with the user, the capabilities and the mounts that Docker would give it. Needs root.
"""
from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

PATH = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
# How this machine reaches its package indexes, as `--build-arg` would say.
NETWORK = re.compile(r"(?i)^(pip_|npm_config_|\w+_proxy$|ssl_cert|requests_ca|node_extra)")
RUN_SECONDS_MAX = 3600.0
"""As in bench/show/fresh_clone.py: compiling, on a busy machine."""
ROOT_USER = "0:0"


class ImageError(Exception):
    """A line of the Dockerfile does not work."""


@dataclass
class Image:
    layer: str
    """The folder of what is in it and not on this machine."""
    env: dict[str, str] = field(default_factory=lambda: {"PATH": PATH})
    user: str = ROOT_USER
    folder: str = "/"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    volumes: list[str] = field(default_factory=list)

    @property
    def root(self) -> Path:
        return Path(self.layer).parent / "root"

    def at(self, path: str) -> Path:
        """Where on this machine a path of the image is."""
        return Path(self.layer) / os.path.join(self.folder, path).lstrip("/")

    def saved(self) -> str:
        return json.dumps(asdict(self))


def instructions(text: str) -> Iterator[tuple[str, str]]:
    whole = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    for line in filter(str.strip, whole.splitlines()):
        word, _, rest = line.partition(" ")
        yield word, rest.strip()


# -- what the engine is sent ------------------------------------------------------------------------------


def ignores(patterns: Sequence[str], path: str) -> bool:
    """The last pattern that fits a path, or a folder it is in, counts."""
    is_ignored = False
    above = path.split("/")
    heres = ["/".join(above[:count]) for count in range(1, len(above) + 1)]
    for pattern in patterns:
        bare = re.escape(pattern.removeprefix("!").strip("/"))
        fits = re.compile(bare.replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*"))
        if any(map(fits.fullmatch, heres)):
            is_ignored = not pattern.startswith("!")
    return is_ignored


def context(root: Path) -> list[str]:
    """Files below a folder that .dockerignore does not keep back."""
    lines = (root / ".dockerignore").read_text().splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    tops = [top for top in root.iterdir() if any(line.startswith(f"!{top.name}") for line in patterns)]
    found = [path for top in tops for path in ([top] if top.is_file() else top.rglob("*"))]
    names = [path.relative_to(root).as_posix() for path in found if path.is_file()]
    return sorted(name for name in names if not ignores(patterns, name))


# -- a command in an overlay ------------------------------------------------------------------------------


def overlay(image: Image) -> str:
    """The command that mounts an image at its root: what is written there is in its layer."""
    for each in ("work", "root"):
        (Path(image.layer).parent / each).mkdir(exist_ok=True)
    options = f"lowerdir=/,upperdir={image.layer},workdir={image.root.parent / 'work'}"
    return f"mount -t overlay overlay -o {options} {image.root}"


def boxed(
    image: Image, words: Sequence[str], env: Mapping[str, str], mounts: Mapping[str, Path] | None = None,
    is_read_only: bool = False,
) -> list[str]:
    """The words that run a command in an image, in a namespace of mounts that goes with it.

    One that is read-only finds the image mounted: so many can have it at a time.
    """
    root = image.root
    begin = [f"mount --bind {root} {root}", f"mount -o remount,bind,ro {root}"] if is_read_only else [overlay(image)]
    seen = {"/usr/local": Path(sys.base_prefix), "/proc": Path("/proc"), **(mounts or {})}
    steps = [*begin, f"mount --rbind /dev {root}/dev", *(f"mount --bind {seen[each]} {root}{each}" for each in seen)]
    user, group = image.user.split(":")
    less = ["setpriv", "--reuid", user, "--regid", group, "--clear-groups", "--no-new-privs", "--bounding-set=-all"]
    last = [
        "exec", "chroot", str(root), *(less if image.user != ROOT_USER else []), "env", "-i",
        "LD_LIBRARY_PATH=/usr/local/lib",  # of the Python that is mounted there
        *(f"{name}={value}" for name, value in {**image.env, **env}.items()),
        "sh", "-c", 'cd "$0" && exec "$@"', image.folder, *words,
    ]
    return ["unshare", "--mount", "bash", "-euc", "\n".join([*steps, shlex.join(last)])]


# -- building ---------------------------------------------------------------------------------------------


class Build:
    def __init__(self, dockerfile: Path, root: Path, scratch: Path, env: Mapping[str, str]) -> None:
        self.scratch = scratch
        self.sent = scratch / "context"
        for name in context(root):
            (self.sent / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, self.sent / name)
        network = {name: value for name, value in os.environ.items() if NETWORK.match(name)}
        self.env = {"HOME": "/root", **network, **env}
        self.stages: dict[str, Image] = {}
        self.image = Image("")
        for word, rest in instructions(dockerfile.read_text()):
            act = getattr(self, f"on_{word.lower()}", None)
            if act is None:
                raise ImageError(f"nobody here knows {word}")
            act(rest)

    def on_from(self, rest: str) -> None:
        _, _, name = rest.partition(" AS ")
        folder = self.scratch / f"stage-{len(self.stages)}" / "layer"
        folder.mkdir(parents=True)
        self.image = self.stages[name or "last"] = Image(str(folder))

    def on_workdir(self, rest: str) -> None:
        self.image.folder = rest
        self.image.at(rest).mkdir(parents=True, exist_ok=True)

    def on_copy(self, rest: str) -> None:
        words = shlex.split(rest)
        source = self.sent
        if words[0].startswith("--from="):
            source = Path(self.stages[words.pop(0).removeprefix("--from=")].layer)
        *names, target = words
        for name in names:
            there, here = source / name.lstrip("/"), self.image.at(target)
            if there.is_dir():
                shutil.copytree(there, here, symlinks=True, dirs_exist_ok=True)
            elif there.is_file():
                here = here / there.name if target.endswith("/") else here
                here.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(there, here)
            else:
                raise ImageError(f"COPY {rest}: there is no {name}")

    def on_run(self, rest: str) -> None:
        words = boxed(self.image, ["sh", "-c", rest], self.env)
        done = subprocess.run(words, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise ImageError(f"RUN {rest}: exit code {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")

    def on_env(self, rest: str) -> None:
        for pair in shlex.split(rest):
            name, _, value = pair.partition("=")
            self.image.env[name] = re.sub(r"\$(\w+)", lambda found: self.image.env[found[1]], value)

    def on_user(self, rest: str) -> None:
        self.image.user = rest

    def on_volume(self, rest: str) -> None:
        self.image.volumes = json.loads(rest)

    def on_expose(self, rest: str) -> None:
        self.image.ports = [int(port) for port in rest.split()]

    def on_healthcheck(self, rest: str) -> None:
        self.image.health = json.loads(rest.partition("CMD ")[2])

    def on_entrypoint(self, rest: str) -> None:
        self.image.entrypoint = json.loads(rest)

    def on_cmd(self, rest: str) -> None:
        self.image.command = json.loads(rest)
