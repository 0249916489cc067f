#!/usr/bin/env bash
# Prints the python of an environment with petastorm 0.13.1. The first call creates the environment.
#
# Usage: benches/petastorm.sh [spark]
# petastorm needs pyarrow 10, so it has an environment of its own. pyspark and OpenCV, which only writing needs, are installed
# only for `spark`.
set -euo pipefail

needs=(pyarrow==10.0.1 'numpy<2' 'pandas<2.2' 'setuptools<80' dill diskcache fsspec future packaging psutil pyzmq six)
name=data-petastorm
if [ "${1:-}" = spark ]; then
    name=petastorm-writer
    needs+=('opencv-python-headless<4.11' 'pyspark==3.5.*')
fi
venv="${XDG_CACHE_HOME:-$HOME/.cache}/elasticrun/venv-$name"
if [ "$(cat "$venv/.complete" 2>/dev/null)" != "${needs[*]}" ]; then
    rm -rf "$venv"
    "${PYTHON:-python3}" -m venv "$venv" >&2
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "${needs[@]}" >&2
    echo "${needs[*]}" >"$venv/.complete"
fi
"$venv/bin/python" -c 'import petastorm' 2>/dev/null ||
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps petastorm==0.13.1 >&2
echo "$venv/bin/python"
