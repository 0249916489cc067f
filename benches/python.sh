#!/usr/bin/env bash
# Runs a benchmark of the Python package with the built wheel.
#
# Usage: [VENV=spark35] benches/python.sh SCRIPT [arguments]     (SCRIPT in benches/python)
# VENV names the list of requirements (worker/python/venv.sh). The default is that of the tests.
set -euo pipefail
cd "$(dirname "$0")/.."

script="benches/python/${1:?which script of benches/python}"
python="$(worker/python/venv.sh "${VENV:-test}")"
site="$(mktemp -d)"
trap 'rm -rf "$site"' EXIT
wheel="$(worker/python/build.sh release "$site/wheel" | tail -1)"
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --target "$site" "$wheel"
PYTHONPATH="$site" PATH="$site/bin:$PATH" ELASTICRUN_BIN="$site/bin/elasticrun" "$python" "$script" "${@:2}"
