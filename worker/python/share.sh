#!/usr/bin/env bash
# Writes what is below the prefix of an environment, for the wheel: completions, the man page and the plugin SDK.
#
# Usage: worker/python/share.sh PROGRAM    (the program elasticrun, which prints them)
set -euo pipefail
program="$(realpath "${1:?the program elasticrun}")"
cd "$(dirname "$0")"

generate() {
    mkdir -p "$(dirname "elasticrun.data/data/share/$1")"
    "$program" "${@:2}" >"elasticrun.data/data/share/$1"
}
generate man/man1/elasticrun.1 man
generate bash-completion/completions/elasticrun completions bash
generate zsh/site-functions/_elasticrun completions zsh
generate fish/vendor_completions.d/elasticrun.fish completions fish
./plugin_sdk.sh elasticrun.data/data/share/elasticrun/plugin-sdk
