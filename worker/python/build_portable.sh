#!/usr/bin/env bash
# Builds release wheels for other machines: any Linux with glibc 2.28 or later (RHEL 8, Debian 10), on x86_64 and aarch64.
#
# Usage: worker/python/build_portable.sh OUT [ARCH...]    (ARCH: x86_64 or aarch64; both if none is given)
# zig, from PyPI, compiles C and links. aarch64 needs the Rust target: rustup target add aarch64-unknown-linux-gnu.
# Prints the path of each wheel. Fails if a file in a wheel needs a newer glibc.
set -euo pipefail
glibc=2.28
out="$(realpath -m "${1:?where the wheels go}")"
shift
[ $# -gt 0 ] || set -- x86_64 aarch64
target="$(realpath -m "${CARGO_TARGET_DIR:-"$(dirname "$0")/../../target"}")"
export CARGO_TARGET_DIR="$target" CARGO_PROFILE_RELEASE_STRIP=symbols
cd "$(dirname "$0")"

python="$(./venv.sh portable)"
PATH="$(dirname "$python"):$PATH"
trap 'rm -f elasticrun.data/scripts/elasticrun' EXIT
mkdir -p elasticrun.data/scripts
program() {
    cargo-zigbuild zigbuild --quiet --locked --release --package elasticrun --target "$1.$glibc" >&2
}
program "$(uname -m)-unknown-linux-gnu"
./share.sh "$target/$(uname -m)-unknown-linux-gnu/release/elasticrun"
for arch in "$@"; do
    triple="$arch-unknown-linux-gnu"
    program "$triple"
    install "$target/$triple/release/elasticrun" elasticrun.data/scripts/elasticrun
    # maturin checks the glibc that the native module needs, not that of the program.
    ../../discovery-plugins/check_glibc.sh "$glibc" elasticrun.data/scripts/elasticrun
    "$python" -m maturin build --quiet --locked --release --zig --target "$triple" \
        --compatibility "manylinux_${glibc/./_}" --out "$out" >&2
    # shellcheck disable=SC2012
    ls -t "$out"/elasticrun-*"_$arch.whl" | head -1
done
