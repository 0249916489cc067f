#!/usr/bin/env bash
# Tests our readers beside petastorm 0.13.1: what a seed and a shard mean, and what it has written with Spark. It gets
# environments of its own; the second needs Java.
#
# Usage: worker/python/test_petastorm.sh [arguments of pytest]
set -euo pipefail
cd "$(dirname "$0")"

petastorm="$(../../benches/petastorm.sh)"
spark="$(../../benches/petastorm.sh spark)"
python="$(./venv.sh test)"
out="$(mktemp -d)"
trap 'rm -rf "$out"' EXIT
wheel="$(./build.sh dev "$out" | tail -1)"
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$wheel"
ELASTICRUN_TEST_PETASTORM="$petastorm" ELASTICRUN_TEST_PETASTORM_SPARK="$spark" "$python" -m pytest tests/petastorm "$@"
