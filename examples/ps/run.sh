#!/usr/bin/env bash
# Runs a program of the parameter server on this machine: a scheduler, servers and workers.
#
#   examples/ps/run.sh SERVERS WORKERS PROGRAM [ARGUMENT...]
#
# DMLC_PS_ROOT_PORT is the port of the scheduler, 9091 by default. Ends with the status of the first process that fails, and ends
# the others then.
set -euo pipefail

if (($# < 3)); then
    echo "usage: $0 SERVERS WORKERS PROGRAM [ARGUMENT...]" >&2
    exit 2
fi
export DMLC_NUM_SERVER=$1 DMLC_NUM_WORKER=$2
export DMLC_PS_ROOT_URI=127.0.0.1 DMLC_PS_ROOT_PORT=${DMLC_PS_ROOT_PORT:-9091}
shift 2

pids=()
finish() {
    local status=$?
    for pid in "${pids[@]}"; do
        kill "$pid" 2>/dev/null || true
    done
    wait
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

start() {
    DMLC_ROLE=$1 "${@:2}" &
    pids+=($!)
}

start scheduler "$@"
for ((i = 0; i < DMLC_NUM_SERVER; i++)); do start server "$@"; done
for ((i = 0; i < DMLC_NUM_WORKER; i++)); do start worker "$@"; done
for _ in "${pids[@]}"; do
    wait -n
done
