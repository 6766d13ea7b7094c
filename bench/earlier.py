"""An earlier commit of this repository, compiled as it compiled itself, to be measured beside this one."""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench import common
from bench.common import Missing, Void


def say(text: str) -> None:
    """What is going on, for whoever waits."""
    print(text, file=sys.stderr, flush=True)


def resolve(commit: str) -> str:
    found = subprocess.run(
        ["git", "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"], cwd=common.ROOT, capture_output=True,
        text=True,
    )
    if found.returncode != 0:
        raise Missing(f"commit {commit} is not in this clone")
    return found.stdout.strip()


def build(commit: str) -> Path:
    """The folder of that commit's sources with their compiled form beside them; made once."""
    commit = resolve(commit)
    folder = common.BUILD / f"before-{commit[:12]}"
    if (folder / ".ready").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    say(f"building commit {commit[:12]} beside this one: a minute, or several for an old one; once")
    tree = subprocess.run(["git", "archive", commit], cwd=common.ROOT, stdout=subprocess.PIPE, check=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=tree.stdout, check=True)
    environment = {**os.environ, "HOLDFAST_COMPILE": "1", "HOLDFAST_PURE": ""}
    done = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"], cwd=folder, env=environment,
        capture_output=True, text=True,
    )
    if done.returncode != 0:
        raise Void(f"commit {commit[:12]} cannot be compiled: {done.stderr[-1000:]}")
    (folder / ".ready").touch()
    return folder


def python_of(folder: Path) -> list[str]:
    """The words before a command that make it use the sources of a folder that `build` made."""
    return ["env", f"PYTHONPATH={folder / 'src'}"]
