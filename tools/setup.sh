#!/usr/bin/env bash
# Makes .venv ready: packages from constraints.txt, Holdfast itself as an editable install, compiled.
#
# Packages are installed only when pyproject.toml or constraints.txt says something new, so that a changed
# source needs no network: it is compiled again where it lies. `make setup` calls this only when something
# it depends on is newer than .venv/.ready.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

unset HOLDFAST_PURE  # this is about the compiled form
python="${PYTHON:-python3.11}"
asked_for() { cat pyproject.toml constraints.txt; }

if [ ! -x .venv/bin/python ]; then
    if ! command -v "$python" > /dev/null; then
        echo "setup: there is no $python here; name another (3.11 or newer): make setup PYTHON=python3" >&2
        exit 1
    fi
    echo "setup: making .venv with $python"
    "$python" -m venv .venv
fi

touch .venv/.begun  # what is edited from now on may not be compiled this time, and is newer than this
if ! cmp -s <(asked_for) .venv/.installed; then
    echo "setup: installing packages and compiling (some minutes the first time)"
    pip=(.venv/bin/python -m pip --disable-pip-version-check --quiet)
    # All of them first: with --no-build-isolation pip fetches nothing for the build itself.
    "${pip[@]}" install -r constraints.txt
    HOLDFAST_COMPILE=1 "${pip[@]}" install --no-build-isolation -e '.[dev]' -c constraints.txt
    asked_for > .venv/.installed
else
    echo "setup: compiling what has changed"
    mkdir -p build
    rm -f src/*__mypyc*.so  # of an earlier set of modules; its name changes with the set
    if ! HOLDFAST_COMPILE=1 .venv/bin/python setup.py --quiet build_ext --inplace > build/compile.log 2>&1; then
        cat build/compile.log >&2
        exit 1
    fi
fi
tools/assets.sh
mv .venv/.begun .venv/.ready
.venv/bin/holdfast --version
