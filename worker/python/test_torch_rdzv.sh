#!/usr/bin/env bash
# Runs PyTorch's own tests of rendezvous back ends, stores and agents on the installed wheel.
#
# Usage: PYTORCH_SRC=DIR worker/python/test_torch_rdzv.sh [arguments of pytest]
# DIR is a checkout of PyTorch, of about the release that requirements/test.txt has. Without it the tests are skipped. The first
# run creates the environment of test.sh, and another of 5 MB.
set -euo pipefail
[ -z "${PYTORCH_SRC:-}" ] || PYTORCH_SRC="$(realpath -e "$PYTORCH_SRC")"
export PYTORCH_SRC="${PYTORCH_SRC:-}"
cd "$(dirname "$0")"

python="$(./venv.sh test)"
imported="$("$(./venv.sh pytorch)" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
out="$(mktemp -d)"
trap 'rm -rf "$out"' EXIT
wheel="$(./build.sh dev "$out" | tail -1)"
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$wheel"
PYTHONPATH="$imported" "$python" -m pytest tests/pytorch -rs "$@"
