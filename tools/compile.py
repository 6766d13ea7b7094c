"""Compiles what is fast: core/ and wire/ by mypyc, the loop over sockets by Cython. `python -m tools.compile`.

    python -m tools.compile              compile into src/, beside the sources; only what changed since the last time
    python tools/compile.py --into DIR   the same into another folder, as setup.py does for a wheel

HOLDFAST_OBJECTS names a folder for what is kept between builds, build/compile if it is not set.

Three steps: generate C (mypyc looks at all modules at once, Cython at its two meanwhile), compile each C file in a
pool of one process a core, link. An object is kept under the hash of everything it was made from, and is used again
as long as that hash comes up. Two things are done to mypyc's C so that an edit changes the C of one module alone:

* A literal is known by a name made from its value. mypyc numbers the literals of all modules in one array, where a new
  string in one module renumbers those behind it in all others.
* Each file carries only the declarations that it uses. mypyc has one header for all modules, in which every new
  function would be news to every file. A declaration left out by mistake fails the compile; it cannot make a stale
  object pass for a fresh one.

setup.py calls `build()`, so `make`, `pip install .`, wheels and the image compile the same way. The tools are pinned
exactly (pyproject.toml, build-system): mypyc's internals are used here.
"""
from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("src/holdfast")
MACHINE = ("core", "wire")
"""Plain Python that mypyc compiles as one unit, so that calls between these files are C calls."""
INTERPRETED = frozenset({"core/__init__.py", "core/commands/__init__.py", "wire/__init__.py"})
"""Left alone on purpose: tables that are read at start, where compiling would gain nothing."""
SOCKETS = ("native", "native_links")
"""The modules of shell/ that Cython compiles."""
LIBRARY = "holdfast"
"""mypyc's name for the unit; the shared library is holdfast__mypyc."""
OPTIMISE = "2"
"""At run time as fast as 3 over one big file (docs/adr/0022), with a third of the compile time."""
KEEP_UNUSED_S = 14 * 86400.0
"""An object that no build has used for so long is deleted."""
NOTHING_TO_COMPILE_WITH = 3
"""How main ends without a compiler: Holdfast then runs uncompiled."""
SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX"))

Progress = Callable[[str, int, int], None]
"""Called with the step's name, how much of it is done, and how much there is."""


class CannotCompile(Exception):
    """Why there is no compiled form: no tool, no compiler, or an error in a source."""


class NoCompiler(CannotCompile):
    """There is nothing to compile with: no C compiler, or none of the packages that write C."""


@dataclass(frozen=True)
class Unit:
    """A C file with all that it uses of ours, and how it is compiled."""

    name: str
    text: str
    is_machine: bool = True
    """With mypyc's flags; else with Cython's."""
    runs_once: bool = False
    """It only fills tables at start: optimising that costs more than it can ever save."""


# -- C from Python ----------------------------------------------------------------------------------------


def machine_sources() -> list[Path]:
    return sorted(
        path
        for folder in MACHINE
        for path in (PACKAGE / folder).rglob("*.py")
        if path.relative_to(PACKAGE).as_posix() not in INTERPRETED
    )


def module_name(source: Path) -> str:
    return ".".join(source.with_suffix("").parts[1:])


def generate_machine() -> tuple[dict[str, str], dict[int, str], list[str]]:
    """What mypyc writes: files by name, the name of each numbered literal, the run-time files that it calls."""
    from mypy.errors import CompileError
    from mypy.fscache import FileSystemCache
    from mypyc import build
    from mypyc.codegen import emitmodule
    from mypyc.codegen.literals import Literals
    from mypyc.common import RUNTIME_C_FILES
    from mypyc.errors import Errors
    from mypyc.options import CompilerOptions

    how = CompilerOptions(multi_file=True, target_dir="build", group_name=LIBRARY)
    # What is not compiled here need not be looked at: core and wire import only each other.
    words = ["--follow-imports=skip", *map(str, machine_sources())]
    try:
        sources, everything, options = build.get_mypy_config(words, None, how, FileSystemCache())
        groups = build.construct_groups(sources, False, True, LIBRARY)
        checked = emitmodule.parse_and_typecheck(everything, options, how, groups, FileSystemCache())
        try:
            errors = Errors(options)
            modules, files, _ = emitmodule.compile_modules_to_c(
                checked, compiler_options=how, errors=errors, groups=groups
            )
            wrong = [*checked.errors, *(errors.new_messages() if errors.num_errors else [])]
        finally:
            checked.manager.metastore.close()
    except CompileError as error:
        wrong = error.messages
    except SystemExit as error:  # mypy's answer to bad options
        raise CannotCompile(f"mypyc stopped: {error}") from error
    if wrong:
        raise CannotCompile("\n".join(wrong))
    needed = sorted(emitmodule.collect_source_dependencies(modules), key=lambda each: each.path)
    literals = Literals()  # in the order in which mypyc collected them
    for source in groups[0][0]:
        for function in modules[source.module].functions:
            emitmodule.collect_literals(function, literals)
    return (
        {name: text for group in files for name, text in group},
        name_literals(literals),
        [*RUNTIME_C_FILES, *(each.path for each in needed)],
    )


def name_literals(literals: Any) -> dict[int, str]:
    """A name for each literal's place in the array, made from its type and value alone."""
    kinds = ("str", "bytes", "int", "float", "complex", "tuple", "frozenset")
    return {
        literals.literal_index(value): f"lit_{digest(kind, spell(value))[:20]}"
        for kind in kinds
        for value in getattr(literals, f"{kind}_literals")
    }


def spell(value: object) -> str:
    """Like repr, but the same each time also for sets."""
    if isinstance(value, frozenset):
        return f"frozenset({sorted(map(spell, value))})"
    if isinstance(value, tuple):
        return f"({', '.join(map(spell, value))},)"
    return f"{type(value).__name__} {value!r}"


NUMBERED = re.compile(r"CPyStatics\[(\d+)\]")
STATICS_READY = re.compile(r"(if \(CPyStatics_Initialize\(CPyStatics, .*?\) < 0\) \{\s*return -1;\s*\})", re.DOTALL)
WORD = re.compile(r"[A-Za-z_]\w*")
DECLARED = re.compile(r"\b(\w+)\s*(?:\(|\[|;)")
STRUCT = re.compile(
    r"(?:^#ifndef MYPYC_DECLARED_\w+\n#define \w+\n)?^typedef struct \w* ?\{$.*?^\} (\w+);$(?:\n#endif$)?",
    re.MULTILINE | re.DOTALL,
)
"""With the guard around those that mypyc's run-time library may have declared already."""


def units_of_machine(files: dict[str, str], literals: dict[int, str], run_time: Sequence[str]) -> list[Unit]:
    """mypyc's files, each with just the declarations that it uses, and its run-time library as one more."""
    pool = Declarations(files[f"__native_internal_{LIBRARY}.h"], files[f"__native_{LIBRARY}.h"])
    units = []
    for name, text in files.items():
        if not name.endswith(".c"):
            continue
        body = re.sub(r'^#include "__native_(internal_)?\w+\.h"\n', "", text, flags=re.MULTILINE)
        is_start = name == f"__native_{LIBRARY}.c"
        used = {literals[int(number)] for number in NUMBERED.findall(body) if int(number) in literals}
        body = NUMBERED.sub(lambda found: literals.get(int(found[1]), found[0]), body)
        if is_start:
            filled = "".join(f"\n    {each} = CPyStatics[{place}];" for place, each in sorted(literals.items()))
            body, times = STATICS_READY.subn(lambda found, filled=filled: found[1] + filled, body)
            if times != 1:
                raise CannotCompile("mypyc fills its literals in another way than is known here")
            mine = "".join(f"PyObject *{each};\n" for each in sorted(literals.values()))
        else:
            mine = "".join(f"extern PyObject *{each};\n" for each in sorted(used))
        units.append(Unit(name, f"{pool.used_by(body)}\n{mine}\n{body}", runs_once=is_start))
    units.append(Unit("runtime.c", "".join(f"#include <{name}>\n" for name in run_time)))
    return units


class Declarations:
    """mypyc's two headers in pieces: what is always needed, and pieces that declare one name each."""

    def __init__(self, internal: str, public: str) -> None:
        self.always: list[str] = []
        self.pieces: list[str] = []
        self.declares: dict[str, list[int]] = {}
        self.words: list[frozenset[str]] = []
        rest = STRUCT.sub(lambda found: self.add(found[1], found[0]), self.without_guards(public))
        for line in [*rest.splitlines(), *self.without_guards(internal).splitlines()]:
            name = DECLARED.search(line)
            if not line.strip():
                continue
            if line.startswith("extern ") and line.endswith(";") and name is not None and "(*" not in line:
                self.add(name[1], line)
            else:
                self.always.append(line)

    @staticmethod
    def without_guards(header: str) -> str:
        header = re.sub(r"\A#ifndef \w+\n#define \w+\n", "", header)
        header = re.sub(r"^#endif\s*\Z", "", header, flags=re.MULTILINE)
        return re.sub(r'^#include "__native\w*\.h"\n', "", header, flags=re.MULTILINE)

    def add(self, name: str, text: str) -> str:
        self.declares.setdefault(name, []).append(len(self.pieces))
        self.pieces.append(text)
        self.words.append(frozenset(WORD.findall(text)))
        return ""

    def used_by(self, text: str) -> str:
        """The declarations of all names in the text, and of all names in those, in their order."""
        chosen: set[int] = set()
        look = {*WORD.findall(text), *(word for line in self.always for word in WORD.findall(line))}
        while look:
            new = {piece for word in look for piece in self.declares.get(word, ())} - chosen
            chosen |= new
            look = {word for piece in new for word in self.words[piece]}
        return "\n".join([*self.always, *(self.pieces[each] for each in sorted(chosen))])


def shim(module: str) -> str:
    """C for the file that Python finds under a module's name; the code itself is in the one shared library."""
    from mypyc.build import include_dir
    from mypyc.common import IS_FREE_THREADED, shared_lib_name
    from mypyc.namegen import exported_name

    template = "module_shim_no_gil_multiphase.tmpl" if IS_FREE_THREADED else "module_shim.tmpl"
    return (Path(include_dir()) / template).read_text().format(
        modname=module.rpartition(".")[2], libname=shared_lib_name(LIBRARY), full_modname=exported_name(module)
    )


def generate_sockets(name: str, folder: Path) -> Unit:
    """What Cython writes for a module, made anew when the module or its declarations changed."""
    source = PACKAGE / "shell" / f"{name}.py"
    key = digest(source.read_bytes(), *(path.read_bytes() for path in sorted(PACKAGE.rglob("*.pxd"))), tool_versions())
    written = folder / f"{name}-{key[:20]}.c"
    if not written.exists():
        unfinished = written.with_suffix(f".{os.getpid()}.c")
        done = subprocess.run(
            [sys.executable, "-m", "cython", "-3", "--module-name", f"holdfast.shell.{name}", str(source), "-o",
             str(unfinished)],
            capture_output=True, text=True,
        )
        if done.returncode:
            raise CannotCompile(done.stdout + done.stderr)
        unfinished.replace(written)
    os.utime(written)
    return Unit(f"{name}.c", written.read_text(), is_machine=False)


# -- objects from C ---------------------------------------------------------------------------------------


class Compiler:
    """The C compiler that Python was built with, or the one that CC, CFLAGS and LDFLAGS name."""

    def __init__(self, folder: Path) -> None:
        from setuptools._distutils import ccompiler
        from setuptools._distutils import sysconfig as build_settings

        self.folder = folder
        found: Any = ccompiler.new_compiler()
        build_settings.customize_compiler(found)
        if found.compiler_type != "unix":
            raise NoCompiler(f"this is not for compilers of type {found.compiler_type}")
        self.command: list[str] = list(found.compiler_so)
        self.linker: list[str] = list(found.linker_so)
        try:
            version = subprocess.run([self.command[0], "--version"], capture_output=True, text=True).stdout
        except OSError as error:
            raise NoCompiler(f"there is no C compiler ({self.command[0]})") from error
        self.identity = f"{version} {sys.version} {tool_versions()} {sysconfig.get_platform()}"
        self.compiled = self.kept = 0

    def flags(self, unit: Unit) -> list[str]:
        from mypyc.build import get_cflags, include_dir

        include = [f"-I{sysconfig.get_path(each)}" for each in ("include", "platinclude")]
        optimise = "0" if unit.runs_once else OPTIMISE
        if not unit.is_machine:
            return [*include, f"-O{optimise}", "-g0"]
        # Hidden: a call from one file into another goes straight there, not through a table for others to step in.
        ours = get_cflags(opt_level=optimise, debug_level="0", multi_file=True)
        run_time = Path(include_dir())
        folders = [run_time, *(each for each in sorted(run_time.iterdir()) if each.is_dir())]
        return [*include, *ours, "-fvisibility=hidden", *(f"-I{each}" for each in folders)]

    def object_of(self, unit: Unit) -> Path:
        """The object of this text, compiled now or at any time before."""
        flags = self.flags(unit)
        # Where headers are is of no matter: which ones they are, the versions of Python and mypy say.
        matters = [word for word in (*self.command, *flags) if not word.startswith("-I")]
        key = digest(unit.text, " ".join(matters), self.identity)
        made = self.folder / f"{key}.o"
        if made.exists():
            os.utime(made)
            self.kept += 1
            return made
        source = made.with_suffix(".c")
        source.write_text(unit.text)
        unfinished = made.with_suffix(f".{os.getpid()}.tmp")
        call(unit.name, [*self.command, *flags, "-c", str(source), "-o", str(unfinished)])
        unfinished.replace(made)
        source.unlink()
        self.compiled += 1
        return made

    def library_of(self, objects: Sequence[Path], name: str) -> Path:
        key = digest(*(each.name for each in objects), " ".join(self.linker), self.identity)
        made = self.folder / f"{key}.so"
        if made.exists():
            os.utime(made)
        else:
            unfinished = made.with_suffix(f".{os.getpid()}.tmp")
            call(name, [*self.linker, *map(str, objects), "-o", str(unfinished)])
            unfinished.replace(made)
        return made


def call(what: str, words: Sequence[str]) -> None:
    try:
        done = subprocess.run(words, capture_output=True, text=True)
    except OSError as error:
        raise NoCompiler(f"there is no C compiler ({words[0]})") from error
    if done.returncode:
        raise CannotCompile(f"{what}: {' '.join(words[:1])} ended with {done.returncode}\n{done.stderr.strip()}")


# -- the whole --------------------------------------------------------------------------------------------


def digest(*pieces: str | bytes) -> str:
    found = hashlib.sha256()
    for piece in pieces:
        data = piece.encode() if isinstance(piece, str) else piece
        found.update(len(data).to_bytes(8, "little") + data)
    return found.hexdigest()


def tool_versions() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return " ".join(f"{tool} {version(tool)}" for tool in ("mypy", "cython", "setuptools"))
    except PackageNotFoundError as error:
        raise NoCompiler(f"{error.name} is not installed; it is needed to compile") from error


def inputs() -> str:
    """A digest of everything that a compiled file depends on but for the compiler itself."""
    found = [*machine_sources(), *(PACKAGE / "shell" / f"{name}.py" for name in SOCKETS), *PACKAGE.rglob("*.pxd")]
    texts = [piece for path in sorted(found) for piece in (str(path).encode(), path.read_bytes())]
    settings = [os.environ.get(name, "") for name in ("CC", "CFLAGS", "LDFLAGS")]
    return digest(*texts, Path(__file__).read_bytes(), tool_versions(), sys.version, *settings)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Two builds in one tree would take each other's files away: the second waits."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def silent(step: str, done: int, total: int) -> None:
    pass


def build(into: Path, progress: Progress = silent) -> list[Path]:
    """Compile into a folder that is laid out like src/. Returns the files; what is there already is left as it is."""
    folder = Path(os.environ.get("HOLDFAST_OBJECTS") or ROOT / "build" / "compile").resolve()
    with contextlib.chdir(ROOT), alone(folder):
        return compile_all(into, folder, progress)


def compile_all(into: Path, folder: Path, progress: Progress) -> list[Path]:
    stamp = stamp_of(into, folder)
    wanted = inputs()
    with contextlib.suppress(OSError, ValueError):
        last = json.loads(stamp.read_text())
        names = [into / name for name in last["files"]]
        if last["inputs"] == wanted and all(path.exists() for path in names):
            return names
    start = time.monotonic()
    compiler = Compiler(folder)
    modules = [module_name(path) for path in machine_sources()]
    with ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        progress("generate", 0, 1)
        sockets = [pool.submit(generate_sockets, name, folder) for name in SOCKETS]
        units = units_of_machine(*generate_machine())
        generated = time.monotonic()
        waiting: dict[Future[Path], str] = {}
        for unit in sorted([each.result() for each in sockets] + units, key=lambda each: -len(each.text)):
            waiting[pool.submit(compiler.object_of, unit)] = unit.name
        for module in modules:
            waiting[pool.submit(compiler.object_of, Unit(f"shim of {module}", shim(module), runs_once=True))] = module
        made: dict[str, Path] = {}
        try:
            for number, each in enumerate(as_completed(waiting)):
                made[waiting[each]] = each.result()
                progress("compile", number + 1, len(waiting))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
        compiled = time.monotonic()
        progress("link", 0, 1)
        files = {f"{LIBRARY}__mypyc": compiler.library_of([made[unit.name] for unit in units], LIBRARY)}
        files |= {f"holdfast.shell.{name}": compiler.library_of([made[f"{name}.c"]], name) for name in SOCKETS}
        linked = {module: pool.submit(compiler.library_of, [made[module]], module) for module in modules}
        files |= {module: each.result() for module, each in linked.items()}
    written = put(files, into)
    stamp.write_text(json.dumps({"inputs": wanted, "files": [str(path.relative_to(into)) for path in written]}))
    own, children = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    report = {
        "generate_s": generated - start, "compile_s": compiled - generated, "link_s": time.monotonic() - compiled,
        "compiled": compiler.compiled, "kept": compiler.kept,
        "generate_mb": own / 1024, "compiler_mb": children / 1024,
    }
    (folder / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    forget_unused(folder)
    return written


def stamp_of(into: Path, folder: Path) -> Path:
    """What was compiled last into a folder, and from what. Not there itself: a wheel has no use for it."""
    return folder / f"into-{digest(str(into))[:20]}.json"


def put(files: dict[str, Path], into: Path) -> list[Path]:
    """Each library where Python looks for its module. What runs keeps the file it has; old ones of ours go."""
    written = []
    for module, library in sorted(files.items()):
        target = into / f"{module.replace('.', '/')}{SUFFIX}"
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_bytes() != library.read_bytes():
            unfinished = target.with_suffix(".tmp")
            shutil.copy2(library, unfinished)
            unfinished.replace(target)
        written.append(target)
    remove(into, keep=written)
    return written


def remove(into: Path, keep: Sequence[Path] = ()) -> None:
    """Delete compiled files of this Python: a stale one would be imported in place of its source."""
    ours = [*into.glob(f"*__mypyc{SUFFIX}"), *(into / "holdfast").rglob(f"*{SUFFIX}")]
    for path in set(ours) - set(keep):
        path.unlink()


def forget_unused(folder: Path) -> None:
    oldest = time.time() - KEEP_UNUSED_S
    for path in folder.iterdir():
        if path.suffix in (".o", ".so", ".c", ".tmp") and path.stat().st_mtime < oldest:
            path.unlink(missing_ok=True)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.compile", description="Compile Holdfast; only what changed.")
    parser.add_argument("--into", type=Path, default=ROOT / "src", metavar="DIR", help="where the files go (src)")
    chosen = parser.parse_args(words)
    try:
        build(chosen.into.resolve(), lambda step, done, total: print(f"{step} {done}/{total}", flush=True))
    except CannotCompile as error:
        print(f"compile: {error}", file=sys.stderr)
        if isinstance(error, NoCompiler):
            remove(chosen.into.resolve())  # of an earlier time: the sources may say something else by now
            return NOTHING_TO_COMPILE_WITH
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
