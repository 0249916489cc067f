#!/usr/bin/env bash
# From the SIGKILL of a worker to the survivors' next committed step, beside gloo's destroy and init.
#
# Usage: benches/recovery.sh [--trials N] [--ranks N] [--modes wait,burn,rss] [--no-gloo]
# Builds what it measures in release mode, sets up torch once, and prints a table; the last line is JSON.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --locked --release -q -p elasticrun -p elasticrun-benches --bin elasticrun --bin bench_recovery
peer=()
if [[ " $* " != *" --no-gloo "* ]]; then
    if python="$(benches/setup_torch.sh)"; then
        peer=(--torch-python "$python")
    else
        echo "recovery: torch cannot be set up here: no peer" >&2
    fi
fi
exec "${CARGO_TARGET_DIR:-target}/release/bench_recovery" "${peer[@]}" "$@"
