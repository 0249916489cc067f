#!/usr/bin/env bash
# Tests jobs on a real standalone Spark cluster, with the installed wheel, on both supported Spark versions.
#
# Usage: worker/python/test_spark.sh [spark35|spark4|all|quick] [arguments of pytest]
# Needs Java 17. The estimator's tests take torch from the environment of test.sh. Each environment needs 0.5 GB under
# ${XDG_CACHE_HOME:-~/.cache}/elasticrun, and a cluster 2.2 GB of memory.
# "quick" is for CI: the tests with that mark on the newer version. Without Java they are skipped.
set -euo pipefail
cd "$(dirname "$0")"

which="${1:-all}"
shift || true
case "$which" in
all) lines=(spark35 spark4) ;;
spark35 | spark4) lines=("$which") ;;
quick) lines=(spark4) && set -- -m quick "$@" ;;
*)
    echo "test_spark.sh $which: expected spark35, spark4, all or quick" >&2
    exit 2
    ;;
esac
if ! command -v java >/dev/null; then
    if [ "$which" = quick ]; then
        echo "test_spark.sh: SKIPPED, all tests on Spark: there is no java on the PATH, and Spark needs Java 17" >&2
        exit 0
    fi
    echo "test_spark.sh: there is no java on the PATH: Spark needs Java 17" >&2
    exit 2
fi

out="$(mktemp -d)"
trap 'rm -rf "$out"' EXIT
if [ "$which" != quick ]; then
    cloud="${ELASTICRUN_CLOUD_TARGET:-${XDG_CACHE_HOME:-$HOME/.cache}/elasticrun/target-cloud}"
    cargo build --locked -q --manifest-path ../../discovery-plugins/cloud/Cargo.toml --target-dir "$cloud" -p elasticrun-plugin-spark
    mkdir "$out/plugins"
    cp "$cloud/debug/libelasticrun_plugin_spark.so" "$out/plugins"
    export ELASTICRUN_TEST_PLUGINS="$out/plugins"
fi
wheel="$(./build.sh dev "$out" | tail -1)"
torch="$(./venv.sh test)"
imported="$("$torch" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
for line in "${lines[@]}"; do
    python="$(./venv.sh "$line")"
    # PYTHONPATH precedes the environment's packages, so both need this package.
    for each in "$torch" "$python"; do
        "$each" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$wheel"
    done
    bin="$(dirname "$python")"
    ELASTICRUN_BIN="$bin/elasticrun" PYTHONPATH="$imported" PATH="$bin:$PATH" "$python" -m pytest tests/spark "$@"
done
