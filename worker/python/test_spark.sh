#!/usr/bin/env bash
# Tests jobs on a real standalone cluster of Spark, with the wheel as a user gets it, on both lines of Spark.
#
# Usage: worker/python/test_spark.sh [spark35|spark4|all] [arguments of pytest]
# Needs Java 17. The estimator's tests take torch from the environment of test.sh. Each environment takes 0.5 GB under ${XDG_CACHE_HOME:-~/.cache}/elasticrun, a cluster 2.2 GB of memory.
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
wheel="$(./build.sh dev "$out" | tail -1)"
torch="$(./venv.sh test)"
imported="$("$torch" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
for line in "${lines[@]}"; do
    python="$(./venv.sh "$line")"
    # What is imported from there comes first, this package too.
    for each in "$torch" "$python"; do
        "$each" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$wheel"
    done
    bin="$(dirname "$python")"
    ELASTICRUN_BIN="$bin/elasticrun" PYTHONPATH="$imported" PATH="$bin:$PATH" "$python" -m pytest tests/spark "$@"
done
