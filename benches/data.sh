#!/usr/bin/env bash
# Compares the reader of data sets with pyarrow and petastorm: processor time per row, rows per second, memory. And batches for training
# with those of torch's DataLoader, MosaicML Streaming, Hugging Face datasets, and pyarrow with NumPy.
#
# Usage: benches/data.sh [--part reader|loaders] [--rows N] [--trials N] [--baseline BUILD]
# By default both parts run. --rows, --trials and --baseline are for the part `reader`.
# BUILD is another build, which is measured beside this one in alternation: the program `bench_data` of another checkout, a wheel,
# or a directory with the installed package. For the last two the wheel of this tree is built, and both are read from Python.
# Installs each peer once, in an environment of its own: petastorm 0.13.1 needs pyarrow 10, its loaders need torch, and the loaders of
# torch, MosaicML and Hugging Face share one. Writes the data sets into a temporary directory (2.4 GB). The last line of the output is
# JSON.
set -euo pipefail

options=()
baseline= kind= part=
while [ $# -gt 0 ]; do
    if [ "$1" = --part ]; then
        part="${2:-}"
        if [ "$part" != reader ] && [ "$part" != loaders ]; then
            echo "data: --part $part: expected reader or loaders" >&2
            exit 2
        fi
        shift 2
        continue
    fi
    if [ "$1" != --baseline ]; then
        options+=("$1")
        shift
        continue
    fi
    baseline="$(realpath -m "${2:-}")"
    if [[ "$baseline" = *.whl && -f "$baseline" ]]; then
        kind=wheel
    elif [ -f "$baseline" ] && [ -x "$baseline" ]; then
        kind=program
    elif [ -d "$baseline/elasticrun" ]; then
        kind=directory
    else
        echo "data: --baseline ${2:-}: expected the program bench_data, a wheel, or a directory with the package elasticrun" >&2
        exit 2
    fi
    shift 2
done
cd "$(dirname "$0")/.."

cache="${XDG_CACHE_HOME:-$HOME/.cache}/elasticrun"
mkdir -p "$cache"

# environment NAME PACKAGE...: prints the python of a virtual environment with these packages.
environment() {
    local venv="$cache/venv-$1"
    if [ "$(cat "$venv/.complete" 2>/dev/null)" != "${*:2}" ]; then
        rm -rf "$venv"
        "${PYTHON:-python3}" -m venv "$venv" >&2
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "${@:2}" >&2 || return
        echo "${*:2}" >"$venv/.complete"
    fi
    echo "$venv/bin/python"
}

scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
# package WHEEL DIRECTORY: unpacks a wheel and prints where.
package() {
    "${PYTHON:-python3}" -m zipfile -e "$1" "$2"
    echo "$2"
}
# build: makes $ours, the directory with the package of this tree.
ours="$scratch/ours"
build() {
    local wheel
    [ ! -d "$ours" ] || return 0
    wheel="$(worker/python/build.sh release "$scratch")"
    package "$wheel" "$ours" >/dev/null
}

if [ "$part" != reader ]; then
    loaders="$(worker/python/venv.sh loaders)"
    report=()
    [ "$part" = loaders ] || report=(--out "$scratch/loaders.json")
    build
    "$loaders" benches/python/loaders.py "$ours" "${report[@]}"
    [ "$part" != loaders ] || exit 0
    options+=(--with "$scratch/loaders.json")
fi

cargo build --locked --release -q -p elasticrun-benches --bin bench_data --bin bench_repartition
python="$(environment data-pyarrow numpy pyarrow)"
peer=()
if petastorm="$(benches/petastorm.sh)"; then
    torch="$("$(worker/python/venv.sh test)" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
    peer=(--petastorm-python "$petastorm" --torch-site "$torch")
else
    echo "data: petastorm cannot be set up here: no peer" >&2
fi
programs="${CARGO_TARGET_DIR:-target}/release"

case "$kind" in
program) options+=(--baseline "$baseline") ;;
wheel) baseline="$(package "$baseline" "$scratch/before")" ;;
esac
if [[ "$kind" = wheel || "$kind" = directory ]]; then
    build
    options+=(--packages "$ours" "$baseline")
fi
"$python" benches/python/data.py "$programs/bench_data" "$programs/bench_repartition" "${peer[@]}" "${options[@]}"
