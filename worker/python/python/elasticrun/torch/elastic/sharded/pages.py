"""Memory that a round needs: pages of the round before, and pages that are provided while build() runs.

The system takes many times as long to provide a page as a copy of its bytes does.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch.distributed.tensor import DTensor

from elasticrun import _native

if TYPE_CHECKING:
    from elasticrun._native import Buffer

#: A part of the shard: more memory is neither kept nor provided for another round.
_KEPT = 2


def provide(base: _native.DividedBase, shards: int | None, pool: _native.PagePool | None) -> None:
    """Begins to provide memory for a shard of a base that is divided anew.

    build() uses one processor, and takes longer in the first round of a process.

    Args:
        base: the base of the round.
        shards: number of shards of the round.
        pool: gets as many bytes as the shard has, beside the commit.
    """
    nbytes = sum(map(base.layout.nbytes, range(base.layout.shards))) // (shards or 1)
    _native.provide_for_commit(nbytes)
    if pool is not None:
        pool.provide(nbytes)


def provide_for_loss(pool: _native.PagePool, layout: _native.Layout, shard: int, growth: int) -> None:
    """Provides memory for the larger shard of a round with fewer workers, in threads of its own.

    A recovery would provide the same memory while all workers wait for it.

    Args:
        pool: keeps pages for tensors: those that it has, up to half of the shard.
        layout: how the state is divided.
        shard: the shard of this worker.
        growth: bytes by which the shard grows. At most half of the shard is provided, and a quarter of what the system has for
            the workers of this host.
    """
    nbytes = layout.nbytes(shard)
    growth = min(growth, nbytes // _KEPT)
    _, available = _native.memory_for_commits(layout, shard, 0)
    # For tensors and two commits.
    of_host = 3 * growth * _native.world().local_size
    if available is not None and of_host > available // 4:
        growth = 0
    if growth:
        _native.provide_for_commits(nbytes + growth)
    # To free pages takes as long as a part of the copies of a recovery.
    keep = threading.Thread(target=pool.keep, args=(growth, nbytes // _KEPT), name="elasticrun pages", daemon=True)
    keep.start()


def free_for_commits(pool: _native.PagePool, layout: _native.Layout, shard: int) -> None:
    """Frees the pages of a pool if commits of the workers of this host may need them."""
    nbytes, available = _native.memory_for_commits(layout, shard, 0)
    if available is not None and nbytes * _native.world().local_size > available // 2:
        pool.keep(0, 0)


def in_place(tensors: Iterable[torch.Tensor]) -> list[Buffer]:
    """Address and bytes of those local tensors whose memory a copy from a commit fills in place."""
    found = []
    with torch.no_grad():
        for tensor in tensors:
            local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
            if local.device.type == "cpu" and local.is_contiguous():
                found.append((local.data_ptr(), local.nbytes))
    return found


@contextmanager
def no_collection(pauses: bool) -> Iterator[None]:
    """Without garbage collection, if ``pauses``.

    The model of the round before is garbage with cycles. To look for it takes longer than to load the new one.
    """
    pauses = pauses and gc.isenabled()
    if pauses:
        gc.disable()
    try:
        yield
    finally:
        if pauses:
            gc.enable()
