"""CUDA: ranks that share a GPU, one rank on NCCL, and commits of CUDA tensors. Run by test_gpu.sh."""

import ctypes
import mmap
import os
import re
import select
import signal
import sys
from pathlib import Path

import pytest
import torch
from support.checks import checked, checks_of
from support.jobs import run

if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)

CHECKS = Path(__file__).parent / "checks" / "one_gpu.py"
WORKER = Path(__file__).parent.parent / "torch" / "workers" / "sharded.py"
STEPS = 6
RANKS = 3


@pytest.mark.parametrize("name", checks_of(CHECKS))
def test_ranks_that_share_a_gpu(name: str) -> None:
    checked(CHECKS, RANKS).passed(name)


@pytest.mark.parametrize(
    ("kind", "ranks", "words", "base"),
    [
        ("fsdp", 4, ["forward:1@3"], "3"),
        ("fsdp", 4, ["behind", "forward:1@3"], "2"),
        # Groups of some ranks.
        ("tensor", 4, ["forward:1@3"], "3"),
    ],
)
def test_survivors_on_a_gpu_go_on_from_the_shards_of_the_dead(
    kind: str, ranks: int, words: list[str], base: str, tmp_path: Path
) -> None:
    multiple = 1 if kind == "fsdp" else 2
    left = ranks - multiple
    # More slots than the host has GPUs.
    flags = ["-H", f"localhost:{ranks}", "-np", str(ranks), "--min-np", str(multiple), "--blacklist", "forever"]
    flags += ["--replica-group-size", "all", "--size-multiple", str(multiple)]
    script = [sys.executable, str(WORKER), kind, str(STEPS), str(tmp_path), *words]
    code, output = run(*flags, *script)
    assert code == 0, output
    assert "back end elasticrun" in output, output
    check_start(output, left, base)


def test_the_rank_that_is_left_on_a_gpu_goes_on_with_nccl(tmp_path: Path) -> None:
    flags = ["-H", "localhost:2", "-np", "2", "--min-np", "1", "--blacklist", "forever", "--replica-group-size", "all"]
    script = [sys.executable, str(WORKER), "fsdp", str(STEPS), str(tmp_path), "forward:1@3"]
    code, output = run(*flags, *script)
    assert code == 0, output
    assert re.findall(r"back end (\w+)", output) == ["elasticrun", "elasticrun", "nccl"], output
    check_start(output, 1, "3")


def check_start(output: str, size: int, base: str) -> None:
    """Checks that a later round of so many workers has begun with the bits of torch's own checkpoint of a step, and ended."""
    equal = re.findall(rf"rank \d+ of {size} equals checkpoint (\d+): (\d+) tensors", output)
    assert equal == [(base, "58")] * size, output
    assert len(re.findall(rf"done rank \d+ of {size} step {STEPS} ", output)) == size, output


def test_memory_files() -> None:
    file = os.memfd_create("elasticrun-test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(file, 1 << 20)
    with mmap.mmap(file, 1 << 20) as memory:
        memory[:4] = b"page"
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        locked = int(torch.cuda.cudart().cudaHostRegister(address, 1 << 20, 0))
        assert locked == 0, f"cudaHostRegister of a memory file: error {locked}"
        host = torch.frombuffer((ctypes.c_ubyte * (1 << 20)).from_address(address), dtype=torch.uint8)
        assert host.is_pinned()
        host.copy_(torch.full((1 << 20,), 7, dtype=torch.uint8, device="cuda"), non_blocking=True)
        torch.cuda.synchronize()
        assert (host == 7).all()
        assert int(torch.cuda.cudart().cudaHostUnregister(address)) == 0
        del host
    os.close(file)


def test_process_descriptors() -> None:
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    descriptor = os.pidfd_open(child)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    assert poll.poll(0) == []
    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    assert poll.poll(10_000)
    os.waitpid(child, 0)
    os.close(descriptor)


def test_robust_futexes() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with mmap.mmap(-1, mmap.PAGESIZE) as memory:
        mutex = ctypes.c_char.from_buffer(memory)
        attributes = ctypes.create_string_buffer(64)
        assert libc.pthread_mutexattr_init(attributes) == 0
        shared = robust = 1
        assert libc.pthread_mutexattr_setpshared(attributes, shared) == 0
        assert libc.pthread_mutexattr_setrobust(attributes, robust) == 0
        assert libc.pthread_mutex_init(ctypes.byref(mutex), attributes) == 0
        child = os.fork()
        if child == 0:
            libc.pthread_mutex_lock(ctypes.byref(mutex))
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        owner_died = 130
        assert libc.pthread_mutex_lock(ctypes.byref(mutex)) == owner_died
        del mutex
