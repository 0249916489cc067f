#!/usr/bin/env bash
# Reads a data set from S3, for which moto's server stands in: all of it, one object, and a missing one, also in order
# "deterministic". Then the same from Google Cloud Storage. Its XML interface is similar enough to S3 for moto, for public objects.
# At last, jobs whose durable commits are in S3.
#
# Usage: worker/data/tests/s3.sh         (installs moto once, into a separate environment)
set -euo pipefail
cd "$(dirname "$0")/../../.."

venv="${XDG_CACHE_HOME:-$HOME/.cache}/elasticrun/venv-s3"
if [ ! -e "$venv/.complete" ]; then
    rm -rf "$venv"
    "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check 'moto[s3,server]>=5' boto3
    touch "$venv/.complete"
fi
cargo build --locked -q -p elasticrun-data --example read
read="${CARGO_TARGET_DIR:-target}/debug/examples/read"

scratch="$(mktemp -d)"
"$venv/bin/moto_server" -H 127.0.0.1 -p 0 >"$scratch/log" 2>&1 &
server=$!
trap 'kill "$server"; rm -rf "$scratch"' EXIT
until port="$(sed -n 's#.*Running on http://127.0.0.1:\([0-9]*\).*#\1#p' "$scratch/log")" && [ -n "$port" ]; do
    kill -0 "$server" || { cat "$scratch/log"; exit 1; }
    sleep 0.1
done

export AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test AWS_REGION=us-east-1 AWS_DEFAULT_REGION=us-east-1
export AWS_ENDPOINT_URL="http://127.0.0.1:$port" AWS_ALLOW_HTTP=true
export GOOGLE_BASE_URL="$AWS_ENDPOINT_URL" GOOGLE_SKIP_SIGNATURE=true GOOGLE_ALLOW_HTTP=true
"$venv/bin/python" - worker/data/tests/fixtures/*.parquet <<'PYTHON'
import sys
from pathlib import Path

import boto3

s3 = boto3.client("s3")
s3.create_bucket(Bucket="bucket")
for path in map(Path, sys.argv[1:]):
    # The files of a data set have the same columns.
    key = f"{path.name.split('-')[0]}/{path.name}"
    s3.upload_file(str(path), "bucket", key, ExtraArgs={"ACL": "public-read"})
s3.put_object(Bucket="bucket", Key="pyarrow/_SUCCESS", Body=b"done")
PYTHON

# expect TEXT COMMAND...: fails unless the output of the command (stdout and stderr) ends with the text.
expect() {
    output="$("${@:2}" 2>&1 || true)"
    case "$output" in
        *"$1") echo "ok: $1" ;;
        *) printf 'expected: %s\ngot: %s\n' "$1" "$output"; exit 1 ;;
    esac
}
mkdir "$scratch/set"
cp worker/data/tests/fixtures/pyarrow-*.parquet "$scratch/set"
in_steps="$("$read" --steps 96 "$scratch/set" | tail -1)"
for kind in s3 gs; do
    # The rows of a step do not depend on the storage.
    expect "$in_steps" "$read" --steps 96 $kind://bucket/pyarrow
    expect '960 rows in 1 batches, 12 cursors' "$read" $kind://bucket/pyarrow
    expect '240 rows in 1 batches, 3 cursors' "$read" $kind://bucket/pyarrow/pyarrow-plain-v1.parquet id list
    expect "$kind://bucket/nothing: no such file: it was there when the data set was opened, or its name is wrong" "$read" $kind://bucket/nothing
    expect 'column nope: no such column; the columns are id, list, few, fixed, bytes, text' "$read" $kind://bucket/pyarrow nope
done
cargo test --locked -q -p elasticrun-process-tests --test end_to_end -- --ignored durable_in_bucket
