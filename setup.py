"""Compiles the machine at install, and installs all the same where that is impossible.

mypyc turns core/ and wire/ (plain typed Python) into C; Cython does the same for the two modules that
talk to sockets. The .py files are installed beside the compiled ones, so HOLDFAST_PURE=1 at run time
uses them, and HOLDFAST_PURE=1 at install time compiles nothing.
"""
from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_ext import build_ext

SRC = Path("src")
# Plain Python that mypyc compiles as one unit, so that calls between these files are C calls.
COMPILED = ["core", "wire"]
# Interpreted on purpose: tables read at start, where compiling would gain nothing.
INTERPRETED = {"core/__init__.py", "core/commands/__init__.py", "wire/__init__.py"}
NATIVE = ["native", "native_links"]


def note(text: str) -> None:
    print(f"holdfast: {text}", file=sys.stderr, flush=True)


def extensions() -> list[Any]:
    if {"egg_info", "dist_info"} & set(sys.argv):
        return []  # only asked what the package is called
    if os.environ.get("HOLDFAST_PURE", "").lower() not in ("", "0", "no", "false", "off"):
        note("HOLDFAST_PURE is set: installing without compiling")
        return []
    try:
        from Cython.Build import cythonize
        from mypyc.build import mypycify
        from setuptools import Extension

        package = SRC / "holdfast"
        files = sorted(
            str(path)
            for folder in COMPILED
            for path in (package / folder).rglob("*.py")
            if path.relative_to(package).as_posix() not in INTERPRETED
        )
        optimise = os.environ.get("HOLDFAST_OPT", "3")
        flags = [f"-O{optimise}"]
        # The package around them is looked at as well, and what it imports is not there while pip builds: no matter.
        machine = mypycify(["--follow-imports=silent", *files], opt_level=optimise, debug_level="0")
        sockets = cythonize(
            [
                Extension(f"holdfast.shell.{name}", [str(package / f"shell/{name}.py")], extra_compile_args=flags)
                for name in NATIVE
            ],
            build_dir="build/cython",
            compiler_directives={"language_level": "3"},
        )
        return [*machine, *sockets]
    except (Exception, SystemExit) as error:  # mypyc ends with SystemExit on a type error
        if os.environ.get("HOLDFAST_COMPILE"):  # our own builds want to know, not to fall back
            raise
        note(f"cannot compile here ({error!r}); installing the uncompiled form, which is slower but complete")
        return []


def make_messages() -> None:
    """Python from the .proto of the gateway, beside it. Without protoc the gateway makes it when it starts."""
    folder = SRC / "holdfast" / "gateway" / "proto"
    try:
        from grpc_tools import protoc
    except ImportError:
        note("grpcio-tools is not there; the gateway's messages are made when it first starts, if it is there then")
        return
    outputs = [f"--python_out={folder}", f"--grpc_python_out={folder}"]
    protoc.main(["protoc", f"--proto_path={folder}", *outputs, "holdfast.proto"])


class BuildOrFallBack(build_ext):
    """A missing or failing C compiler leaves the uncompiled form, with a note, in place of a failed install."""

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:
            if os.environ.get("HOLDFAST_COMPILE"):
                raise
            note(f"no working C compiler ({error}); installing the uncompiled form, which is slower but complete")
            for extension in self.extensions:
                for name in (self.get_ext_fullpath(extension.name), self.get_ext_filename(extension.name)):
                    Path(name).unlink(missing_ok=True)
            self.extensions = []


if not {"egg_info", "dist_info"} & set(sys.argv):
    make_messages()
setup(ext_modules=extensions(), cmdclass={"build_ext": BuildOrFallBack})
