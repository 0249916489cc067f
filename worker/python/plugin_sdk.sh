#!/usr/bin/env bash
# Writes the sources of the plugin SDK for Rust as a workspace of their own, for the wheel. `elasticrun plugin new` depends on them.
#
# Usage: worker/python/plugin_sdk.sh OUT    (a directory that is replaced)
# The manifests are those of this workspace. The root has the entries of the workspace's manifest that they refer to.
set -euo pipefail
out="$(realpath -m "${1:?the directory to write}")"
cd "$(dirname "$0")/../.."

rm -rf "$out"
mkdir -p "$out/hosts" "$out/sdk"
cp -r discovery-plugins/hosts/{Cargo.toml,src} "$out/hosts"
cp -r discovery-plugins/sdk/{Cargo.toml,src,include} "$out/sdk"
cp LICENSE "$out"
used="$(sed -n 's/^\([a-z0-9_-]*\)\.workspace = true$/\1/p' "$out"/*/Cargo.toml)"
{
    printf '[workspace]\nresolver = "3"\nmembers = ["hosts", "sdk"]\n'
    awk -v used="$used" '
        BEGIN { split(used, names, "\n"); for (at in names) wanted[names[at]] }
        /^#/ || /^$/ { next }
        /^\[/ { section = $0; gap = "\n" }
        section ~ /^\[workspace\.(package|lints)/ { printf "%s%s\n", gap, $0; gap = "" }
        section == "[workspace.dependencies]" && (/^\[/ || ($1 in wanted)) { printf "%s%s\n", gap, $0; gap = "" }
    ' Cargo.toml | sed 's|"discovery-plugins/|"|'
} >"$out/Cargo.toml"
