"""An untyped misuse is a type error: what mypy says about `misuse.txt`, line by line."""
from __future__ import annotations

import re
import shutil
from pathlib import Path

from mypy import api

ROOT = Path(__file__).resolve().parents[3]
WANTED = re.compile(r"# E: (.*)$")
SAID = re.compile(r"^[^:]*:(\d+): error: (.*)$")


def test_misuse_of_the_public_interface_is_a_type_error(tmp_path: Path) -> None:
    program = tmp_path / "misuse.py"
    shutil.copy(Path(__file__).with_name("misuse.txt"), program)
    lines = program.read_text().splitlines()
    wanted = {n: found[1] for n, line in enumerate(lines, 1) if (found := WANTED.search(line))}
    output, faults, _ = api.run([
        "--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache"), "--hide-error-context",
        str(program),
    ])
    assert not faults
    said: dict[int, str] = {}
    for line in output.splitlines():
        if found := SAID.match(line):
            said[int(found[1])] = said.get(int(found[1]), "") + found[2]
    missing = {n: lines[n - 1] for n, words in wanted.items() if words not in said.get(n, "")}
    assert not missing, f"not an error, or another one: {missing}\n{output}"
    assert not {n: words for n, words in said.items() if n not in wanted}
