#!/usr/bin/env bash
# Tests what a seed and a shard mean beside petastorm 0.13.1, which gets an environment of its own.
#
# Usage: worker/python/test_petastorm.sh [arguments of pytest]
set -euo pipefail
cd "$(dirname "$0")"

petastorm="$(../../benches/petastorm.sh)"
python="$(./venv.sh test)"
out="$(mktemp -d)"
trap 'rm -rf "$out"' EXIT
wheel="$(./build.sh dev "$out" | tail -1)"
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$wheel"
ELASTICRUN_TEST_PETASTORM="$petastorm" "$python" -m pytest tests/petastorm "$@"
