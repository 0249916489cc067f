#!/usr/bin/env bash
# Tests the installed wheel, with real jobs of the binary that it contains.
#
# Usage: worker/python/test.sh [arguments of pytest]
# Without arguments, several files are tested at once: most tests wait for processes most of the time.
set -euo pipefail
cd "$(dirname "$0")"

python="$(./venv.sh test)"
out="$(mktemp -d)"
trap 'rm -rf "$out"' EXIT
wheel="$(./build.sh dev "$out" | tail -1)"
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$wheel"

bin="$(dirname "$python")"
"$bin/mypy" --config-file pyproject.toml
"$bin/mypy" --config-file pyproject.toml ../../examples/python
"$bin/mypy" --config-file pyproject.toml ../../examples/ps
"$bin/stubtest" --mypy-config-file pyproject.toml --allowlist stubtest.txt elasticrun._native
[ $# -gt 0 ] || set -- -n auto --maxprocesses 4 --dist loadfile
ELASTICRUN_WHEEL="$wheel" ELASTICRUN_BIN="$bin/elasticrun" PATH="$bin:$PATH" "$python" -m pytest --durations=30 --durations-min=5 "$@"
