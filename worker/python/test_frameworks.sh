#!/usr/bin/env bash
# Tests TensorFlow, Keras and JAX with the wheel as a user gets it: installed, with real jobs of the binary in it.
#
# Usage: worker/python/test_frameworks.sh [arguments of pytest]
# The first run sets up an environment of its own under ${XDG_CACHE_HOME:-~/.cache}/elasticrun: 2.7 GB.
set -euo pipefail
cd "$(dirname "$0")"

python="$(./venv.sh frameworks)"
out="$(mktemp -d)"
trap 'rm -rf "$out"' EXIT
wheel="$(./build.sh dev "$out" | tail -1)"
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$wheel"

bin="$(dirname "$python")"
ELASTICRUN_BIN="$bin/elasticrun" PATH="$bin:$PATH" "$python" -m pytest tests/frameworks "$@"
