#!/usr/bin/env bash
# Tests TensorFlow, Keras and JAX with the installed wheel, in real jobs of the binary that it contains.
#
# Usage: worker/python/test_frameworks.sh [arguments of pytest]
# The first run creates an environment of 2.7 GB under ${XDG_CACHE_HOME:-~/.cache}/elasticrun.
set -euo pipefail
cd "$(dirname "$0")"

python="$(./venv.sh frameworks)"
out="$(mktemp -d)"
trap 'rm -rf "$out"' EXIT
wheel="$(./build.sh dev "$out" | tail -1)"
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$wheel"

bin="$(dirname "$python")"
ELASTICRUN_BIN="$bin/elasticrun" PATH="$bin:$PATH" "$python" -m pytest tests/frameworks "$@"
