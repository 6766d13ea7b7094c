"""The Tab key in a shell: the script is one that the shell takes, and what it asks for is answered."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.completion import SHELLS, VARIABLE
from holdfast.cli.main import main


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_its_script(shell: str) -> None:
    done = CliRunner().invoke(main, ["completion", shell])
    assert done.exit_code == 0 and f"{VARIABLE}={shell}_complete" in done.output


def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    """A real bash: the function that the script defines is called as the Tab key would."""
    program = tmp_path / "holdfast"
    call = 'from holdfast.cli.main import main; main(prog_name="holdfast")'
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{call}' \"$@\"\n")
    program.chmod(0o700)
    script = """
        eval "$(holdfast completion bash)"
        for words in "holdfast qu" "holdfast node --po"; do
            COMP_WORDS=($words); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
            _holdfast_completion holdfast
            echo "${COMPREPLY[@]}"
        done
    """
    done = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, timeout=60,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    assert done.stdout.splitlines() == ["queues", "--port"], done.stderr
