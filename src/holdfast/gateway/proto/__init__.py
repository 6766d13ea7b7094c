"""The messages and services of holdfast.proto as Python, made by protoc and not committed.

An installed package has them beside this file, made by setup.py. In a source tree they are made at the first import,
in a folder of the user's own, by grpcio-tools, which is among the tools for development.
"""
from __future__ import annotations

import importlib
import sys
import tempfile
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "holdfast.proto"
NAMES = ("holdfast_pb2", "holdfast_pb2_grpc")


def make(into: Path) -> None:
    """Write the Python of the .proto into a folder. Raises where protoc cannot be had, or finds a fault."""
    from grpc_tools import protoc

    into.mkdir(parents=True, exist_ok=True)
    code = protoc.main([
        "protoc", f"--proto_path={HERE}", f"--python_out={into}", f"--grpc_python_out={into}", SOURCE.name,
    ])
    if code != 0:
        raise ImportError(f"protoc could not read {SOURCE.name}")


def load() -> tuple[ModuleType, ModuleType]:
    folder = HERE
    made = HERE / f"{NAMES[0]}.py"
    if not made.exists() or made.stat().st_mtime < SOURCE.stat().st_mtime:
        folder = Path(tempfile.mkdtemp(prefix="holdfast-proto-"))
        make(folder)
    sys.path.insert(0, str(folder))  # the made files import each other by bare names
    try:
        first, second = (importlib.import_module(name) for name in NAMES)
        return first, second
    finally:
        sys.path.remove(str(folder))


messages, services = load()
