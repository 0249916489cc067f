#!/usr/bin/env bash
# The python of the environment with torch (CPU, gloo) that the benchmarks compare against: that of the Python tests.
#
# Prints its path as the last line of stdout. The first call takes about a minute and a half and 6 GB.
set -euo pipefail
exec "$(dirname "$0")/../worker/python/venv.sh" test
