"""Which tensors are filled in place, and a pause of garbage collection."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch.distributed.tensor import DTensor

if TYPE_CHECKING:
    from elasticrun._native import Buffer


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
