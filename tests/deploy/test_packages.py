"""What is built of the sources: objects that are kept, a wheel for machines without a compiler, a source archive.

All of it takes the objects that `make` has compiled for this tree: that none has to be compiled again elsewhere is a
promise of its own, and makes this affordable.
"""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.deploy.images import context

ROOT = Path(__file__).resolve().parents[2]
OBJECTS = Path(os.environ.get("HOLDFAST_OBJECTS") or ROOT / "build" / "compile")
UV = Path(sys.executable).with_name("uv")
README_SNIPPET = """
import holdfast
q = holdfast.open("memory:")
q.add("emails", "hello", retry=30)
with q.next("emails", timeout=5) as job:
    print(job.text)
"""


def environment(**more: str) -> dict[str, str]:
    """Ours without what says where Holdfast is, or that it is to be plain Python."""
    mine = ("PYTHONPATH", "HOLDFAST_PURE", "VIRTUAL_ENV")
    return {**{name: value for name, value in os.environ.items() if name not in mine},
            "HOLDFAST_OBJECTS": str(OBJECTS), **more}


def run(*words: str | Path, where: Path, code: int = 0, **more: str) -> str:
    done = subprocess.run([str(word) for word in words], cwd=where, env=environment(**more), capture_output=True,
                          text=True, timeout=600)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def report() -> dict[str, float]:
    return dict(json.loads((OBJECTS / "report.json").read_text()))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a source archive or an image is built from, and no more, compiled there."""
    folder = tmp_path_factory.mktemp("tree")
    for name in [*context(ROOT), "MANIFEST.in"]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    run(sys.executable, "-m", "tools.compile", where=ROOT)  # objects of these sources, if there are none yet
    run(sys.executable, "-m", "tools.compile", where=folder)
    return folder


def version(tree: Path, **more: str) -> str:
    words = (sys.executable, "-m", "holdfast", "--version")
    return run(*words, where=tree, PYTHONPATH=str(tree / "src"), **more).strip()


@pytest.fixture
def kept_source(tree: Path) -> Path:
    """A module of the core that a test may change."""
    source = tree / "src" / "holdfast" / "core" / "acks.py"
    text = source.read_text()
    yield source
    source.write_text(text)


def test_the_same_sources_elsewhere_compile_nothing_again(tree: Path) -> None:
    """Neither where the sources are nor in which order sets were walked shows in the C."""
    assert report()["compiled"] == 0
    assert version(tree).endswith("(compiled)")


def test_an_edit_compiles_its_own_file_and_no_other(tree: Path, kept_source: Path) -> None:
    """A new text, number and function: what mypyc numbers anew in all files. The second file fills the tables."""
    kept_source.write_text(kept_source.read_text() + '\n\ndef added(a: int) -> str:\n    return f"{a + 98765} new"\n')
    run(sys.executable, "-m", "tools.compile", where=tree)
    assert report()["compiled"] <= 2
    words = (sys.executable, "-c", "from holdfast.core import acks; print(acks.added(1), acks.__file__)")
    said = run(*words, where=tree, PYTHONPATH=str(tree / "src"))
    assert said.startswith("98766 new ")
    assert said.strip().endswith(".so")


def test_an_error_in_a_source_is_told_and_leaves_what_is_there(tree: Path, kept_source: Path) -> None:
    before = sorted((tree / "src").rglob("*.so"))
    kept_source.write_text(kept_source.read_text() + "\n\nWRONG: int = 'a text'\n")
    said = run(sys.executable, "-m", "tools.compile", where=tree, code=1)
    assert "acks.py" in said
    assert "Incompatible types in assignment" in said
    assert sorted((tree / "src").rglob("*.so")) == before


def test_without_a_compiler_the_plain_form_runs(tree: Path) -> None:
    """Compiled files go: they might be of other sources than those that lie there now."""
    said = run(sys.executable, "-m", "tools.compile", "--into", str(tree / "src"), where=tree, code=3,
               CC="no-such-compiler")
    assert "there is no C compiler" in said
    assert version(tree).endswith("(pure Python)")
    run(sys.executable, "-m", "tools.compile", where=tree)
    assert version(tree).endswith("(compiled)")


def test_a_module_that_is_gone_leaves_no_compiled_file(tree: Path) -> None:
    suffix = next((tree / "src" / "holdfast" / "core").glob("acks.*.so")).name.removeprefix("acks")
    stale = tree / "src" / "holdfast" / "core" / f"gone{suffix}"
    stale.write_bytes(b"of an earlier module")
    extra = tree / "src" / "holdfast" / "core" / "extra.py"
    extra.write_text("X = 1\n")
    run(sys.executable, "-m", "tools.compile", where=tree)
    assert not stale.exists()
    assert extra.with_name(f"extra{suffix}").exists()
    extra.unlink()
    run(sys.executable, "-m", "tools.compile", where=tree)
    assert not extra.with_name(f"extra{suffix}").exists()


def no_compiler(tmp_path: Path) -> str:
    """A PATH with what a small machine has: a shell and its tools, but nothing that compiles."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "bash", "env", "cat", "ls", "uname", "mkdir", "rm"):
        if found := shutil.which(name):
            (folder / name).symlink_to(found)
    return str(folder)


def installed(tmp_path: Path, what: Sequence[str | Path], where: Path, **more: str) -> Path:
    """An environment with nothing but this; its Python."""
    python = tmp_path / "env" / "bin" / "python"
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "env", where=where)
    run(UV, "pip", "install", "--python", python, "--constraint", ROOT / "constraints.txt", *what, where=where, **more)
    return python


def test_the_wheel_and_the_archive_of_make_dist(tree: Path, tmp_path: Path) -> None:
    """The archive is made of the tree, the wheel of the archive, and the wheel needs no compiler to run compiled."""
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path / "dist", tree, where=tmp_path,
        HOLDFAST_COMPILE="1")
    (archive,) = (tmp_path / "dist").glob("*.tar.gz")
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with tarfile.open(archive) as names:
        inside = {name.partition("/")[2] for name in names.getnames()}
    assert {"tools/compile.py", "setup.py", "src/holdfast/core/acks.py", "src/holdfast/shell/native.pxd"} <= inside
    assert not [name for name in inside if name.endswith((".so", ".o"))]
    python = installed(tmp_path, [wheel], tmp_path, PATH=no_compiler(tmp_path), CC="no-such-compiler")
    assert run(python.with_name("holdfast"), "--version", where=tmp_path).strip().endswith("(compiled)")
    assert run(python, "-c", README_SNIPPET, where=tmp_path) == "hello\n"
    assert (report()["compiled"], report()["kept"]) >= (0, 100)


def test_pip_install_of_the_sources_compiles_in_an_environment_of_its_own(tree: Path, tmp_path: Path) -> None:
    """As far as pip has what build-system.requires names, and no package of ours."""
    python = installed(tmp_path, [tree], tmp_path, HOLDFAST_COMPILE="1")
    assert run(python.with_name("holdfast"), "--version", where=tmp_path).strip().endswith("(compiled)")
    assert run(python, "-c", README_SNIPPET, where=tmp_path) == "hello\n"
