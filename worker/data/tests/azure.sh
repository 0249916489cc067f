#!/usr/bin/env bash
# Reads a data set from Azure Blob Storage, for which Azurite stands in: all of it, one object, and a missing one, also in order
# "deterministic", with credentials from the environment and from options.
#
# Usage: worker/data/tests/azure.sh         (needs Node.js; installs Azurite once, into a separate directory)
set -euo pipefail
cd "$(dirname "$0")/../../.."

if ! command -v npm >/dev/null; then
    echo "skipped: Azurite needs Node.js"
    exit 0
fi
home="${XDG_CACHE_HOME:-$HOME/.cache}/elasticrun/azurite"
if [ ! -e "$home/.complete" ]; then
    rm -rf "$home"
    mkdir -p "$home"
    npm install --prefix "$home" --no-audit --no-fund --loglevel error 'azurite@3'
    touch "$home/.complete"
fi
cargo build --locked -q -p elasticrun-data --example read
read="${CARGO_TARGET_DIR:-target}/debug/examples/read"

scratch="$(mktemp -d)"
"$home/node_modules/.bin/azurite-blob" --blobHost 127.0.0.1 --blobPort 0 --skipApiVersionCheck --disableTelemetry --location "$scratch/blobs" >"$scratch/log" 2>&1 &
server=$!
trap 'kill "$server"; rm -rf "$scratch"' EXIT
until port="$(sed -n 's#.*listens on http://127.0.0.1:\([0-9]*\).*#\1#p' "$scratch/log")" && [ -n "$port" ]; do
    kill -0 "$server" || { cat "$scratch/log"; exit 1; }
    sleep 0.1
done

# The account and the key that each emulator has.
account=devstoreaccount1
key='Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=='
export AZURITE_BLOB_STORAGE_URL="http://127.0.0.1:$port"
"${PYTHON:-python3}" - "$AZURITE_BLOB_STORAGE_URL" "$account" "$key" worker/data/tests/fixtures/pyarrow-*.parquet <<'PYTHON'
import base64
import hashlib
import hmac
import sys
import urllib.request
from email.utils import formatdate
from pathlib import Path

host, account, key, *paths = sys.argv[1:]


def put(target, query="", content=b"", **headers):
    """A request that is signed by the key of the account."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    canonical = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
    resource = f"/{account}/{account}/{target}" + "".join(f"\n{part.replace('=', ':')}" for part in sorted(query.split("&")) if part)
    length = str(len(content)) if content else ""
    text = f"PUT\n\n\n{length}\n\napplication/octet-stream\n\n\n\n\n\n\n{canonical}{resource}"
    signature = hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {account}:{base64.b64encode(signature).decode()}"
    headers["Content-Type"] = "application/octet-stream"
    url = f"{host}/{account}/{target}" + (f"?{query}" if query else "")
    urllib.request.urlopen(urllib.request.Request(url, content, headers, method="PUT")).close()


put("box", "restype=container")
for path in map(Path, paths):
    put(f"box/pyarrow/{path.name}", content=path.read_bytes(), x_ms_blob_type="BlockBlob")
put("box/pyarrow/_SUCCESS", content=b"done", x_ms_blob_type="BlockBlob")
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
read_all() {
    for kind in az abfs; do
        # The rows of a step do not depend on the storage.
        expect "$in_steps" "$read" "$@" --steps 96 $kind://box/pyarrow
        expect '960 rows in 1 batches, 12 cursors' "$read" "$@" $kind://box/pyarrow
        expect '240 rows in 1 batches, 3 cursors' "$read" "$@" $kind://box/pyarrow/pyarrow-plain-v1.parquet id list
        expect "$kind://box/nothing: no such file: it was there when the data set was opened, or its name is wrong" "$read" "$@" $kind://box/nothing
    done
}
AZURE_STORAGE_USE_EMULATOR=true read_all
read_all --option azure_storage_use_emulator=true
# A key that is wrong is refused, and not shown.
wrong="$(printf 'not the key' | base64)"
output="$("$read" --option azure_storage_use_emulator=true --option azure_storage_account_key="$wrong" az://box/pyarrow 2>&1 || true)"
case "$output" in
    *"$wrong"*) echo "the error shows the key: $output"; exit 1 ;;
    *'az://box/pyarrow: '*) echo "ok: $output" ;;
    *) echo "no error of a wrong key: $output"; exit 1 ;;
esac
