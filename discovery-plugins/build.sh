#!/usr/bin/env bash
# Builds the plugins that are no part of the binary, optimised and without symbols: AWS, Google Cloud, Kubernetes, Slurm, Spark.
#
# Usage: discovery-plugins/build.sh native|portable OUT [PLUGIN...]    (PLUGIN: such as spark; all if none is given)
# native: for this machine. portable: for glibc 2.28 or later and the processor of this machine, as the portable wheel.
# The SDK of AWS takes 8 GB of memory and most of the time. ELASTICRUN_CLOUD_TARGET: the target directory of the cloud plugins.
set -euo pipefail
glibc=2.28
all=(slurm aws-asg gcp-mig kubernetes spark)
how="${1:?native or portable}"
out="$(realpath -m "${2:?where the libraries go}")"
shift 2
[ $# -gt 0 ] || set -- "${all[@]}"
for plugin in "$@"; do
    if [[ " ${all[*]} " != *" $plugin "* ]]; then
        echo "$plugin: no such plugin; expected one of: ${all[*]}" >&2
        exit 2
    fi
done
here="$(dirname "$0")"
cloud_target="$(realpath -m "${ELASTICRUN_CLOUD_TARGET:-"${XDG_CACHE_HOME:-$HOME/.cache}/elasticrun/target-cloud"}")"
target="$(realpath -m "${CARGO_TARGET_DIR:-"$here/../target"}")"
cd "$here"
# Both workspaces are built for size, without symbols.
export CARGO_PROFILE_RELEASE_OPT_LEVEL=s CARGO_PROFILE_RELEASE_STRIP=symbols CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16

case "$how" in
native)
    directory=release
    build() { cargo build --locked --release -j2 "$@"; }
    ;;
portable)
    triple="$(uname -m)-unknown-linux-gnu"
    directory="$triple/release"
    python="$(../worker/python/venv.sh portable)"
    PATH="$(dirname "$python"):$PATH"
    build() { cargo-zigbuild zigbuild --locked --release -j2 --target "$triple.$glibc" "$@"; }
    ;;
*)
    echo "$how: expected native or portable" >&2
    exit 1
    ;;
esac

# One build of each workspace: cargo unites the features of its packages.
packages=()
for plugin in "$@"; do
    [ "$plugin" = slurm ] || packages+=(--package "elasticrun-plugin-$plugin")
done
if [[ " $* " = *" slurm "* ]]; then
    build --manifest-path ../Cargo.toml --target-dir "$target" --package elasticrun-plugin-slurm
fi
if [ ${#packages[@]} -gt 0 ]; then
    build --manifest-path cloud/Cargo.toml --target-dir "$cloud_target" "${packages[@]}"
fi

mkdir -p "$out"
built=()
for plugin in "$@"; do
    library="libelasticrun_plugin_${plugin//-/_}.so"
    from="$cloud_target"
    [ "$plugin" != slurm ] || from="$target"
    install "$from/$directory/$library" "$out/$library"
    built+=("$out/$library")
done
# Those of an earlier build may be there.
[ "$how" = native ] || ./check_glibc.sh "$glibc" "$out"/libelasticrun_plugin_*.so
printf '%s\n' "${built[@]}"
