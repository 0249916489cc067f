#!/usr/bin/env bash
# Runs Horovod's elastic examples and scenarios on the installed wheel, with one changed line in each.
#
# Usage: HOROVOD_SRC=DIR worker/python/test_horovod.sh [arguments of pytest]
# DIR is a checkout of Horovod; without it the tests are skipped. The first run creates environments under
# ${XDG_CACHE_HOME:-~/.cache}/elasticrun: those of test.sh and test_frameworks.sh, and another of 200 MB.
set -euo pipefail
[ -z "${HOROVOD_SRC:-}" ] || HOROVOD_SRC="$(realpath -e "$HOROVOD_SRC")"
export HOROVOD_SRC="${HOROVOD_SRC:-}"
cd "$(dirname "$0")"

python="$(./venv.sh test)"
frameworks="$(./venv.sh frameworks)"
imported="$("$(./venv.sh horovod)" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
out="$(mktemp -d)"
trap 'rm -rf "$out"' EXIT
wheel="$(./build.sh dev "$out" | tail -1)"
for each in "$python" "$frameworks"; do
    "$each" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$wheel"
done

export ELASTICRUN_BIN="${python%/*}/elasticrun" FRAMEWORKS_PYTHON="$frameworks" PYTHONPATH="$imported"
"$python" -m pytest tests/horovod -rs "$@"
