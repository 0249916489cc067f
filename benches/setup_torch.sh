#!/usr/bin/env bash
# Prints the python of the environment with torch (CPU, gloo) for the benchmarks. The Python tests use the same one.
#
# The path is the last line of stdout. The first call takes about 90 seconds and 6 GB.
set -euo pipefail
exec "$(dirname "$0")/../worker/python/venv.sh" test
