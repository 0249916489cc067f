#!/usr/bin/env bash
# Measures the time from the SIGKILL of a worker to the survivors' next committed step, and gloo's destroy and init.
#
# Usage: benches/recovery.sh [--trials N] [--ranks N] [--modes wait,burn,rss] [--no-gloo]
# Builds in release mode, installs torch once, and prints a table. The last line of the output is JSON.
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
