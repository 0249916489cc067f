#!/usr/bin/env bash
# From the SIGKILL of one of 4 and of 8 torch workers to the next committed step, beside torchrun.
#
# Usage: benches/recovery_torch.sh [--trials N] [--ranks 4,8] [--frameworks elasticrun,torchrun]
# Builds the wheel in release mode, installs it in the environment of the tests, and prints a table; the last
# line is JSON. 50 trials of each, the default, take about 25 minutes on two cores: torchrun starts all workers
# anew each time.
set -euo pipefail
cd "$(dirname "$0")/.."

python="$(worker/python/venv.sh test)"
out="$(mktemp -d)"
trap 'rm -rf "$out"' EXIT
wheel="$(worker/python/build.sh release "$out" | tail -1)"
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$wheel" >&2
"$python" benches/recovery_torch.py --elasticrun "$(dirname "$python")/elasticrun" "$@"
