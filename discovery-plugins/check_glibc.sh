#!/usr/bin/env bash
# Checks that programs and libraries run with a glibc, by the versions of the symbols that they import.
#
# Usage: discovery-plugins/check_glibc.sh VERSION FILE...    (VERSION: such as 2.28)
# Fails with a line for each file that needs a newer glibc, or that is no dynamic program or library.
set -euo pipefail
glibc="${1:?the version of glibc}"
shift
[ $# -gt 0 ] || { echo "which files?" >&2; exit 1; }

command -v objdump >/dev/null || { echo "check_glibc.sh needs objdump, of the package binutils" >&2; exit 1; }

failed=0
for file in "$@"; do
    [ -f "$file" ] || { echo "$file: no such file" >&2; exit 1; }
    needed="$({ objdump -T "$file" || true; } | { grep -oE 'GLIBC_[0-9]+(\.[0-9]+)+' || true; } | sort -uV | tail -1)"
    if [ -z "$needed" ]; then
        echo "$file imports no symbol of glibc" >&2
        failed=1
    elif [ "$(printf '%s\n' "GLIBC_$glibc" "$needed" | sort -V | tail -1)" != "GLIBC_$glibc" ]; then
        echo "$file needs $needed, not GLIBC_$glibc" >&2
        failed=1
    fi
done
exit "$failed"
