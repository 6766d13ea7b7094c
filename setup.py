"""Compiles the machine at install (tools/compile.py), and installs all the same where that is impossible.

The .py files are installed beside the compiled ones, so HOLDFAST_PURE=1 at run time uses them, and HOLDFAST_PURE=1 at
install time compiles nothing. HOLDFAST_COMPILE=1 makes a failing compile fail the install; our own builds set it.
"""
from __future__ import annotations

import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

sys.path.insert(0, str(Path(__file__).resolve().parent))  # a build in an environment of its own does not have it
from tools import compile as compiling

SRC = Path("src")


def is_on(variable: str) -> bool:
    return os.environ.get(variable, "").strip().lower() not in ("", "0", "no", "false", "off")


def note(text: str) -> None:
    print(f"holdfast: {text}", file=sys.stderr, flush=True)


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


class Compile(build_ext):
    """tools/compile.py in place of setuptools' own loop, which compiles one file after the other."""

    written: tuple[Path, ...] = ()

    def run(self) -> None:
        into = SRC if self.inplace or self.editable_mode else Path(self.build_lib)
        try:
            self.written = tuple(compiling.build(into.resolve()))
        except compiling.CannotCompile as error:
            if is_on("HOLDFAST_COMPILE"):
                raise SystemExit(f"holdfast: {error}") from error
            note(f"installing the uncompiled form, which is slower but complete: {error}")
            compiling.remove(into.resolve())

    def get_outputs(self) -> list[str]:
        return [str(path) for path in self.written]

    def get_output_mapping(self) -> dict[str, str]:
        return {}


if not {"egg_info", "dist_info"} & set(sys.argv):
    make_messages()
# The extension's name says that there is one, which makes the wheel one for this platform; Compile knows the rest.
compiled = [] if is_on("HOLDFAST_PURE") else [Extension(f"{compiling.LIBRARY}__mypyc", [])]
setup(ext_modules=compiled, cmdclass={"build_ext": Compile})
