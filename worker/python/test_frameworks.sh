#!/usr/bin/env bash
# Tests frameworks with the installed wheel, in real jobs of the binary that it contains.
#
# Usage: worker/python/test_frameworks.sh [frameworks|frameworks_torch|composer] [arguments of pytest]
#   frameworks        TensorFlow, Keras and JAX; an environment of 2.7 GB
#   frameworks_torch  Lightning, Transformers and Accelerate; an environment of 6 GB
#   composer          Composer; an environment of 6 GB
# Without a name, the first two. The first run creates the environments under ${XDG_CACHE_HOME:-~/.cache}/elasticrun.
set -euo pipefail
cd "$(dirname "$0")"

case "${1:-}" in
    frameworks | frameworks_torch | composer) suites=("$1") && shift ;;
    *) suites=(frameworks frameworks_torch) ;;
esac

out="$(mktemp -d)"
trap 'rm -rf "$out"' EXIT
wheel="$(./build.sh dev "$out" | tail -1)"
for suite in "${suites[@]}"; do
    python="$(./venv.sh "$suite")"
    "$python" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$wheel"
    bin="$(dirname "$python")"
    ELASTICRUN_BIN="$bin/elasticrun" PATH="$bin:$PATH" "$python" -m pytest "tests/$suite" "$@"
done
