#!/usr/bin/env bash
# Makes the virtual environment with torch (CPU, gloo) that the benchmarks compare against.
#
# Usage: benches/setup_torch.sh
# Prints the path of its python as the last line of stdout; everything else goes to stderr. Safe to
# call again and from several places at once: it does nothing when the environment is complete.
# Needs a Python with the venv module and the package index that pip is set up for. The first call
# takes about a minute and a half and 6 GB under ${XDG_CACHE_HOME:-~/.cache}/elasticrun.
set -euo pipefail

root="${XDG_CACHE_HOME:-$HOME/.cache}/elasticrun"
venv="$root/venv-torch"
wanted='torch==2.15.*'
stamp="$venv/.complete"

mkdir -p "$root"
exec 9>"$root/venv-torch.lock"
flock 9

if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
    echo "setting up $wanted in $venv (once)" >&2
    rm -rf "$venv"
    "${PYTHON:-python3}" -m venv "$venv" >&2
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir "$wanted" numpy >&2
    "$venv/bin/python" -c 'import torch, torch.distributed as d; assert d.is_gloo_available(), torch.__version__' >&2
    echo "$wanted" >"$stamp"
fi
echo "$venv/bin/python"
