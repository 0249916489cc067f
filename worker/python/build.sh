#!/usr/bin/env bash
# Builds the wheel: the Python package with its native module, the binary, its man page and shell completions.
#
# Usage: worker/python/build.sh PROFILE OUT [FEATURES]    (PROFILE: dev or release)
# Prints the path of the wheel as the last line.
set -euo pipefail
profile="${1:?profile: dev or release}" out="$(realpath -m "${2:?where the wheel goes}")"
target="$(realpath -m "${CARGO_TARGET_DIR:-"$(dirname "$0")/../../target"}")"
export CARGO_TARGET_DIR="$target"
cd "$(dirname "$0")"

python="$(./venv.sh wheel)"
built="$target/$([ "$profile" = dev ] && echo debug || echo "$profile")"

# In development this builds the whole workspace, as all other builds do. cargo then unifies features, and compiles nothing twice.
# A build with features shares no crate of the workspace with them.
what="$([ "$profile" = dev ] && [ -z "${3:-}" ] && echo --workspace || echo --package=elasticrun)"
cargo build --locked --profile "$profile" "$what" >&2
mkdir -p elasticrun.data/scripts
install "$built/elasticrun" elasticrun.data/scripts/elasticrun
[ "$profile" = dev ] || strip elasticrun.data/scripts/elasticrun

./share.sh "$built/elasticrun"

# maturin calls cargo, which reuses the build.
"$python" -m maturin build --quiet --locked --profile "$profile" ${3:+--features "$3"} --out "$out" >&2
# shellcheck disable=SC2012
ls -t "$out"/elasticrun-*.whl | head -1
