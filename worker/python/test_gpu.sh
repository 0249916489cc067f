#!/usr/bin/env bash
# Tests the wheel on a machine with a GPU, and measures commits of CUDA tensors. It needs no network: the torch that is there is
# used, with pytest.
#
# Usage: worker/python/test_gpu.sh [WHEEL]     (default: a wheel that is built now)
# Takes two and a half minutes with a built wheel. Without a GPU it does nothing.
set -euo pipefail
cd "$(dirname "$0")/../.."

python="${PYTHON:-python3}"
if ! "$python" -c 'import torch, pytest; assert torch.cuda.is_available()' 2>/dev/null; then
    echo "test-gpu: skipped: $python has no torch with a GPU, or no pytest"
    exit 0
fi
site="$(mktemp -d)"
trap 'rm -rf "$site"' EXIT
wheel="${1:-"$(worker/python/build.sh release "$site/wheel" | tail -1)"}"
"$python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps --target "$site" "$wheel"
export PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}" PATH="$site/bin:$PATH" ELASTICRUN_BIN="$site/bin/elasticrun"

"$python" -c 'import torch; print("torch", torch.__version__, torch.cuda.get_device_name(), "CUDA", torch.version.cuda)'
failed=0
(cd worker/python && "$python" -m pytest -p no:cacheprovider -v tests/gpu) || failed=$?
"$python" benches/python/sharded_gpu.py || failed=$?
exit "$failed"
