#!/usr/bin/env bash
# Prints the python of an environment with petastorm 0.13.1, which it sets up once.
#
# Usage: benches/petastorm.sh
# It needs pyarrow 10, so the environment is one of its own; pyspark, which it asks for and reading does not need, is left out.
set -euo pipefail

venv="${XDG_CACHE_HOME:-$HOME/.cache}/elasticrun/venv-data-petastorm"
needs=(pyarrow==10.0.1 'numpy<2' 'pandas<2.2' 'setuptools<80' dill diskcache fsspec future packaging psutil pyzmq six)
if [ "$(cat "$venv/.complete" 2>/dev/null)" != "${needs[*]}" ]; then
    rm -rf "$venv"
    "${PYTHON:-python3}" -m venv "$venv" >&2
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "${needs[@]}" >&2
    echo "${needs[*]}" >"$venv/.complete"
fi
"$venv/bin/python" -c 'import petastorm' 2>/dev/null ||
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps petastorm==0.13.1 >&2
echo "$venv/bin/python"
