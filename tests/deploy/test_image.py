"""The image and the compose file, built and run as images.py and compose.py do where there is no engine.

The whole image takes minutes to compile: that is for COMPILED=1 (`make show PART=console ONLY=image`). Without it the
same lines run with HOLDFAST_PURE=1, which setup.py knows.
"""
from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.deploy.images import Build, Image, ImageError, boxed, context, ignores, instructions

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"
IS_COMPILED = os.environ.get("COMPILED") == "1"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What is built is made of packages that have to be fetched."""
    fetch = [sys.executable, "-m", "pip", "--quiet", "download", "--no-deps", "--no-cache-dir", "wheel"]
    done = subprocess.run(fetch, cwd=tmp_path_factory.mktemp("index"), capture_output=True)
    if done.returncode != 0:
        pytest.skip("needs the package index")


@pytest.fixture(scope="module")
def image(index: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    yield Build(DOCKERFILE, ROOT, tmp_path_factory.mktemp("image"), {} if IS_COMPILED else {"HOLDFAST_PURE": "1"}).image


def said(image: Image, *words: str) -> str:
    done = subprocess.run(boxed(image, words, {}), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_was_made_on_this_machine_is_not_sent() -> None:
    sent = context(ROOT)
    assert {"setup.py", "src/holdfast/core/node.py", "tools/assets.sh", "package.json"} <= set(sent)
    assert not [name for name in sent if name.endswith((".so", ".pyc", "_pb2.py")) or "/vendor/" in name]
    assert {name.partition("/")[0] for name in sent} == {
        "LICENSE", "README.md", "constraints.txt", "package.json", "pyproject.toml", "setup.py", "src", "tools",
    }


@pytest.mark.parametrize(("path", "is_ignored"), [
    ("a", True), ("src/a.py", False), ("src/b/a.so", True), ("a.so", True), ("src/kept.so", False), ("b/src/a", True),
])
def test_the_last_pattern_that_fits_counts(path: str, is_ignored: bool) -> None:
    assert ignores(["*", "!src", "**/*.so", "!src/kept.so"], path) is is_ignored


def test_a_dockerfile_is_read_as_it_is_meant() -> None:
    text = "# a\nFROM x AS y\n# b\nRUN one \\\n    && two\n\nENV A=1 \\\n    B=2\n"
    assert list(instructions(text)) == [("FROM", "x AS y"), ("RUN", "one      && two"), ("ENV", "A=1      B=2")]


@needs_root
@pytest.mark.usefixtures("index")
@pytest.mark.parametrize(("line", "words"), [
    ("COPY nowhere ./", "there is no nowhere"), ("RUN exit 3", "exit code 3"), ("SHELL []", "nobody here knows SHELL"),
    ("RUN python -m venv /opt/v && /opt/v/bin/pip install ./nothing", "exit code 1"),
])
def test_a_line_that_does_not_work_is_found(tmp_path: Path, line: str, words: str) -> None:
    broken = tmp_path / "Dockerfile"
    broken.write_text(f"FROM python:3.11-slim-bookworm\nWORKDIR /src\n{line}\n")
    with pytest.raises(ImageError, match=words):
        Build(broken, ROOT, tmp_path / "scratch", {})


@needs_root
def test_the_image_has_a_holdfast_that_is_not_root_and_all_its_pages(image: Image) -> None:
    assert ("pure Python" in said(image, "holdfast", "--version")) is not IS_COMPILED
    assert said(image, "id", "-u", "-n").strip() == "holdfast"
    assert said(image, "sh", "-c", "touch /data/x && rm /data/x && ! touch /opt/holdfast/x 2>&1")
    pages = image.at("/opt/holdfast/lib/python3.11/site-packages/holdfast/console/static/vendor")
    assert {path.name for path in pages.iterdir()} >= {"htmx.min.js", "uPlot.iife.min.js", "uPlot.min.css"}
    assert "--join" in said(image, *image.entrypoint, *image.command, "--help")


@needs_root
def test_the_compose_file_makes_a_cluster_that_is_healthy_and_works(image: Image, tmp_path: Path) -> None:
    """Three nodes and a gateway with an address each; what the file's first lines say is done first."""
    (tmp_path / "image.json").write_text(image.saved())
    paths = [str(ROOT / "tests" / "proc"), *os.environ.get("PYTHONPATH", "").split(":")]
    done = subprocess.run(
        [sys.executable, "-m", "tests.deploy.compose", str(tmp_path / "image.json"), str(tmp_path)], cwd=ROOT,
        env={**os.environ, "PYTHONPATH": ":".join(filter(None, paths))}, capture_output=True, text=True, timeout=400,
    )
    assert done.returncode == 0, done.stderr
