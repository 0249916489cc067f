#!/usr/bin/env bash
# Creates the virtual environment of a list of requirements, once, outside of the clone.
#
# Usage: worker/python/venv.sh test|frameworks|frameworks_torch|composer|horovod|loaders|pytorch|spark35|spark4|writers|wheel|portable|lint
# Prints the path of its python as the last line of stdout; all other output goes to stderr. Repeated and concurrent calls are
# safe: an environment that matches its list is not changed.
# The lists `test`, `frameworks_torch`, `composer` and `loaders` contain torch. Each takes about a minute and a half, and 6 GB under
# ${XDG_CACHE_HOME:-~/.cache}/elasticrun.
set -euo pipefail

list="$(dirname "$0")/requirements/${1:?which list: test, frameworks, frameworks_torch, composer, horovod, loaders, pytorch, spark35, spark4, writers, wheel, portable or lint}.txt"
root="${XDG_CACHE_HOME:-$HOME/.cache}/elasticrun"
venv="$root/venv-$1"
wanted="$("${PYTHON:-python3}" -V) $(sha256sum <"$list")"
stamp="$venv/.complete"

# pip treats packages on PYTHONPATH as installed.
unset PYTHONPATH
mkdir -p "$root"
exec 9>"$venv.lock"
flock 9

if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
    echo "setting up $list in $venv (once)" >&2
    rm -rf "$venv"
    "${PYTHON:-python3}" -m venv "$venv" >&2
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir -r "$list" >&2
    echo "$wanted" >"$stamp"
fi
echo "$venv/bin/python"
