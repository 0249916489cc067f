#!/usr/bin/env bash
# Tests jobs on a real standalone cluster of Spark, with the wheel as a user gets it, on both lines of Spark.
#
# Usage: worker/python/test_spark.sh [spark35|spark4|all] [arguments of pytest]
# Needs Java 17. Each environment takes 0.5 GB under ${XDG_CACHE_HOME:-~/.cache}/elasticrun, a cluster 2.2 GB of memory.
set -euo pipefail
cd "$(dirname "$0")"

case "${1:-all}" in
all) lines=(spark35 spark4) ;;
spark35 | spark4) lines=("$1") ;;
*)
    echo "test_spark.sh $1: expected spark35, spark4 or all" >&2
    exit 2
    ;;
esac
shift || true
command -v java >/dev/null || {
    echo "test_spark.sh: there is no java on the PATH: Spark needs Java 17" >&2
    exit 2
}

out="$(mktemp -d)"
trap 'rm -rf "$out"' EXIT
cloud="${ELASTICRUN_CLOUD_TARGET:-${XDG_CACHE_HOME:-$HOME/.cache}/elasticrun/target-cloud}"
cargo build --locked -q --manifest-path ../../discovery-plugins/cloud/Cargo.toml --target-dir "$cloud" -p elasticrun-plugin-spark
mkdir "$out/plugins"
cp "$cloud/debug/libelasticrun_plugin_spark.so" "$out/plugins"
export ELASTICRUN_TEST_PLUGINS="$out/plugins"
wheel="$(./build.sh dev "$out" | tail -1)"
for line in "${lines[@]}"; do
    python="$(./venv.sh "$line")"
    "$python" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$wheel"
    bin="$(dirname "$python")"
    ELASTICRUN_BIN="$bin/elasticrun" PATH="$bin:$PATH" "$python" -m pytest tests/spark "$@"
done
