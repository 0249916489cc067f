#!/usr/bin/env bash
# Compares the readers with petastorm 0.13.1: the meaning of seeds and shards, and data sets that petastorm wrote with Spark.
# It creates separate environments; the second needs Java.
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
