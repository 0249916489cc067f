#!/usr/bin/env bash
# Makes the virtual environment of the stand-ins for AWS and Google Cloud, once, outside of the clone.
#
# Usage: discovery-plugins/cloud/tests/venv.sh
# Prints the path of its python as the last line of stdout; everything else goes to stderr. Safe to call again and
# from several places at once: it does nothing when the environment is what requirements.txt asks for.
set -euo pipefail

list="$(dirname "$0")/requirements.txt"
root="${XDG_CACHE_HOME:-$HOME/.cache}/elasticrun"
venv="$root/venv-cloud"
wanted="$("${PYTHON:-python3}" -V) $(sha256sum <"$list")"
stamp="$venv/.complete"

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
