#!/usr/bin/env bash
# From the kill of a worker to the survivors' next committed step, beside a raw gloo in the same run.
# usage: benches/recovery.sh [--trials N]
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --locked --release -q -p elasticrun -p elasticrun-benches --bin elasticrun --bin bench_recovery
python=$(benches/setup_torch.sh | tail -1) || python=
exec "${CARGO_TARGET_DIR:-target}/release/bench_recovery" ${python:+--python "$python"} "$@"
