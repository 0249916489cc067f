#!/usr/bin/env bash
# Writes what shells and man find below the prefix of an environment, for the wheel: completions and the man page.
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
