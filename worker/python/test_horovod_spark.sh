#!/usr/bin/env bash
# Runs Horovod's elastic scenarios on a real Spark cluster, with the installed wheel.
#
# Usage: HOROVOD_SRC=DIR worker/python/test_horovod_spark.sh [spark35|spark4] [arguments of pytest]
# DIR is a checkout of Horovod; without it the tests are skipped. Needs Java 17. The first run creates environments under
# ${XDG_CACHE_HOME:-~/.cache}/elasticrun: those of test.sh and test_spark.sh, and another of 200 MB.
set -euo pipefail
[ -z "${HOROVOD_SRC:-}" ] || HOROVOD_SRC="$(realpath -e "$HOROVOD_SRC")"
export HOROVOD_SRC="${HOROVOD_SRC:-}"
cd "$(dirname "$0")"

line="${1:-spark35}"
shift || true
case "$line" in
spark35 | spark4) ;;
*)
    echo "test_horovod_spark.sh $line: expected spark35 or spark4" >&2
    exit 2
    ;;
esac
command -v java >/dev/null || {
    echo "test_horovod_spark.sh: there is no java on the PATH: Spark needs Java 17" >&2
    exit 2
}

# torch comes from the first environment, pyspark from the second.
python="$(./venv.sh test)"
spark="$(./venv.sh "$line")"
horovod="$(./venv.sh horovod)"
out="$(mktemp -d)"
trap 'rm -rf "$out"' EXIT
wheel="$(./build.sh dev "$out" | tail -1)"
imported=()
for each in "$spark" "$horovod"; do
    imported+=("$("$each" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')")
done
for each in "$python" "$spark"; do
    "$each" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$wheel"
done

export ELASTICRUN_BIN="${python%/*}/elasticrun" PYTHONPATH="${imported[0]}:${imported[1]}"
"$python" -m pytest tests/horovod/test_spark_scenarios.py -rs "$@"
