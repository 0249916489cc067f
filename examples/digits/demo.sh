#!/usr/bin/env bash
# The elastic job in half a minute: trains the digits on two local hosts, adds a third one and kills a worker
# while it runs, and proves afterwards that every row was used exactly once in every epoch.
#
#   examples/digits/demo.sh [directory of elasticrun, elasticrun-digits and digits-audit]
#
# localhost, 127.0.0.1 and 127.0.0.2 are three hosts on this machine.
set -euo pipefail

bin=${1:-$(dirname "$0")/../../target/debug}
epochs=30
dir=$(mktemp -d "${TMPDIR:-/tmp}/elasticrun-demo.XXXXXX")
hosts=$dir/hosts
discover=$dir/discover.sh
audit=$dir/audit
output=$dir/output
began=$(date +%s%N)
driver=

say() { printf '%6.1f s  demo: %s\n' "$((($(date +%s%N) - began) / 1000000))e-3" "$*"; }

fail() {
    say "FAILED: $*"
    exit 1
}

finish() {
    local status=$?
    if [[ -n $driver ]] && kill -0 "$driver" 2>/dev/null; then
        kill "$driver" && wait "$driver" || true
    fi
    rm -rf "$dir"
    exit "$status"
}
trap finish EXIT

# Follows the output until a line matches; fails when the job ends before, or after half a minute.
await() {
    local what=$1 pattern=$2 deadline=$((SECONDS + 30))
    until grep -Eq "$pattern" "$output"; do
        kill -0 "$driver" 2>/dev/null || fail "the job ended before $what"
        ((SECONDS < deadline)) || fail "waited too long for $what"
        sleep 0.05
    done
}

printf 'localhost:2\n127.0.0.1:2\n' >"$hosts"
printf '#!/bin/sh\ncat "%s"\n' "$hosts" >"$discover"
chmod +x "$discover"
mkdir "$audit"
: >"$output"

say "4 workers on localhost:2 and 127.0.0.1:2, at least 2, at most 6"
"$bin/elasticrun" -np 4 --min-np 2 --max-np 6 \
    --host-discovery-script "$discover" --discovery-interval 200ms --last-call 200ms \
    --failure-domain slot --blacklist-cooldown-range 0 1s \
    "$bin/elasticrun-digits" --epochs "$epochs" --step-delay 10 --audit "$audit" \
    > >(tee -a "$output") 2>&1 &
driver=$!

await "the third epoch" 'epoch 3:'
say "adds host 127.0.0.2:2"
echo '127.0.0.2:2' >>"$hosts"

await "an epoch with 6 workers" 'epoch [0-9]+: .* 6 workers'
victim=$(cat "$audit"/localhost-1-*.txt | awk '$1 == "start" { pid = $7 } END { print pid }')
say "kills process $victim, a worker of localhost"
kill -KILL "$victim"

wait "$driver" && status=0 || status=$?
driver=
((status == 0)) || fail "the job ended with exit code $status"
say "the job is done; its rows:"
"$bin/digits-audit" "$audit" --epochs "$epochs"

accuracy=$(sed -n 's/.*test accuracy //p' "$output" | tail -1)
say "test accuracy ${accuracy:-unknown}"
awk -v accuracy="${accuracy:-0}" 'BEGIN { exit !(accuracy >= 0.9) }' || fail "a test accuracy below 0.9"
rounds=$(cat "$audit"/*.txt | awk '$1 == "start" { print $3 }' | sort -u | wc -l)
((rounds >= 3)) || fail "only $rounds rounds: the host or the death was not noticed"
say "done: every row once in every epoch, through a new host and a death"
